"""Decides what a run leaves behind: `RunRecord` and its fixed-bytes JSON form `record.json`.

Figures of tables are read from here and from nowhere else. Names of scores are paths such as
`test/bleu`; every figure of a probe is a path `stability/<probe>/<name>`. How numbers that are not
finite are written is decided in `canonical.py`. Readers ignore keys they do not know, and bring
older formats up to date by `migration.py`.

A list of ten thousand runs is to answer at once, so a record is decoded and checked against the
types below in one pass (msgspec). What that refuses is read once more, key by key, for a message
that says what is wrong.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import asdict

from normlab.records.canonical import plain
from normlab.records.files import unreadable
from normlab.records.fingerprint import fingerprint
from normlab.records.migration import FORMAT, NewerFormatError, migrated
from normlab.records.node import Column, DamagedError, Node, Status
from normlab.records.shape import misshapen, unfit_name

MEND_RUN = "remove the file and start the run again"
if TYPE_CHECKING:
    Number = float
else:  # in the file, which has no other way to write what is not finite
    Number = float | Literal["nan", "inf", "-inf"]


@dataclass(frozen=True, slots=True)
class Score:
    """One figure: its value, its direction, what it was counted over and how it was computed.

    `length_ratio` has no better direction, since 1 is best; it is recorded as `higher_is_better`,
    like the brevity penalty that follows from it.
    """

    value: Number
    higher_is_better: bool
    n: int
    signature: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.value, str):
            object.__setattr__(self, "value", float(self.value))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, after which step, and for a divergence the first layer not finite."""

    status: Status
    step: int
    reason: str | None = None
    layer: str | None = None


@dataclass(frozen=True, slots=True)
class BudgetUsed:
    """What a run cost: optimizer steps, target tokens, seconds, their rate and peak memory."""

    steps: int
    tokens: int
    wall_seconds: float
    tokens_per_second: float
    peak_memory_bytes: int


