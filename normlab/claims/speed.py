"""Decides how timings answer a claim about speed: a fifth form of comparison.

    {faster: bn folded, than: ln, group: "model, 1 sentence", margin: 0}

The names are those of `normlab bench norms`. The share of time that the first saves is taken round
by round and supports the claim where its 95 % t interval lies above the margin. Rounds are of one
process on one machine: the interval tells of noise, not of other machines.
"""

from dataclasses import dataclass

from normlab.claims.evidence import Evidence, figures, judge
from normlab.claims.runs import Runs
from normlab.claims.timings import Timings


@dataclass(frozen=True)
class Faster:
    """Two candidates of a group, of which the first is to take less time."""

    faster: str
    slower: str
    group: str
    margin: float

    @property
    def question(self) -> str:
        """Say what is claimed."""
        more = f", by more than a share of {self.margin:g}" if self.margin else ""
        return f"{self.faster} faster than {self.slower} ({self.group}){more}"

    def evidence(self, runs: Runs) -> list[Evidence]:
        """Look at each report."""
        found = [self._look(timings) for timings in runs.timings]
        lacking = Evidence("timing", self.question, "no timings of both", "no records")
        return [piece for piece in found if piece is not None] or [lacking]

    def _look(self, timings: Timings) -> Evidence | None:
        group = timings.groups.get(self.group, {})
        if self.faster not in group or self.slower not in group:
            return None
        first, second = group[self.faster], group[self.slower]
        pairs = zip(first.ratios, second.ratios, strict=True)
        saved = [1 - own / other for own, other in pairs]
        standing, interval = judge(saved, self.margin)
        times = " against ".join(figures(first.milliseconds, second.milliseconds))
        numbers: dict[str, float] = {}
        finding = f"{times} ms"
        if interval is not None:
            numbers = {"saved": interval.mean, "low": interval.low, "high": interval.high}
            mean, low, high = (f"{value:.1%}" for value in numbers.values())
            finding = f"{mean} [{low}, {high}] of the time saved ({times} ms)"
        return Evidence(
            "timing",
            self.question,
            finding,
            standing,
            numbers=numbers,
            n=len(saved),
            setting=timings.machine,
            records=(timings.path,),
        )
