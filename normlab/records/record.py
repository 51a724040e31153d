"""What a run leaves behind: `RunRecord`, and its JSON form of fixed bytes.

Every number of a table is read from here. Names of scores are paths such as `test/bleu`, and values
of probes are paths such as `stability/<probe>/<name>`. JSON has no NaN and no infinities: they are
written as the strings `"nan"`, `"inf"` and `"-inf"`. Readers turn these back into floats wherever a
number is expected (`number`); elsewhere, as in a config, they stay strings.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, cast

import msgspec
from msgspec.structs import asdict, force_setattr

from normlab.records.files import unreadable

FORMAT = "normlab.record/3"
MEND_RUN = "remove the file and start the run again"
# Where files are is no part of an experiment, at any depth; a corpus has a seed, too.
_FOLDERS = frozenset({"data_dir", "runs_dir", "run_dir"})
_NOT_HASHED = frozenset({"observe", "seed", "choices", "device"}) | _FOLDERS
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode

Parts = Mapping[str, str]
"""What makes an experiment: the dotted keys of its config, sorted, and their values as JSON."""
Status = Literal["finished", "diverged", "interrupted", "failed"]
if TYPE_CHECKING:
    Number = float
    Name = str
else:  # in the file, which has no other way to write what is not finite
    Number = float | Literal["nan", "inf", "-inf"]
    # Published records lie in folders of these names.
    Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][\w.+@=,-]{0,250}\Z")]


class Score(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One score: its value, its direction, what it was counted over and how it was computed.

    `length_ratio` has no better direction, since 1 is best; it is recorded as `higher_is_better`,
    like the brevity penalty that follows from it.
    """

    value: Number
    higher_is_better: bool
    n: int
    signature: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.value, str):
            force_setattr(self, "value", float(self.value))


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a run ended, after which step, and for a divergence the first layer not finite."""

    status: Status
    step: int
    reason: str | None = None
    layer: str | None = None


class BudgetUsed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run cost: optimizer steps, target tokens, seconds, their rate and peak memory."""

    steps: int
    tokens: int
    wall_seconds: float
    tokens_per_second: float
    peak_memory_bytes: int


class RunRecord(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    dict=True,
    tag_field="format",
    tag=FORMAT,
):
    """The evidence of one run of one config with one seed.

    `fingerprint` is the hash of what makes the experiment, the same for all its seeds. `numerics`
    is the `NUMERICS` of the code that made the run, or a label for runs older than that number;
    `own_norms` has the hash of each norm that is not normlab's own. `last_steps` is
    kept of a run that diverged: what its last steps looked like, as columns by the names of the log
    (`step`, `train/loss`, `stability/...`), None where nothing was measured. `weights` has the step
    of all weights that were tested, by their names (`normlab.train.tested`); it is empty where only
    the weights best by `validate.select_by` were. `floors` has what each score of the test is worth
    without learning (`Task.floors`). `milestones` has the last steps of the parts of norms' own
    schedules, such as `PowerNorm/warmup`, which a config gives as shares of the run. `sees_future`
    names the norms that show a decoder or a language model the tokens that it predicts; the file
    has it where there are any.
    """

    run_id: Name
    fingerprint: str
    seed: int
    numerics: int | str
    own_norms: dict[str, str] = {}
    config: dict[str, Any]
    outcome: Outcome
    scores: dict[str, Score]
    stability: dict[str, Number]
    budget: BudgetUsed
    environment: dict[str, Any]
    data: dict[str, Any]
    params: int
    last_steps: dict[str, list[Number | None]] = {}
    weights: dict[str, int] = {}
    floors: dict[str, Number] = {}
    milestones: dict[str, int] = {}
    sees_future: list[str] = []

    def __post_init__(self) -> None:
        force_setattr(self, "stability", _as_numbers(self.stability))
        force_setattr(self, "floors", _as_numbers(self.floors))
        if self.last_steps:
            columns = {
                name: [None if value is None else float(value) for value in values]
                for name, values in self.last_steps.items()
            }
            force_setattr(self, "last_steps", columns)

    @cached_property
    def parts(self) -> Parts:
        """Return what makes the experiment, to be compared with others many times."""
        return parts(self.config)

    @property
    def made_by(self) -> tuple[int | str, Mapping[str, str]]:
        """Return the numerics and the norms of a user's own that made the run."""
        return self.numerics, self.own_norms

    def choice(self, group: str) -> str | None:
        """Return the option chosen in a config group, or None where none was."""
        value = self.config.get("choices", {}).get(group)
        return None if value is None else str(value)

    @property
    def finished(self) -> bool:
        """Tell whether the run reached its end, so that its scores may be averaged."""
        return self.outcome.status == "finished"

    @property
    def tested(self) -> str | None:
        """Return the name of the weights that `test/bleu` is of; None where it is not known."""
        return next((name for name in ("average", "best", "last") if name in self.weights), None)

    def figure(self, name: str) -> Score | None:
        """Return a score, or a probe's value in the form of one, of which less is better."""
        if name in self.stability:
            return Score(self.stability[name], False, 1)
        return self.scores.get(name)

    @property
    def unit(self) -> str:
        """Return what a budget's tokens are: `tokens`, or the task's word for what it counts."""
        return str(self.data.get("unit", "tokens"))

    @property
    def loss_unit(self) -> str:
        """Return the unit of the losses, such as `nats per picture`; also for masked models."""
        return f"nats per {self.unit.removesuffix('s')}"

    @property
    def main_scores(self) -> dict[str, Score]:
        """Return the scores of whole splits under the run's own settings, such as `test/bleu`.

        Scores of a part or under another condition have longer paths.
        """
        return {name: score for name, score in self.scores.items() if name.count("/") == 1}

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how the run ended, and its main scores."""
        shown = {"outcome": f"{self.outcome.status} at step {self.outcome.step}"}
        shown |= {name: f"{score.value:.4g}" for name, score in self.main_scores.items()}
        rows = (f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in shown.items())
        return f"<b>{escape(self.run_id)}</b><table>{''.join(rows)}</table>"

    def to_json(self, *, indent: int | None = 1) -> str:
        """Render to fixed bytes: sorted keys, ASCII, one newline at the end."""
        fields = asdict(self)
        if not self.sees_future:
            del fields["sees_future"]
        content = plain({"format": FORMAT, **fields})
        separators = (",", ":") if indent is None else None
        text = json.dumps(
            content, sort_keys=True, indent=indent, separators=separators, allow_nan=False
        )
        return text + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, *, origin: str, mend: str = MEND_RUN) -> RunRecord:
        """Read a record; raises `ValueError` naming `origin`, the key, its value and the cure."""
        content = text.encode() if isinstance(text, str) else text
        if (problem := unreadable(content)) is not None:
            raise ValueError(f"{origin}: damaged record, {problem}; {mend}")
        part = ""
        try:
            found = _DECODER.decode(content)
            for part, shape in _SHAPES.items():
                msgspec.convert(getattr(found, part), shape)
        except msgspec.ValidationError as error:
            said, _, place = str(error).partition(" - at ")
            where = (part + place.strip("`$")).removeprefix(".") or "the file"
            problem = f"{where}: {said[0].lower()}{said[1:]}"
        except UnicodeDecodeError as error:
            problem = f"not UTF-8 at byte {error.start}"
        except ValueError as error:
            problem = f"not JSON: {error}"
        else:
            return found
        raise ValueError(f"{origin}: damaged record, {problem}; {mend}")


class _Config(TypedDict, total=False):
    """Keys that lists and tables read of every config, which may be a stranger's."""

    choices: dict[str, str | None]
    seed: int
    batch_size: int | None
    max_tokens: int | None
    accumulate: int | None
    precision: str | None
    device: str | None


