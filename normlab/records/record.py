"""The record of a run, `RunRecord`, and its JSON form with reproducible bytes.

Every number in a table is read from records. Names of scores are paths such as `test/bleu`, and
names of probe metrics are `stability/<probe>/<name>`. JSON has no NaN and no infinities, so they
are written as strings: `"nan"`, `"inf"` and `"-inf"`. Readers convert these strings to floats where
a number is expected.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from numbers import Integral, Real
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import msgspec
from msgspec.structs import asdict

from normlab.config.schema import FOLDERS, NORM_KEYS, NOT_HASHED, leaves
from normlab.errors import UserError
from normlab.records.code import commit_text

if TYPE_CHECKING:
    from normlab.records.code import MadeBy

FORMAT = "normlab.record/3"
DISTURBANCES = ("noise", "weight_noise", "brightness")  # tests of `observe.test_<name>`
MEND_RUN = "remove the file and start the run again"
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode

MAIN_SCORES = (
    *("bleu", "chrf", "mlm_accuracy", "nsp_accuracy", "accuracy"),
    *("bits_per_character", "perplexity", "loss"),
)
"""The scores that tables and dashboards show, without the split before the name (`test/`), in the
order in which the console prints them."""
Parts = Mapping[str, str]
"""The dotted keys of an experiment's config, sorted, with their values as JSON."""
Row = dict[str, int | float]
"""A logged row, with the step and the metrics at that step."""
Status = Literal["finished", "diverged", "interrupted", "failed"]
# This is safe as a file name.
_Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][\w.+@=,-]{0,250}\Z")]


PROBE_PREFIX = "stability"
"""The first part of the names of probe metrics."""


def is_probe_metric(name: str) -> bool:
    """Return whether a score is a probe's metric, `stability/<probe>/<name>`."""
    return name.startswith(f"{PROBE_PREFIX}/")


