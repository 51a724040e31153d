"""The endpoint `timing`: which of two candidates takes less time, by interleaved rounds.

    timing:
      faster: bn folded
      than: ln
      group: "model, 1 sentence"
      margin: 0.02                 optional: a share of the time
      report: norms_vit            optional: results/bench/norms_vit.json, otherwise norms.json
      measured: model=vit          optional: how `python scripts/bench norms` was called for it

The names are those of `python scripts/bench norms`.
The share of time that the first saves is taken round by round; rounds are of one process on one
machine, so that the interval tells of noise and not of other machines.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, ClassVar

from normlab.claims.decision import decide
from normlab.claims.endpoints.base import Endpoint
from normlab.claims.finding import Finding, figures, of_decision
from normlab.claims.looks import FEWEST
from normlab.claims.node import Node
from normlab.claims.runs import Runs
from normlab.claims.timings import FOLDER, Timings

_MARGIN = 0.02
_REPORT = "norms"
_OF_A_MODEL = "model"  # how groups begin in which a model is timed, not a norm alone


@dataclass(frozen=True)
class Timing(Endpoint):
    """Two candidates of a group, of which the first is to take less time."""

    kind: ClassVar[str] = "timing"
    says: ClassVar[tuple[str, ...]] = ("difference", "equality")

    faster: str
    slower: str
    group: str
    margin: float = _MARGIN
    report: str = _REPORT
    measured: str = ""

    @classmethod
    def read(cls, node: Node) -> "Timing":
        """Read it; see the module for the keys."""
        own = node.node(cls.kind)
        found = cls(
            faster=own.text("faster"),
            slower=own.text("than"),
            group=own.text("group"),
            margin=own.number("margin", default=_MARGIN),
            report=own.optional_text("report") or _REPORT,
            measured=own.optional_text("measured") or "",
        )
        own.finish()
        if found.faster == found.slower:
            raise own.wrong("than", "is the same as faster; name another candidate")
        if not 0 <= found.margin < 1:
            raise own.wrong(
                "margin", f"expected a share of the time, 0 to 1, found {found.margin:g}"
            )
        return found

    def question(self, says: str) -> str:
        """Say in a line what is asked."""
        by = f"by more than {self.margin:.0%}"
        return f"{self.faster} faster than {self.slower} ({self.group}), {by}"

    def judge(self, runs: Runs, says: str) -> Finding:
        """Decide by the rounds of the first report that has both; at least five of them."""
        given = f"{self.measured} " if self.measured else ""
        command = f"python scripts/bench norms {given}--json results/{FOLDER}/{self.report}.json"
        for timings in runs.timings:
            group = timings.groups.get(self.group, {})
            named = PurePosixPath(timings.path).stem == self.report
            if named and self.faster in group and self.slower in group:
                return self._judge(timings, command, equality=says == "equality")
        return Finding("not measured", reason="no timings of both", command=command, cost="minutes")

    def _judge(self, timings: Timings, command: str, *, equality: bool) -> Finding:
        first, second = (timings.groups[self.group][name] for name in (self.faster, self.slower))
        pairs = zip(first.ratios, second.ratios, strict=True)
        saved = [1 - own / other for own, other in pairs]
        more: dict[str, Any] = {
            "detail": " against ".join(figures(first.milliseconds, second.milliseconds)) + " ms",
            "n": len(saved),
            "repeats": "round",
            "grade": "C" if self.group.startswith(_OF_A_MODEL) else "D",
            "setting": timings.machine,
            "records": (timings.path,),
        }
        if len(saved) < FEWEST:
            reason = f"too few rounds ({len(saved)} of {FEWEST})"
            return Finding("not measured", reason=reason, command=command, **more)
        decision = decide(saved, margin=self.margin, equality=equality)
        if (found := decision.interval) is None:
            return of_decision(decision, None, **more)
        mean, low, high = (f"{value:.1%}" for value in (found.mean, found.low, found.high))
        more["found"] = f"{mean} [{low}, {high}] of the time saved"
        if decision.smallest is not None and not decision.reason:
            more["reason"] = f"these rounds would have shown {decision.smallest:.1%} (80 % power)"
        return of_decision(decision, None, **more)
