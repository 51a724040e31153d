"""The battery of a card: which examinations there are, in which order, and what is kept of them."""

import hashlib
import json
import multiprocessing
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.card.subject import Examined
from normlab.config import to_dict
from normlab.records.atomic import atomic_write
from normlab.records.canonical import plain
from normlab.records.code import code_of
from normlab.records.fingerprint import fingerprint
from normlab.registry import options

if TYPE_CHECKING:
    from normlab.card.finding import Finding

FORMAT = "normlab.card/1"
QUIET = ("pools", "cost")
TRAINING = ("translation", "language_model", "bert", "pictures", "rate", "depth")
TRAINED = ("warmup", "small_batch", "company", "inference", "stepwise", "health")
EXAMINATIONS = (*QUIET, *TRAINING, *TRAINED)
"""The examinations in the order of the page, each a module of `normlab.card.exams`.

`QUIET` ones have the processor to themselves, and `TRAINED` ones read the translation run.
"""
_PACKAGE = Path(__file__).resolve().parents[1]
_INSTRUMENTS = ("card", "health", "bench", "explain")


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """Return the examinations of these names in their order, all for no names.

    Raises ValueError for a name that is none.
    """
    for name in names:
        if name not in EXAMINATIONS:
            raise ValueError(f"no examination {name!r}: there are {', '.join(EXAMINATIONS)}")
    return tuple(name for name in EXAMINATIONS if name in names) if names else EXAMINATIONS


def carry_out(
    examined: Examined, names: Sequence[str], *, processes: int
) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Give each finding as it comes, as plain values, and whether it was kept from before.

    Several at a time where they only train or read; an interrupted battery goes on where it was.
    """
    key = key_of(examined)
    for stage in (QUIET, TRAINING, TRAINED):
        due = [name for name in stage if name in names]
        kept = {name: found for name in due if (found := read(examined, name, key)) is not None}
        for name, found in kept.items():
            yield name, found, True
        left = [name for name in due if name not in kept]
        if stage is QUIET or processes == 1 or len(left) < 2:
            for name in left:
                yield name, examine(examined, name, key), False
        else:
            yield from _together(examined, left, key, processes)


def _together(
    examined: Examined, names: Sequence[str], key: str, processes: int
) -> Iterator[tuple[str, dict[str, Any], bool]]:
    context = multiprocessing.get_context("spawn")
    if names[0] in TRAINED:  # they would all wait for the lock of one run
        yield names[0], examine(examined, names[0], key), False
        names = names[1:]
    with ProcessPoolExecutor(
        min(processes, len(names)), mp_context=context, initializer=_ignore_interrupts
    ) as pool:
        waiting = {pool.submit(examine, examined, name, key): name for name in names}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result(), False
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent; a run that is training takes it as its own and saves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def examine(examined: Examined, name: str, key: str) -> dict[str, Any]:
    """Carry out one examination, keep what it found, and return it."""
    finding: Finding = import_module(f"normlab.card.exams.{name}").examine(examined)
    found = {**plain(asdict(finding)), "applies": finding.why_not is None}
    path = _file(examined, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(json.dumps({"key": key, "finding": found}, indent=1, allow_nan=False) + "\n")
    return found


def read(examined: Examined, name: str, key: str) -> dict[str, Any] | None:
    """Return what was found before, by the same code of the same norm; None where nothing was."""
    try:
        kept = json.loads(_file(examined, name).read_text("utf-8"))
        return kept["finding"] if kept["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # there is none, or it is damaged: it is made again


def _file(examined: Examined, name: str) -> Path:
    return examined.folder / "exams" / f"{name}.json"


def key_of(examined: Examined) -> str:
    """Return what an examination depends on: the norm, the scale, the code of runs and battery."""
    config = to_dict(examined.config("translation"))
    parts = [
        *(examined.overrides, examined.device, asdict(examined.sizes)),
        *(fingerprint(config), code_of(config)["code"], _instruments()),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _instruments() -> str:
    digest = hashlib.sha256()
    for folder in _INSTRUMENTS:
        for path in sorted((_PACKAGE / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def card(examined: Examined, environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `card.json` holds: all that was found so far, as plain values."""
    key = key_of(examined)
    config = to_dict(examined.config("translation"))
    found = {name: read(examined, name, key) for name in EXAMINATIONS}
    norm = config["choices"]["norm"]
    described = {option.name: option.description for option in options("norm")}
    return {
        "format": FORMAT,
        "name": examined.name,
        "description": described[norm],
        "overrides": list(examined.overrides),
        "scale": examined.scale,
        "seeds": list(examined.sizes.seeds),
        "norm": config["norm"],
        "environment": plain(dict(environment)),
        "examinations": {name: each for name, each in found.items() if each is not None},
    }
