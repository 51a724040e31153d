"""The kinds of endpoints that need no runs: `published`, `computed` and `timing`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from normlab.claims.decision import (
    FEWEST,
    Decision,
    decide,
    undecided_by_seen,
)
from normlab.claims.endpoint import (
    Basis,
    Endpoint,
    Family,
    Judgement,
    Measurement,
    Scope,
)
from normlab.claims.evidence import BENCH, CheckFinding, EvidenceStore
from normlab.claims.shown_number import shown_value
from normlab.claims.side import Side, names_of
from normlab.claims.source import EvidenceSource, Unit
from normlab.claims.verdict import Reason
from normlab.config.conversion import Text


class Published(Endpoint, frozen=True):
    """A verdict from published sources, or the reason why nothing can measure the part yet.

    published: {standing: contradicts, reason: "T5 and LLaMA use RMSNorm.", chinese: ...}

    `chinese` is the reason in Chinese, for the interactive page.
    """

    standing: Literal["supports", "contradicts", "missing"]
    reason: Text
    chinese: str = ""

    @property
    def source(self) -> EvidenceSource:
        return EvidenceSource("sources", chinese=self.chinese)

    def question(self, assertion: str) -> str:
        known = self.standing != "missing"
        return "What do published code and papers say?" if known else "Nothing measures it yet."

    def judge(self, evidence: EvidenceStore, assertion: str) -> Judgement:
        if self.standing == "missing":
            return Judgement(Decision("not measured", reason=self.reason))
        verdict = "supported" if self.standing == "supports" else "contradicted"
        return Judgement(Decision(verdict, finding=self.reason), Basis(grade="D"))


class Computed(Endpoint, frozen=True):
    """The findings of a computed check. `only` selects findings by name.

    computed: {check: batch.mates, only: [bn in training]}
    """

    check: Annotated[str, Meta(pattern=r"^[a-z_0-9]+\.[a-z_0-9]+$")]
    only: tuple[str, ...] = ()

    @property
    def source(self) -> EvidenceSource:
        return EvidenceSource("check", check=self.check, only=self.only)

    def question(self, assertion: str) -> str:
        only = f" ({'; '.join(self.only)})" if self.only else ""
        return f"What does the check {self.check} find{only}?"

    def chooses(self, finding: CheckFinding) -> bool:
        """Return whether a finding of the check decides the part."""
        return not self.only or finding.name in self.only

    def judge(self, evidence: EvidenceStore, assertion: str) -> Judgement:
        findings = evidence.computed.get(self.check, ())
        chosen = [each for each in findings if self.chooses(each)]
        if not chosen or not {each.name for each in chosen} >= set(self.only):
            known = "; ".join(each.name for each in findings)
            reason = Reason("finding_missing", {"findings": known})
            reason = reason if findings else Reason("not_computed")
            return Judgement(Decision("not measured", reason=reason))
        holds = all(each.standing == "supports" for each in chosen)
        answers = ". ".join(each.sentence for each in chosen)
        decision = Decision("supported" if holds else "contradicted", finding=answers)
        return Judgement(decision, Basis(grade="D"))

    def to_measure(self, judgement: Judgement, evidence: EvidenceStore) -> Measurement | None:
        return Measurement("normlab claims --compute", "seconds")


class Timing(Endpoint, frozen=True):
    """A comparison of the times of two candidates in a group: is the first one faster?

    timing:
      faster: bn folded
      slower: ln
      group: "model, 1 sentence"
      margin: 0.02                 optional: a share of the time; default 0.02
      report: norms_vit            optional: results/bench/norms_vit.json; default norms.json
      measured: model=vit          optional: arguments for `python scripts/bench norms`
      first: slower                optional: the candidate that the statement names first. Its
                                   time is shown first, as more or less time than the other one
                                   takes; default faster
      alone: true                  optional: the group times bare norms, not models
      seen_before: true            optional: written after this report was seen, so the report
                                   is shown but decides nothing

    Candidates and groups have the names that `python scripts/bench norms` prints. The share of time
    saved is computed per round within one process, so the interval covers noise but not differences
    between machines. The p values of a report are corrected together, like the p values of a study.
    """

    assertions: ClassVar[tuple[str, ...]] = ("difference",)

    faster: Text
    slower: Text
    group: Text
    margin: Annotated[float, Meta(ge=0, lt=1)] = 0.02
    report: str = "norms"
    measured: str = ""
    first: Literal["faster", "slower"] = "faster"
    alone: bool = False
    seen_before: bool = False

    @property
    def family(self) -> Family | None:
        return BENCH, self.report

    @property
    def source(self) -> EvidenceSource:
        return EvidenceSource("timing")

    @property
    def unit(self) -> Unit:
        return "time"

    @property
    def limits(self) -> tuple[float, float]:
        ends = (-self.margin, self.margin)
        shown = (shown_value(each, "share", opposite=self._is_opposite) for each in ends)
        low, high = sorted(shown)
        return low, high

    @property
    def _is_opposite(self) -> bool:
        return self.first == "faster"

    @property
    def named_sides(self) -> list[Side]:
        candidates = [self.faster, self.slower]
        names = names_of([{"norm": candidate} for candidate in candidates])
        sides = [Side(*each) for each in zip(candidates, names, strict=True)]
        return sides if self.first == "faster" else sides[::-1]

    def question(self, assertion: str) -> str:
        by = f"by more than {100 * self.margin:.0f} %"
        return f"Is {self.faster} faster than {self.slower}, {by} ({self.group})?"

    def judge(self, evidence: EvidenceStore, assertion: str) -> Judgement:
        timings = evidence.timings.get(self.report)
        group = timings.groups.get(self.group, ()) if timings else ()
        times = {each.name: each for each in group}
        if timings is None or not times.keys() >= {self.faster, self.slower}:
            return Judgement(Decision("not measured", reason=Reason("no_timings")))
        first, second = times[self.faster], times[self.slower]
        pairs = zip(first.ratios_to_first, second.ratios_to_first, strict=True)
        saved = [1 - ratio / other for ratio, other in pairs]
        medians = {name: times[name].milliseconds["median"] for name in (self.faster, self.slower)}
        machine = timings.environment
        basis = Basis(
            n=len(saved),
            repeats="round",
            grade="D" if self.alone else "C",
            scope=Scope(f"{machine['device']} {machine['precision']}"),
            records=(timings.path,),
        )
        decision = replace(self._decide(saved), behind=medians, opposite=self._is_opposite)
        return Judgement(decision, basis)

    def to_measure(self, judgement: Judgement, evidence: EvidenceStore) -> Measurement | None:
        command = f"python scripts/bench norms {self.measured}".strip()
        cost = (
            "minutes; then remove seen_before: true from the endpoint"
            if self.seen_before
            else "minutes"
        )
        return Measurement(f"{command} --json results/{BENCH}/{self.report}.json", cost)

    def _decide(self, saved: Sequence[float]) -> Decision:
        """Decide by the share of time saved in each round, in a single analysis of all rounds."""
        if (n := len(saved)) < FEWEST:
            reason = Reason("too_few_rounds", {"n": str(n), "needed": str(FEWEST)})
            return Decision("not measured", reason=reason)
        decision = decide(saved, margin=self.margin, equality=False)
        decision = replace(decision, form="share")
        return undecided_by_seen(decision) if self.seen_before else decision
