"""Endpoints that need no runs: computed checks, timings and published sources.

The findings of checks are in `results/computed.json`, timings in `results/bench/norms*.json`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from normlab.claims.judge import FEWEST, Judgement, at_look, decide, figures

if TYPE_CHECKING:
    from normlab.claims.runs import Runs

FORMAT = "normlab.computed/1"
FOLDER = "bench"
Text = Annotated[str, Meta(min_length=1)]
_T = TypeVar("_T")
_NOISE = 1e-9  # smaller float64 values are rounding, which differs between machines


class Evidence(Struct, frozen=True):
    """One finding of a check: the statement, what was found, and whether that supports it."""

    question: str
    finding: str
    standing: Literal["supports", "contradicts"]
    numbers: Mapping[str, float] = {}


class _Computed(Struct):
    format: Literal["normlab.computed/1"]
    checks: dict[str, list[Evidence]]


def to_json(checks: Mapping[str, Sequence[Evidence]]) -> str:
    """Serialize the findings of checks by name, to the same bytes on every machine."""

    def plain(piece: Evidence) -> dict[str, Any]:
        numbers = {
            key: 0.0 if abs(value) < _NOISE else float(f"{value:.4g}")
            for key, value in piece.numbers.items()
        }
        return {**msgspec.structs.asdict(piece), "numbers": numbers}

    named = {name: [plain(piece) for piece in pieces] for name, pieces in checks.items()}
    content = {"format": FORMAT, "checks": named}
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"


def read_computed(path: Path) -> dict[str, list[Evidence]]:
    """Read the findings of the checks; empty without a file, `ValueError` for a damaged one."""
    return _read(path, _Computed, "normlab claims --write").checks if path.is_file() else {}


class Timed(Struct, frozen=True):
    """A timed candidate: milliseconds, and per round the ratio to its group's first candidate."""

    name: str
    milliseconds: dict[str, float]
    ratios_to_first: tuple[float, ...]


class Timings(Struct, frozen=True):
    """A report of `python scripts/bench norms`, with its `path`."""

    format: Literal["normlab.bench.norms/1"]
    environment: dict[str, Any]
    groups: dict[str, tuple[Timed, ...]]
    path: str = ""


def read_timings(path: Path, *, named: str) -> Timings:
    """Read a timing report; raises `ValueError` if it is damaged."""
    report = _read(path, Timings, f"python scripts/bench norms --json {path}")
    return msgspec.structs.replace(report, path=named)


def _read(path: Path, kind: type[_T], again: str) -> _T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise ValueError(f"{path}: damaged ({error}); recreate it with {again}") from None


class Endpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """A question about a part: the primary one, which decides it, or a secondary one.

    `says` lists what a part may say for this kind to decide it; empty for anything.
    """

    says: ClassVar[tuple[str, ...]] = ()

    @property
    def kind(self) -> str:
        """Return the endpoint's key in claim files."""
        return type(self).__name__.lower()

    @property
    def family(self) -> tuple[str, str] | None:
        """Return the study and scale whose p values are corrected together; None without one."""
        return None

    def question(self, says: str) -> str:
        """Describe what is measured in one line; `says` is the kind of statement of the part."""
        raise NotImplementedError

    def judge(self, runs: "Runs", says: str) -> Judgement:
        """Judge the available evidence, before any correction."""
        raise NotImplementedError


class Published(Endpoint, frozen=True):
    """Whether published sources support a part, or why nothing can measure it yet.

    published: {standing: contradicts, reason: "T5 and LLaMA use RMSNorm."}
    """

    standing: Literal["supports", "contradicts", "missing"]
    reason: Text

    def question(self, says: str) -> str:
        missing = self.standing == "missing"
        return "nothing measures it yet" if missing else "published code and papers"

    def judge(self, runs: "Runs", says: str) -> Judgement:
        if self.standing == "missing":
            return Judgement("not measured", reason=self.reason)
        verdict = "supported" if self.standing == "supports" else "contradicted"
        return Judgement(verdict, found=self.reason, grade="D")


