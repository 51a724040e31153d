"""What decides a part: the base of all kinds, and those that need no runs."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field

from normlab.claims.evidence import FOLDER, Timings
from normlab.claims.judge import FEWEST, Judgement, decide, figures, of_decision
from normlab.claims.runs import Runs, Where

Text = Annotated[str, Meta(min_length=1)]
Texts = Annotated[tuple[Text, ...], Meta(min_length=1)]
Chosen = dict[str, str | int | float | bool | None]
"""What runs are chosen by: options of groups and dotted keys of the config, with their values."""
Side = Annotated[Chosen, Meta(min_length=1)]


class Endpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """One question about a part: the one that decides it, or a secondary one.

    `says` is what a part may say that this kind decides; empty for anything.
    """

    kind: ClassVar[str]
    says: ClassVar[tuple[str, ...]] = ()

    def question(self, says: str) -> str:
        """Return in one line what is measured, of a part that `says` what it does."""
        raise NotImplementedError

    @property
    def family(self) -> tuple[str, str] | None:
        """Return the study and scale within which its p value is corrected; None without one."""
        return None

    def judge(self, runs: Runs, says: str) -> Judgement:
        """Answer by what there is, before any correction."""
        raise NotImplementedError


def keys(where: Where) -> str:
    """Write a selection, such as `norm=bn placement=pre`."""
    words = {None: "null", True: "true", False: "false"}
    said = {k: words[v] if v is None or isinstance(v, bool) else v for k, v in where.items()}
    return " ".join(f"{key}={value}" for key, value in said.items())


class StudyEndpoint(Endpoint, frozen=True, kw_only=True):
    """A question about the runs of a study at a scale: scores, selection, nuisances."""

    study: Text
    scale: Text
    scores: Texts = field(name="score")
    where: Chosen = field(default_factory=dict)
    over: tuple[Text, ...] = ()

    @property
    def family(self) -> tuple[str, str] | None:
        return self.study, self.scale

    @property
    def sides(self) -> Sequence[Where]:
        """Return the settings that are compared, or the one that is looked at."""
        raise NotImplementedError

    @property
    def labels(self) -> Mapping[str, Where]:
        """Return the sides by what they are called, such as `norm=bn`."""
        return {keys(side): side for side in self.sides}

    @property
    def subtracted(self) -> str | None:
        """Return the further score that is subtracted from each, run by run."""
        return getattr(self, "minus", None)

    @property
    def all_scores(self) -> tuple[str, ...]:
        """Return the scores that a run must have."""
        return (*self.scores, *((self.subtracted,) if self.subtracted else ()))

    @property
    def figure(self) -> str:
        """Name the scores, and what is subtracted from each."""
        name = " and ".join(self.scores)
        return f"{name} minus {self.subtracted}" if self.subtracted else name

    def within(self, nuisances: str) -> str:
        """Return the selection and the nuisances, after words such as `mean over`."""
        where = f"; {keys(self.where)}" if self.where else ""
        return where + (f"; {nuisances} {', '.join(self.over)}" if self.over else "")


class Awaits(Endpoint, frozen=True):
    """The reason why a part is not measured.

    awaits: There is no task of images yet.
    """

    kind: ClassVar[str] = "awaits"

    reason: Text

    def question(self, says: str) -> str:
        return "nothing measures it yet"

    def judge(self, runs: Runs, says: str) -> Judgement:
        return Judgement("not measured", reason=self.reason)


class Published(Endpoint, frozen=True):
    """Whether published sources support a part; nothing is measured.

    published: {standing: contradicts, reason: "T5 and LLaMA use RMSNorm."}
    """

    kind: ClassVar[str] = "published"

    standing: Literal["supports", "contradicts"]
    reason: Text

    def question(self, says: str) -> str:
        return "published code and papers"

    def judge(self, runs: Runs, says: str) -> Judgement:
        verdict = "supported" if self.standing == "supports" else "contradicted"
        return Judgement(verdict, found=self.reason, grade="D")


class Computed(Endpoint, frozen=True):
    """A check by its name `file.function`; `only` selects findings by how their question begins.

    computed: padding.pollutes
    computed: {check: batch.mates, only: [bn in training]}
    """

    kind: ClassVar[str] = "computed"

    check: Annotated[str, Meta(pattern=r"^[a-z_0-9]+\.[a-z_0-9]+$")]
    only: tuple[str, ...] = ()

    def question(self, says: str) -> str:
        return f"the check {self.check}" + (f": {'; '.join(self.only)}" if self.only else "")

    def judge(self, runs: Runs, says: str) -> Judgement:
        pieces = runs.computed.get(self.check)
        chosen = [piece for piece in pieces or () if piece.question.startswith(self.only or ("",))]
        if not chosen:
            reason = "not computed"
            if pieces:
                known = "; ".join(piece.question for piece in pieces)
                reason = f"the check has no finding that begins so; it has: {known}"
            command = "normlab claims --compute"
            return Judgement("not measured", reason=reason, command=command, cost="seconds")
        holds = all(piece.standing == "supports" for piece in chosen)
        said = ". ".join(f"{piece.question}: {piece.finding}" for piece in chosen)
        return Judgement("supported" if holds else "contradicted", found=said, grade="D")


_OF_A_MODEL = "model"  # how groups begin in which a model is timed, not a norm alone


class Timing(Endpoint, frozen=True):
    """Two candidates of a group, of which the first is to take less time.

    timing:
      faster: bn folded
      than: ln
      group: "model, 1 sentence"
      margin: 0.02                 optional: a share of the time
      report: norms_vit            optional: results/bench/norms_vit.json, otherwise norms.json
      measured: model=vit          optional: how `python scripts/bench norms` was called for it

    The names are those of `python scripts/bench norms`. The share of time saved is taken round by
    round in one process, so the interval measures noise and not other machines.
    """

    kind: ClassVar[str] = "timing"
    says: ClassVar[tuple[str, ...]] = ("difference", "equality")

    faster: Text
    slower: Text = field(name="than")
    group: Text
    margin: Annotated[float, Meta(ge=0, lt=1)] = 0.02
    report: str = "norms"
    measured: str = ""

    def __post_init__(self) -> None:
        """Refuse a candidate against itself."""
        if self.faster == self.slower:
            raise ValueError("than: is the same as faster; name another candidate")

    def question(self, says: str) -> str:
        by = f"by more than {self.margin:.0%}"
        return f"{self.faster} faster than {self.slower} ({self.group}), {by}"

    def judge(self, runs: Runs, says: str) -> Judgement:
        given = f"{self.measured} " if self.measured else ""
        command = f"python scripts/bench norms {given}--json results/{FOLDER}/{self.report}.json"
        for timings in runs.timings:
            group = timings.groups.get(self.group, {})
            named = PurePosixPath(timings.path).stem == self.report
            if named and self.faster in group and self.slower in group:
                return self._judge(timings, command, equality=says == "equality")
        return Judgement(
            "not measured", reason="no timings of both", command=command, cost="minutes"
        )

    def _judge(self, timings: Timings, command: str, *, equality: bool) -> Judgement:
        first, second = (timings.groups[self.group][name] for name in (self.faster, self.slower))
        pairs = zip(first.ratios_to_first, second.ratios_to_first, strict=True)
        saved = [1 - own / other for own, other in pairs]
        medians = first.milliseconds.median, second.milliseconds.median
        more: dict[str, Any] = {
            "detail": " against ".join(figures(*medians)) + " ms",
            "n": len(saved),
            "repeats": "round",
            "grade": "C" if self.group.startswith(_OF_A_MODEL) else "D",
            "setting": timings.machine,
            "records": (timings.path,),
        }
        if len(saved) < FEWEST:
            reason = f"too few rounds ({len(saved)} of {FEWEST})"
            return Judgement("not measured", reason=reason, command=command, **more)
        decision = decide(saved, margin=self.margin, equality=equality)
        if (found := decision.interval) is not None:
            mean, low, high = (f"{value:.1%}" for value in (found.mean, found.low, found.high))
            more["found"] = f"{mean} [{low}, {high}] of the time saved"
            if decision.smallest is not None and not decision.reason:
                shown = f"{decision.smallest:.1%} (80 % power)"
                more["reason"] = f"these rounds would have shown {shown}"
        return of_decision(decision, None, **more)