@dataclass(frozen=True)
class RunRecord:
    """The evidence of one run of one config with one seed.

    `last_steps` is kept of a run that diverged: what its last steps looked like, as columns by the
    names of the log (`step`, `train/loss`, `stability/...`), None where nothing was measured.
    `weights` has the step of all weights that were tested, by their names (`normlab.train.tested`);
    it is empty in records of before, whose test was of the weights best by `validate.select_by`.
    `floors` has what each score of the test is worth without learning (`Task.floors`).
    `milestones` has the last steps of the parts of norms' own schedules, such as
    `PowerNorm/warmup`, which a config gives as shares of the run.
    Records that were read may share their `environment` and `data`: these are not to be changed.
    """

    run_id: str
    seed: int
    config: dict[str, Any]
    outcome: Outcome
    scores: dict[str, Score]
    stability: dict[str, float]
    budget: BudgetUsed
    environment: dict[str, Any]
    data: dict[str, Any]
    params: int
    last_steps: dict[str, list[float | None]] = field(
        default_factory=dict[str, "list[float | None]"]
    )
    weights: dict[str, int] = field(default_factory=dict[str, int])
    floors: dict[str, float] = field(default_factory=dict[str, float])
    milestones: dict[str, int] = field(default_factory=dict[str, int])

    def choice(self, group: str) -> str | None:
        """Return the option chosen in a config group, or None where none was."""
        value = self.config.get("choices", {}).get(group)
        return None if value is None else str(value)

    @cached_property
    def fingerprint(self) -> str:
        """Return the hash of what makes the experiment, the same for all its seeds."""
        return fingerprint(self.config)

    @property
    def finished(self) -> bool:
        """Tell whether the run reached its end, so that its scores may be averaged."""
        return self.outcome.status == "finished"

    @property
    def tested(self) -> str | None:
        """Return the name of the weights that `test/bleu` is of; None in records of before."""
        return next((name for name in ("average", "best", "last") if name in self.weights), None)

    def figure(self, name: str) -> Score | None:
        """Return a score, or a probe's figure in the form of one, of which less is better."""
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

        Those of a part or under another condition have longer paths.
        """
        return {name: score for name, score in self.scores.items() if name.count("/") == 1}

    def _repr_html_(self) -> str:
        """What a notebook shows: how the run ended, and its main scores."""
        shown = {"outcome": f"{self.outcome.status} at step {self.outcome.step}"}
        shown |= {name: f"{score.value:.4g}" for name, score in self.main_scores.items()}
        rows = (f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in shown.items())
        return f"<b>{escape(self.run_id)}</b><table>{''.join(rows)}</table>"

    def to_json(self) -> str:
        """Render to fixed bytes: sorted keys, indent 1, ASCII, one newline at the end."""
        content = plain({"format": FORMAT, **dataclasses.asdict(self)})
        return json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, *, origin: str, mend: str = MEND_RUN) -> RunRecord:
        """Read a record; raises `ValueError` naming `origin`, the key and what to do, `mend`."""
        try:
            return cls._read(text)
        except NewerFormatError as newer:
            raise ValueError(f"{origin}: {newer}") from None
        except DamagedError as damage:
            raise ValueError(f"{origin}: {damage}; {mend}") from None

    @classmethod
    def _read(cls, text: str | bytes) -> RunRecord:
        if (problem := unreadable(text.encode() if isinstance(text, str) else text)) is not None:
            raise DamagedError(f"damaged record, {problem}")
        try:
            file = _decoded(text)
            environment = _shared("environment", bytes(file.environment))
            data = _shared("data", bytes(file.data))
        except (msgspec.MsgspecError, ValueError):
            return cls._read_by_key(text)
        _check_shape("config", file.config)
        _check_name(file.run_id)
        return cls(
            run_id=file.run_id,
            seed=file.seed,
            config=file.config,
            outcome=file.outcome,
            scores=file.scores,
            stability=_finite_or_not(file.stability),
            budget=file.budget,
            environment=environment,
            data=data,
            params=file.params,
            last_steps={name: _column(values) for name, values in file.last_steps.items()},
            weights=file.weights,
            floors=_finite_or_not(file.floors),
            milestones=file.milestones,
        )

    @classmethod
    def _read_by_key(cls, text: str | bytes) -> RunRecord:
        try:
            content = json.loads(text, parse_constant=_no_constant)
        except json.JSONDecodeError as error:
            raise DamagedError(
                f"damaged record, not JSON at line {error.lineno}: {error.msg}"
            ) from None
        except UnicodeDecodeError as error:
            raise DamagedError(f"damaged record, not UTF-8 at byte {error.start}") from None
        except (ValueError, RecursionError) as error:
            raise DamagedError(f"damaged record: {error}") from None
        node = Node(content)
        node.text("format")
        try:
            node = Node(migrated(content))
        except NewerFormatError:
            raise
        except ValueError as error:
            raise DamagedError(f"damaged record, {error}") from None
        for part in ("config", "environment", "data"):
            _check_shape(part, node.mapping(part))
        _check_name(node.text("run_id"))
        scores, outcome, budget = node.node("scores"), node.node("outcome"), node.node("budget")
        stability = node.node("stability")
        weights, floors = node.node("weights"), node.node("floors")
        milestones = node.node("milestones")
        return cls(
            run_id=node.text("run_id"),
            seed=node.integer("seed"),
            config=node.mapping("config"),
            outcome=Outcome(
                status=outcome.status("status"),
                step=outcome.integer("step"),
                reason=outcome.optional_text("reason"),
                layer=outcome.optional_text("layer"),
            ),
            scores={name: _score(scores.node(name)) for name in scores.content},
            stability={name: stability.real(name) for name in stability.content},
            budget=BudgetUsed(
                steps=budget.integer("steps"),
                tokens=budget.integer("tokens"),
                wall_seconds=budget.real("wall_seconds"),
                tokens_per_second=budget.real("tokens_per_second"),
                peak_memory_bytes=budget.integer("peak_memory_bytes"),
            ),
            environment=node.mapping("environment"),
            data=node.mapping("data"),
            params=node.integer("params"),
            last_steps=node.columns("last_steps"),
            weights={name: weights.integer(name) for name in weights.content},
            floors={name: floors.real(name) for name in floors.content},
            milestones={name: milestones.integer(name) for name in milestones.content},
        )


class _Parts(msgspec.Struct, kw_only=True):
    """The keys that a file of any format has, their types those of `RunRecord`."""

    run_id: str
    seed: int
    config: dict[str, Any]
    outcome: Outcome
    scores: dict[str, Score]
    stability: dict[str, Number]
    budget: BudgetUsed
    environment: msgspec.Raw
    data: msgspec.Raw
    params: int


class _File(_Parts, kw_only=True):
    format: Literal["normlab.record/2"]
    last_steps: dict[str, list[Number | None]]
    weights: dict[str, int]
    floors: dict[str, Number]
    milestones: dict[str, int]


class _OlderFile(_Parts, kw_only=True):
    format: str
    last_steps: dict[str, list[Number | None]] | msgspec.UnsetType = msgspec.UNSET
    weights: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    floors: dict[str, Number] | msgspec.UnsetType = msgspec.UNSET


def _decoded(text: str | bytes) -> _File:
    """Decode a file of any format that there is; raises what msgspec does, or ValueError."""
    try:
        return _DECODER.decode(text)
    except msgspec.ValidationError:
        older = asdict(_OLDER_DECODER.decode(text))
        if older["format"] == FORMAT:
            raise
        known = {key: value for key, value in older.items() if value is not msgspec.UNSET}
        return _File(**migrated(known))


_DECODER = msgspec.json.Decoder(_File)
_OLDER_DECODER = msgspec.json.Decoder(_OlderFile)
_MAPPING = msgspec.json.Decoder(dict[str, Any])


@lru_cache(maxsize=1024)
def _shared(part: str, text: bytes) -> dict[str, Any]:
    """Decode what many runs have alike, once for all of them: a third of the memory they take."""
    content = _MAPPING.decode(text)
    _check_shape(part, content)
    return content


def _check_shape(part: str, content: dict[str, Any]) -> None:
    if (problem := misshapen(part, content)) is not None:
        raise DamagedError(f"damaged record, {problem}")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _check_name(run_id: str) -> None:
    if unfit_name(run_id):
        raise DamagedError(
            f"damaged record, run_id: {run_id!r:.60} cannot name a folder: letters, digits and "
            "._+@=,- can"
        )


def _finite_or_not(figures: dict[str, Number]) -> dict[str, float]:
    if str not in map(type, figures.values()):
        return figures
    return {name: float(value) for name, value in figures.items()}


def _column(values: list[Number | None]) -> Column:
    return [None if value is None else float(value) for value in values]


def _score(node: Node) -> Score:
    return Score(
        value=node.real("value"),
        higher_is_better=node.boolean("higher_is_better"),
        n=node.integer("n"),
        signature=node.optional_text("signature"),
    )