class Score(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A score: its value, direction, number of items, and how it was computed.

    For `length_ratio` neither direction is better, because 1 is best. It is recorded as
    `higher_is_better`, like the brevity penalty, which is computed from it.
    """

    value: float
    higher_is_better: bool
    n: Annotated[int, msgspec.Meta(ge=0)]
    signature: str | None = None


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How and after which step a run ended, and the first non-finite layer if it diverged."""

    status: Status
    step: int
    reason: str | None = None
    layer: str | None = None

    @property
    def ending(self) -> str:
        """Where the run ended and why, such as `at step 40, its limit`."""
        at = f"at step {self.step:,}"
        if self.status == "finished" and self.reason is not None:
            words = {"steps": "its limit", "patience": "as its score stalled"}
            return f"{at}, {words.get(self.reason, f'its limit in {self.reason}')}"
        why = " in ".join(part for part in (self.reason, self.layer) if part)
        return f"{at} ({why})" if why else at


class BudgetUsed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cost of a run: optimizer steps, target tokens, time, speed and peak memory."""

    steps: int
    tokens: int
    wall_seconds: float
    tokens_per_second: float
    peak_memory_bytes: int


class RunRecord(
    msgspec.Struct, frozen=True, kw_only=True, dict=True, tag_field="format", tag=FORMAT
):
    """The evidence of one run of one config with one seed.

    `fingerprint` is the hash that identifies the experiment, which is the same for all its seeds.
    `numerics` is the `NUMERICS` of the code that made the run, or a label for runs older than that
    constant and for runs of mixed code (`normlab.records.code`). `own_norms` has the file and hash
    of each of the user's own norms and other options. `last_steps` has the last logged rows of a
    run that diverged, as columns. `weights` maps the names of all tested weights to their steps; it
    is empty if only the best weights by `validate.select_by` were tested. `floors` has the
    untrained baseline of each test score (`Task.baselines`). `milestones` has the last step of each
    phase of a norm, such as `PowerNorm/warmup`. `sees_future` lists the norms that leak future
    tokens to a decoder or a language model. `first_loss` is the training loss of the first step,
    before its update.
    """

    run_id: _Name
    fingerprint: str
    seed: int
    numerics: int | str
    own_norms: dict[str, str] = {}
    config: dict[str, Any]
    outcome: Outcome
    scores: dict[str, Score]
    stability: dict[str, float]
    budget: BudgetUsed
    environment: dict[str, Any]
    data: dict[str, Any]
    params: int
    last_steps: dict[str, list[float | None]] = {}
    weights: dict[str, int] = {}
    floors: dict[str, float] = {}
    milestones: dict[str, int] = {}
    sees_future: list[str] = []
    first_loss: float | None = None

    def __repr__(self) -> str:
        return f"<{self.run_id}: {self.outcome.status} at step {self.outcome.step}>"

    @cached_property
    def parts(self) -> Parts:
        return parts(self.config)

    @property
    def made_by(self) -> MadeBy:
        return self.numerics, self.own_norms

    @property
    def commits(self) -> list[str]:
        """The commits at which the run was trained, in order."""
        last = self.environment.get("commit")
        return self.environment.get("commits") or [str(last)]

    @property
    def commit_names(self) -> list[str]:
        """The commits as text, with ` with changes` added if the code differed from them."""
        return [commit_text(commit, self.environment.get("dirty")) for commit in self.commits]

    @property
    def label_smoothing(self) -> float:
        """The label smoothing that is part of `loss` but not of perplexity."""
        task: Mapping[str, Any] = self.config.get("task") or {}
        return float(task.get("label_smoothing") or 0.0)

    def choice(self, group: str) -> str | None:
        return self.config.get("choices", {}).get(group)

    @property
    def finished(self) -> bool:
        return self.outcome.status == "finished"

    def metric(self, name: str) -> Score | None:
        """Return a score, or a probe's metric as a score.

        For a probe's metric, neither direction is better (see the glossary). Its `higher_is_better`
        is False, because an endpoint that compares it asks whether it is less.
        """
        if name in self.stability:
            return Score(self.stability[name], False, 1)
        return self.scores.get(name)

    @property
    def unit(self) -> str:
        """The unit of the token budget: `tokens`, or the unit of the task's examples."""
        return str(self.data.get("unit", "tokens"))

    @property
    def main_scores(self) -> dict[str, Score]:
        """The scores of whole splits under the run's own settings, with paths like `test/bleu`."""
        return {name: score for name, score in self.scores.items() if name.count("/") == 1}

    def to_json(self) -> str:
        """Return reproducible JSON: sorted keys, ASCII, one newline at the end."""
        fields = {"format": FORMAT, **asdict(self)}
        for name in ("sees_future", "first_loss"):
            if not fields[name]:
                del fields[name]
        return json.dumps(plain(fields), sort_keys=True, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, *, origin: str, mend: str = MEND_RUN) -> RunRecord:
        """Read a record. If it is damaged, raise `UserError` with `origin`, key, value and fix."""
        part = ""
        try:
            record = _DECODER.decode(text)
            for part, shape in _SHAPES.items():
                msgspec.convert(getattr(record, part), shape)
            return record
        except msgspec.ValidationError as error:
            reason, _, place = str(error).partition(" - at ")
            where = (part + place.strip("`$")).removeprefix(".") or "the file"
            problem = f"{where}: {reason[0].lower()}{reason[1:]}"
        except (ValueError, RecursionError) as error:
            problem = f"not JSON: {error}"
        raise UserError(f"{origin} is a damaged record ({problem}); {mend}")


_Text, _Whole, _Texts, _Dict = str | None, int | None, dict[str, str | None], dict[str, Any]


def _node(title: str, **kinds: Any) -> Any:
    """Return the type of a node of a config. Each key may be missing or null."""
    return msgspec.defstruct(title, [(key, kind | None, None) for key, kind in kinds.items()])


# The types of the keys that lists and tables read from every record (which may be untrusted).
_READ: Sequence[tuple[str, Any, str]] = (
    ("config", _Text, "precision device"),
    ("config", _Whole, "batch_size max_tokens accumulate"),
    ("config", _Texts, "choices"),
    ("config", int, "seed"),
    ("config", _node("task", label_smoothing=float, corpus=_Dict), "task"),
    ("config", _node("observe", name=str, tags=list[str], study=str, test_seen=int), "observe"),
    ("config", _node("validate", select_by=str, limit=int), "validate"),
    ("config", _Dict, "budget model placement optim schedule"),
    ("config", _Dict | None, " ".join(NORM_KEYS)),
    ("config", dict[str, _Dict] | None, "sites"),
    ("environment", _Text, "commit device device_type precision instruction_set"),
    ("environment", _Whole, "world_size threads"),
    ("environment", _Texts, "versions"),
    ("environment", bool | None, "dirty"),
    ("environment", list[str], "commits"),
    ("data", _Text, "source label language licence"),
    ("data", list[str], "languages"),
    ("data", _Dict, "checksums sizes"),
)
_FIELDS = [(part, (key, kind, None)) for part, kind, keys in _READ for key in keys.split()]
_SHAPES = {
    part: msgspec.defstruct(part, [field for where, field in _FIELDS if where == part])
    for part in ("config", "environment", "data")
}
# Not strict: the strings "nan" and "inf" are accepted as numbers.
_DECODER = msgspec.json.Decoder(RunRecord, strict=False)


_PLAIN = frozenset({type(None), bool, int, str})


def plain(value: Any) -> Any:
    """Convert a nested value to JSON types: dict, list, str, int, finite float, bool, None.

    Tuples become lists, numpy scalars become numbers, and NaN and infinities become strings. Raises
    `TypeError` for values of other types.
    """
    if type(value) in _PLAIN or isinstance(value, str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("list[Any]", value)]
    node = cast("dict[Any, Any]", asdict(value) if isinstance(value, msgspec.Struct) else value)
    if not isinstance(cast("object", node), dict) or not all(isinstance(key, str) for key in node):
        raise TypeError(f"{value!r:.80} cannot be recorded as JSON")
    return {key: plain(item) for key, item in node.items()}


def read_number(value: object) -> float | None:
    """Return a number written by `plain` as a float, or None for other values."""
    whole = isinstance(value, int | float) and not isinstance(value, bool)
    if whole or value in ("nan", "inf", "-inf"):
        with suppress(OverflowError):  # the number may be an int of hundreds of digits
            return float(cast("float | str", value))
    return None


def fingerprint(config: Mapping[str, Any]) -> str:
    """Return the experiment's hash: 10 hex digits of the SHA-256 of its canonical JSON.

    The hash leaves out the seed, the `device`, the `observe` node (probes, sinks, intervals), the
    `choices` (because each node has its `option`) and, at any depth, the keys of `FOLDERS`, such as
    `data_dir`. The data's checksums are in the record.
    """
    return hashlib.sha256(_canonical(_experiment(config)).encode()).hexdigest()[:10]


def portable(node: Any, key: str = "") -> Any:
    """Return a config in which the path of each folder is shortened to its last components."""
    if isinstance(node, Mapping):
        items = cast("Mapping[str, Any]", node).items()
        return {name: portable(value, name) for name, value in items}
    if isinstance(node, list):
        return [portable(item) for item in cast("list[Any]", node)]
    if key not in FOLDERS or not isinstance(node, str):
        return node
    return "/".join(PurePath(node).parts[-FOLDERS[key] :])


def parts(config: Mapping[str, Any]) -> Parts:
    """Return the hashed part of a config, with one entry per dotted key or empty node."""
    return dict(sorted((key, _canonical(item)) for key, item in leaves(_experiment(config))))


def _experiment(config: Mapping[str, Any]) -> Any:
    return _hashed(plain({k: v for k, v in config.items() if k not in NOT_HASHED}))


def _hashed(value: Any) -> Any:
    if isinstance(value, dict):
        node = cast("dict[str, Any]", value)
        return {key: _hashed(item) for key, item in node.items() if key not in FOLDERS}
    if isinstance(value, list):
        return [_hashed(item) for item in cast("list[Any]", value)]
    # `lr=1` and `lr=1.0` are the same experiment, whatever type YAML gives them.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def arithmetic_of(environment: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return device type, precision and instruction set, such as `("cpu", "fp32", "AVX2")`."""
    unknown = f"unknown ({environment.get('device', 'no device named')})"
    kind, precision = (str(environment.get(key)) for key in ("device_type", "precision"))
    return kind, precision, environment.get("instruction_set") or unknown
