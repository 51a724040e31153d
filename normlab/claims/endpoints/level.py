"""The endpoint `level`: a figure of one setting against a bound.

level:
  study: translation
  scale: cpu
  score: test/bleu
  of: {norm: bn}
  where: {placement: pre}           optional
  over: [batching]                  optional: nuisances, averaged within a seed
  above: 0.5                        or below
  margin: 0                         optional
  minus: test/loss                  optional: subtracted from each score, run by run

The side is chosen by the options of groups and by dotted keys of the config.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from normlab.claims.decision import UNDECIDED, Decision, decide
from normlab.claims.endpoints.base import keys
from normlab.claims.endpoints.study import (
    Asked,
    StudyEndpoint,
    diverged,
    mean_of,
    per_seed,
    scores_text,
    train_text,
)
from normlab.claims.finding import Finding, figures, interval_text, of_decision, stuck
from normlab.claims.looks import sequential
from normlab.claims.node import Node, Where
from normlab.claims.runs import Runs
from normlab.claims.sample import Sample


@dataclass(frozen=True)
class Level(StudyEndpoint):
    """One setting, of which a figure is to lie above or below a bound."""

    kind: ClassVar[str] = "level"
    says: ClassVar[tuple[str, ...]] = ("difference", "equality", "figure")

    of: Where
    bound: float
    above: bool
    margin: float
    minus: str | None

    @classmethod
    def read(cls, node: Node) -> "Level":
        """Read it; see the module for the keys."""
        own = node.node(cls.kind)
        study, scale = own.study()
        sides = [key for key in ("above", "below") if own.has(key)]
        if len(sides) != 1:
            raise own.wrong("", "needs exactly one of above and below")
        found = cls(
            study=study,
            scale=scale,
            scores=own.texts("score"),
            of=own.where("of", required=True),
            where=own.where("where"),
            over=own.texts("over", required=False),
            bound=own.number(sides[0]),
            above=sides[0] == "above",
            margin=own.number("margin", default=0.0),
            minus=own.optional_text("minus"),
        )
        own.finish()
        if found.margin < 0:
            raise own.wrong("margin", f"expected at least 0, found {found.margin:g}")
        return found

    @property
    def sides(self) -> list[Where]:
        """Return the one setting."""
        return [self.of]

    def question(self, says: str) -> str:
        """Say in a line what is asked."""
        name = scores_text(self.scores, self.minus)
        way = "above" if self.above else "below"
        by = f" by more than {self.margin:g}" if self.margin else ""
        return f"{name} {way} {self.bound:g}{by} with {keys(self.of)}{self.within('mean over')}"

    def judge(self, runs: Runs, says: str) -> Finding:
        """Decide by the difference to the bound, in the direction that is claimed."""
        side = keys(self.of)
        asked = self.asked(runs, self.of, minus=self.minus)
        if (unanswered := asked.without_answer(self._shown)) is not None:
            return unanswered
        values = per_seed(asked.sample, side, self.scores, minus=self.minus)
        sign = 1 if self.above else -1

        def look(chosen: Sequence[int], share: float) -> Decision:
            if stopped(asked, side, chosen) is not None:
                return UNDECIDED
            differences = [sign * (values[seed] - self.bound) for seed in chosen]
            equality = says == "equality"
            return decide(differences, margin=self.margin, equality=equality, error=share)

        at, decision = sequential(asked.sample.seeds, look)
        used = asked.sample.seeds[: at.seeds]
        if (stop := stopped(asked, side, used)) is not None:
            return asked.finding(stop, used)
        if (found := decision.interval) is None:
            detail = mean_text({seed: values[seed] for seed in used})
            return asked.finding(of_decision(decision, at, detail=detail), used)
        ends = sorted(self.bound + sign * end for end in (found.low, found.high))
        mean = self.bound + sign * found.mean
        bounds = [self.bound + times * self.margin for times in (-1, 0, 1)]
        said = interval_text(mean, ends[0], ends[1], bounds)
        more = {"found": said, "mean": mean, "low": ends[0], "high": ends[1]}
        return asked.finding(replace(of_decision(decision, at), **more), used)

    def _shown(self, sample: Sample) -> str:
        """Put runs into words that decide nothing."""
        values = per_seed(sample, keys(self.of), self.scores, minus=self.minus)
        return mean_text(values) or f"{diverged(sample, keys(self.of), sample.seeds)} diverged"


def stopped(asked: Asked, side: str, seeds: Sequence[int]) -> Finding | None:
    """Say why a side's figures cannot be taken: some diverged, is at the floor, not finite."""
    scores = asked.query.scores
    if diverged(asked.sample, side, seeds):
        return stuck("not all seeds train", found=train_text(asked.sample, scores, seeds))
    return asked.stopped(per_seed(asked.sample, side, scores), seeds)


def mean_text(values: dict[int, float]) -> str:
    """Write the mean over all seeds; nothing where there is none."""
    return f"mean {figures(mean_of(values, list(values)))[0]}" if values else ""