class Computed(Endpoint, frozen=True):
    """A computed check, by name; `only` selects findings by the start of their question.

    computed: {check: batch.mates, only: [bn in training]}
    """

    check: Annotated[str, Meta(pattern=r"^[a-z_0-9]+\.[a-z_0-9]+$")]
    only: tuple[str, ...] = ()

    def question(self, says: str) -> str:
        return f"the check {self.check}" + (f": {'; '.join(self.only)}" if self.only else "")

    def judge(self, runs: "Runs", says: str) -> Judgement:
        pieces = runs.computed.get(self.check, ())
        chosen = [piece for piece in pieces if piece.question.startswith(self.only or ("",))]
        if not chosen:
            known = "; ".join(piece.question for piece in pieces)
            reason = f"the check has no finding that begins so; it has: {known}"
            command = "normlab claims --compute"
            reason = reason if pieces else "not computed"
            return Judgement("not measured", reason=reason, command=command, cost="seconds")
        holds = all(piece.standing == "supports" for piece in chosen)
        said = ". ".join(f"{piece.question}: {piece.finding}" for piece in chosen)
        return Judgement("supported" if holds else "contradicted", found=said, grade="D")


class Timing(Endpoint, frozen=True):
    """A comparison of two candidates of a group: does the first take less time?

    timing:
      faster: bn folded
      than: ln
      group: "model, 1 sentence"
      margin: 0.02                 optional: a share of the time
      report: norms_vit            optional: results/bench/norms_vit.json; default norms.json
      measured: model=vit          optional: arguments of `python scripts/bench norms` for it

    Names are as in `python scripts/bench norms`. The share of time saved is computed per round in
    one process, so the interval shows noise, not differences between machines.
    """

    says: ClassVar[tuple[str, ...]] = ("difference",)

    faster: Text
    slower: Text = field(name="than")
    group: Text
    margin: Annotated[float, Meta(ge=0, lt=1)] = 0.02
    report: str = "norms"
    measured: str = ""

    def question(self, says: str) -> str:
        by = f"by more than {self.margin:.0%}"
        return f"{self.faster} faster than {self.slower} ({self.group}), {by}"

    def judge(self, runs: "Runs", says: str) -> Judgement:
        for timings in runs.timings:
            group = {each.name: each for each in timings.groups.get(self.group, ())}
            named = PurePosixPath(timings.path).stem == self.report
            if named and self.faster in group and self.slower in group:
                return self._judged(timings, group[self.faster], group[self.slower])
        command = " ".join(filter(None, ("python scripts/bench norms", self.measured)))
        command += f" --json results/{FOLDER}/{self.report}.json"
        reason = "no timings of both"
        return Judgement("not measured", reason=reason, command=command, cost="minutes")

    def _judged(self, timings: Timings, first: Timed, second: Timed) -> Judgement:
        pairs = zip(first.ratios_to_first, second.ratios_to_first, strict=True)
        saved = [1 - own / other for own, other in pairs]
        medians = first.milliseconds["median"], second.milliseconds["median"]
        where = timings.environment
        more: dict[str, Any] = {
            "detail": " against ".join(figures(*medians)) + " ms",
            "n": len(saved),
            "repeats": "round",
            "grade": "C" if self.group.startswith("model") else "D",  # a norm alone
            "setting": f"{where['device']} {where['precision']}",
            "records": (timings.path,),
        }
        if len(saved) < FEWEST:
            reason = f"too few rounds ({len(saved)} of {FEWEST})"
            return Judgement("not measured", reason=reason, **more)
        found = decide(saved, margin=self.margin, equality=False)
        if found.interval is not None:
            mean, low, high = (f"{value:.1%}" for value in found.interval)
            more["found"] = f"{mean} [{low}, {high}] of the time saved"
            if found.smallest is not None and not found.reason:
                shown = f"{found.smallest:.1%} (80 % power)"
                more["reason"] = f"these rounds would have shown {shown}"
        return at_look(found, None, **more)
