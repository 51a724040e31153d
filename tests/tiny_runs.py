"""One-second runs for tests: a corpus in a folder, overrides, and runs that are killed.

A killed run is a separate process, forked from a server that has already imported torch. It runs
`normlab ARGV` and is killed with SIGKILL at a given moment: before, during or after the n-th call
of a function. So the kill always hits the same instruction, however busy the machine is.
"""

import math
import multiprocessing
import os
import pkgutil
import random
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

_NOUNS = ("Mann man", "Hund dog", "Baum tree", "Tisch table", "Brief letter", "Wagen car")
_VERBS = ("sieht sees", "findet finds", "malt paints", "kennt knows")
_PLACES = (("im Garten", "in the garden"), ("am Abend", "in the evening"), ("heute", "today"))

SETTINGS = (
    *("task=translation", "task.vocab_size=90", "task.test_search.beam=2"),
    *("task.valid_search.length_offset=5", "task.test_search.length_offset=5"),
    *("model=tiny", "model.dim=16", "model.ffn_dim=32", "model.num_heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "model.max_positions=64"),
    *("sink=[jsonl]", "device=cpu", "precision=fp32", "observe.threads=1", "batch_size=6"),
    *("schedule.warmup=4", "optim.lr=0.01", "budget.steps=12", "validate.every=4"),
    *("observe.log_every=2", "observe.checkpoint_every=3"),
)
QUICK = ("validate.best=false", "task.test_search.beam=1")
"""For runs whose scores do not matter."""

RESUMED = (
    *("norm=bn", "placement=admin"),
    *("validate.average=2", "validate.recalibration_batches=3"),
)
"""A run with everything a checkpoint must carry: dropout, running statistics, averaged weights,
values of a calibration pass before the first step."""


def write_corpus(folder: Path, *, train: int = 40, seed: int = 1) -> Path:
    """Write sentences of 5 to 13 words, different in each split, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    for split, size in (("train", train), ("valid", 7), ("test", 6)):
        pairs = [_sentence(rng) for _ in range(size)]
        for side, language in enumerate(("de", "en")):
            text = "".join(pair[side] + "\n" for pair in pairs)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return folder


def _sentence(rng: random.Random) -> tuple[str, str]:
    clauses = []
    for _ in range(rng.randint(1, 2)):
        subject, verb = rng.choice(_NOUNS).split(), rng.choice(_VERBS).split()
        other, place = rng.choice(_NOUNS).split(), rng.choice(_PLACES)
        german = f"der {subject[0]} {verb[0]} den {other[0]} {place[0]}"
        english = f"the {subject[1]} {verb[1]} the {other[1]} {place[1]}"
        clauses.append((german, english))
    return " und ".join(c[0] for c in clauses) + ".", " and ".join(c[1] for c in clauses) + "."


def tiny(corpus: Path, runs: Path, *overrides: str) -> list[str]:
    """Return the overrides of a tiny run; later ones take precedence."""
    places = (f"data_dir={corpus}", f"runs_dir={runs}")
    merged: dict[str, str] = {}
    for override in (*SETTINGS, *places, *overrides):
        merged[override.split("=", 1)[0]] = override
    return list(merged.values())


@dataclass(frozen=True)
class Kill:
    """The moment of a kill: at the `call`-th call of `where`, a dotted name of the package.

    `within` is for functions that write to a file: it means after half of the bytes are written.
    """

    where: str
    call: int
    when: Literal["before", "within", "after"] = "before"
    number: signal.Signals = signal.SIGKILL

    def install(self) -> None:
        """Replace the function with one that sends the signal to its own process."""
        place, _, name = self.where.rpartition(".")
        owner = pkgutil.resolve_name(place)
        original = getattr(owner, name)
        calls = 0

        def wrapped(*arguments: Any, **values: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls != self.call:
                return original(*arguments, **values)
            if self.when == "before":
                os.kill(os.getpid(), self.number)
            if self.when == "within":
                return self._half(original, *arguments)
            result = original(*arguments, **values)
            if self.when == "after":
                os.kill(os.getpid(), self.number)
            return result

        setattr(owner, name, wrapped)

    def _half(self, save: Callable[..., object], content: object, file: IO[bytes]) -> None:
        import io

        whole = io.BytesIO()
        save(content, whole)
        file.write(whole.getvalue()[: whole.tell() // 2])
        file.flush()
        os.kill(os.getpid(), self.number)


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit status (minus the signal if it was killed) and its output."""

    status: int | None
    output: str


class RunProcess:
    """`normlab ARGV` in a separate process."""

    def __init__(self, argv: Sequence[str], log: Path, *, prepare: Callable[[], object]):
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.process = fork_server().Process(target=_carry_out, args=(list(argv), log, prepare))
        self.process.start()

    def wait(self, seconds: float = 60) -> Ended:
        """Wait for the end; any pause of all its processes (SIGSTOP) counts as one second."""
        for _ in range(math.ceil(seconds)):
            self.process.join(1)
            if not self.process.is_alive():
                break
        else:
            self.process.kill()
            raise AssertionError(f"still running:\n{self.log.read_text(encoding='utf-8')}")
        return Ended(self.process.exitcode, self.log.read_text(encoding="utf-8"))

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)


def nothing() -> None:
    """Prepare nothing."""


def run(argv: Sequence[str], log: Path, prepare: Callable[[], object] = nothing) -> Ended:
    """Run `normlab ARGV` in a separate process, after calling `prepare` there."""
    return RunProcess(argv, log, prepare=prepare).wait()


def fork_server() -> Any:
    """Return the context that forks processes from a server that has imported torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.tiny_runs_preload"])
    return context


def _carry_out(argv: list[str], log: Path, prepare: Callable[[], object]) -> None:
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(opened, 1)
    os.dup2(opened, 2)
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    from normlab.cli import main

    prepare()
    sys.exit(main(argv))