class _Environment(TypedDict, total=False):
    commit: str | None
    device: str | None
    device_type: str | None
    precision: str | None
    instruction_set: str | None
    versions: dict[str, str | None]
    world_size: int | None
    threads: int | None
    dirty: bool | None


class _Data(TypedDict, total=False):
    source: str | None
    label: str | None
    language: str | None
    licence: str | None
    languages: list[str]
    checksums: dict[str, Any]
    sizes: dict[str, Any]


_SHAPES = {"config": _Config, "environment": _Environment, "data": _Data}
_DECODER = msgspec.json.Decoder(RunRecord)


def _as_numbers(values: dict[str, Number]) -> dict[str, float]:
    if str not in map(type, values.values()):
        return values
    return {name: float(value) for name, value in values.items()}


def plain(value: object, key: str = "") -> Any:
    """Turn a nested value into what JSON can hold: dict, list, str, int, finite float, bool, None.

    Tuples become lists and numpy scalars numbers. Raises `TypeError` naming the dotted key of
    anything else.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return [plain(item, f"{key}[{index}]") for index, item in enumerate(items)]
    if isinstance(value, msgspec.Struct):
        value = asdict(value)
    if not isinstance(value, dict):
        raise TypeError(
            f"{key or 'value'}: a {type(value).__name__} cannot be recorded; give a plain value "
            "(dict, list, str, int, float, bool or None)"
        )
    result: dict[str, Any] = {}
    for name, item in cast("dict[object, object]", value).items():
        if not isinstance(name, str):
            raise TypeError(f"{key or 'value'}: key {name!r} is not a string")
        result[name] = plain(item, f"{key}.{name}" if key else name)
    return result


def number(value: object) -> float | None:
    """Read a number that `plain` wrote, or return None where there is none.

    A whole number that is too large for a float is none.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # a whole number of hundreds of digits
            return None
    return float(value) if isinstance(value, str) and value in ("nan", "inf", "-inf") else None


def fingerprint(config: Mapping[str, Any]) -> str:
    """Hash what makes the experiment: 10 hex digits of SHA-256 over its canonical JSON.

    Left out are the seed, the `device`, the `observe` node (probes, sinks, intervals), the
    `choices` (each node names its `option`) and, at any depth, the folders `data_dir`, `runs_dir`
    and `run_dir`. The data's checksums are in the record.
    """
    return hashlib.sha256(_canonical(_experiment(config)).encode()).hexdigest()[:10]


def parts(config: Mapping[str, Any]) -> Parts:
    """Return what is hashed of a config, one entry per dotted key; a node without keys is one."""
    return dict(sorted(_leaves("", _experiment(config))))


def _experiment(config: Mapping[str, Any]) -> Any:
    return _hashed(plain({k: v for k, v in config.items() if k not in _NOT_HASHED}))


def _hashed(value: Any) -> Any:
    if isinstance(value, dict):
        node = cast("dict[str, Any]", value)
        return {key: _hashed(item) for key, item in node.items() if key not in _FOLDERS}
    if isinstance(value, list):
        return [_hashed(item) for item in cast("list[Any]", value)]
    # `lr=1` and `lr=1.0` are one experiment, whichever of them a YAML parser makes of it.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _leaves(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, item in cast("dict[str, Any]", value).items():
            yield from _leaves(f"{key}.{name}" if key else name, item)
    elif key:
        yield key, _canonical(value)
