"""What a run leaves behind: `RunRecord`, and its JSON form of fixed bytes.

Every number of a table is read from here. Names of scores are paths such as `test/bleu`, and values
of probes are paths such as `stability/<probe>/<name>`. JSON has no NaN and no infinities: they are
written as the strings `"nan"`, `"inf"` and `"-inf"` (`canonical.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, cast, get_args

import msgspec
from msgspec.structs import asdict, force_setattr

from normlab.records.canonical import plain
from normlab.records.files import unreadable

FORMAT = "normlab.record/3"
MEND_RUN = "remove the file and start the run again"
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


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
        """What a budget's tokens are: `tokens`, or the task's own word for what it counts."""
        return str(self.data.get("unit", "tokens"))

    @property
    def loss_unit(self) -> str:
        """What its losses are in, such as `nats per picture`; of masked models as of others."""
        return f"nats per {self.unit.removesuffix('s')}"

    @property
    def main_scores(self) -> dict[str, Score]:
        """The scores of whole splits under the run's own settings, such as `test/bleu`.

        Scores of a part or under another condition have longer paths.
        """
        return {name: score for name, score in self.scores.items() if name.count("/") == 1}

    def _repr_html_(self) -> str:
        """What a notebook shows: how the run ended, and its main scores."""
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
        try:
            found = _DECODER.decode(content)
            for part, shape in _SHAPES.items():
                msgspec.convert(getattr(found, part), shape)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            problem = _problem(content, error)
            raise ValueError(f"{origin}: damaged record, {problem}; {mend}") from None
        fields = {name: getattr(found, name) for name in cls.__struct_fields__}
        return cls(**fields)


class _File(RunRecord, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record as the file has it, with the format that it is written in."""

    format: Literal["normlab.record/3"]


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
_ALLOWED = {"format": FORMAT, "outcome.status": " or ".join(get_args(Status))}
_DECODER = msgspec.json.Decoder(_File)


def _as_numbers(values: dict[str, Number]) -> dict[str, float]:
    if str not in map(type, values.values()):
        return values
    return {name: float(value) for name, value in values.items()}


def _problem(text: bytes, error: Exception) -> str:
    """Say what is wrong with a record's text: the key, its value and what was expected there."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    if not isinstance(error, msgspec.ValidationError):
        return f"not JSON: {error}"
    content = json.loads(text)
    for part, shape in {"": _File, **_SHAPES}.items():
        try:
            msgspec.convert(content[part] if part else content, shape)
        except msgspec.ValidationError as found:
            said, _, place = str(found).partition(" - at ")
            keys = _keys(content[part] if part else content, shape, place.strip("`$"))
            where = ".".join([part] * bool(part) + [str(key) for key in keys])
            value: Any = content
            for key in [*([part] if part else []), *keys]:
                value = value[key]
            if "enum" in said:
                said = f"expected {_ALLOWED.get(where, 'a number')}"
            shown = "" if isinstance(value, dict) else f", found {value!r:.60}"
            return f"{where or 'the file'}: {said[0].lower()}{said[1:]}{shown}"
    return str(error)


def _keys(content: Any, shape: Any, place: str) -> list[str | int]:
    """Turn msgspec's place of an error, such as `.scores[...].value`, into keys.

    It does not name the key of a mapping: each is tried alone.
    """
    keys: list[str | int] = []
    node: Any = content
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", place):
        key: str | int = name or (int(index) if index != "..." else _culprit(content, shape, keys))
        if isinstance(node, dict) and key not in node:
            break
        node = cast("Any", node)[key]
        keys.append(key)
    return keys


def _culprit(content: Any, shape: Any, keys: list[str | int]) -> str:
    """Return the key of the mapping at `keys` without which the mapping would be right."""
    node = content
    for key in keys:
        node = node[key]
    entries = cast("dict[str, Any]", dict(node))
    for key, value in entries.items():
        node.clear()
        node[key] = value
        try:
            msgspec.convert(content, shape)
        except msgspec.ValidationError as error:
            if "[...]" in str(error):
                node.update(entries)
                return key
    node.update(entries)
    return next(iter(entries))
