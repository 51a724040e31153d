"""The endpoint `contrast`: two settings by the paired difference of a score, seed by seed."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, geometric_mean
from typing import ClassVar

from msgspec import field

from normlab.claims.endpoint import Chosen, Side, keys
from normlab.claims.judge import Judgement, Look, decide, figures, less_often, of_decision, stuck
from normlab.claims.runs import Where
from normlab.claims.sample import Sample, SeedsEndpoint, stopped

NOT_ALL = "not all seeds train"


class Contrast(SeedsEndpoint, frozen=True, kw_only=True):
    """Two sides of which the first is to be better by more than the margin.

    contrast:
      study: translation
      scale: small
      score: [test/bleu, test_2017/bleu]     one, or a list that is averaged within a seed
      better: {norm: ln}                     the claimed direction
      worse: {norm: bn}
      where: {task: multi30k}                optional: shared by both sides
      over: [placement]                      optional: nuisances, averaged within a seed
      in: {batching: bucket}                 optional, with than_in: an interaction,
      than_in: {batching: random}            the difference is larger `in` than `than_in`
      margin: 0.5                            in the unit of the score
      measure: true                          optional: a probe's value, of which less is better
      ratio: true                            optional: the margin is a factor, such as 1.25
      minus: test/loss                       optional: subtracted from each score, run by run

    Sides are chosen by the options of groups and by dotted keys of the config. Scores are compared
    only if all seeds train; if one diverged, the counts of seeds that train decide.
    """

    kind: ClassVar[str] = "contrast"
    says: ClassVar[tuple[str, ...]] = ("difference", "equality")

    better: Side
    worse: Side
    inside: Chosen = field(name="in", default_factory=dict)
    outside: Chosen = field(name="than_in", default_factory=dict)
    margin: float
    measure: bool = False
    ratio: bool = False
    minus: str | None = None

    def __post_init__(self) -> None:
        """Refuse keys that do not go together."""
        if self.better == self.worse:
            raise ValueError("worse: is the same side as better; name two different ones")
        if bool(self.inside) != bool(self.outside):
            raise ValueError("in: an interaction needs both in and than_in; give both, or none")
        if self.inside and self.inside == self.outside:
            raise ValueError("than_in: is the same as in; name two different ones")
        fewest = 1 if self.ratio else 0
        if self.margin < fewest:
            raise ValueError(f"margin: expected at least {fewest}, found {self.margin:g}")
        for key in (*self.over, *self.where):
            if key in {**self.inside, **self.better, **self.worse}:
                raise ValueError(f"{key}: is what is compared; take it out of where and over")
        for key in self.over:
            if key in self.where:
                raise ValueError(f"over: {key} is fixed by where; take it out of one of them")

    def question(self, says: str) -> str:
        better, worse = keys(self.better), keys(self.worse)
        inside, outside = keys(self.inside), keys(self.outside)
        by = f"a factor {self.margin:g}" if self.ratio else f"{self.margin:g}"
        way = "less" if self.measure else "better"
        if says != "equality":
            more = f", more so with {inside} than with {outside}" if inside else ""
            said = f"{self.figure} {way} with {better} than with {worse}{more}, by more than {by}"
        elif inside:
            said = (
                f"the gain in {self.figure} of {better} over {worse} is the same with {inside} as "
                f"with {outside}, within {by}"
            )
        else:
            said = f"{self.figure} the same with {better} as with {worse}, within {by}"
        return said + self.within("mean over")

    @property
    def sides(self) -> list[Where]:
        """Return the two sides, or the four of an interaction, those `in` first."""
        places = (self.inside, self.outside) if self.inside else ({},)
        return [{**side, **place} for place in places for side in (self.better, self.worse)]

    def at_look(self, sample: Sample, seeds: Sequence[int], look: Look, says: str) -> Judgement:
        equality, trained = says == "equality", sample.train_text(seeds)
        counts = [(sample.train_count(side, seeds), len(seeds)) for side in sample.cells]
        if sample.diverged(seeds):
            if self.inside:
                return stuck(NOT_ALL, found=trained)
            better, worse = counts
            found = less_often(worse, better, error=look.share)
            if equality and found.verdict == "supported":
                found = replace(found, verdict="contradicted")
            return of_decision(found, look, found=trained)
        values = self._differences(sample)
        if (stop := stopped(sample, values, seeds)) is not None:
            return stop
        if any(train < n for train, n in counts):
            return stuck(NOT_ALL, found=trained)
        margin = math.log(self.margin) if self.ratio else self.margin
        differences = [values[seed] for seed in seeds]
        decision = decide(differences, margin=margin, equality=equality, error=look.share)
        detail = self._means(sample, seeds)
        return of_decision(decision, look, ratio=self.ratio, margin=self.margin, detail=detail)

    def _differences(self, sample: Sample) -> dict[int, float]:
        """Return the difference by seed, or the difference of differences of an interaction."""
        sides = [sample.figures(side) for side in sample.cells]
        runs = [run for each in next(iter(sample.cells.values())).values() for run in each]
        scores = [score for run in runs if run.finished and (score := run.figure(self.scores[0]))]
        less = self.measure or bool(scores and not scores[0].higher_is_better)
        found: dict[int, float] = {}
        for seed in sorted(set.intersection(*map(set, sides))):
            better, worse, *others = (self._scaled(side[seed]) for side in sides)
            gap = better - worse - (others[0] - others[1] if others else 0.0)
            found[seed] = -gap if less else gap
        return found

    def _scaled(self, value: float) -> float:
        """Return the logarithm of a value if a factor is asked for; NaN if it has none."""
        if not self.ratio:
            return value
        return math.log(value) if value > 0 else math.nan

    def _means(self, sample: Sample, seeds: Sequence[int]) -> str:
        """Write the means of the sides; geometric for a factor, so that it is their quotient."""
        sides = [[figures[seed] for seed in seeds] for figures in map(sample.figures, sample.cells)]
        geometric = self.ratio and all(value > 0 for side in sides for value in side)
        said = figures(*(geometric_mean(side) if geometric else fmean(side) for side in sides))
        pairs = [f"{a} against {b}" for a, b in zip(said[::2], said[1::2], strict=True)]
        if len(pairs) == 1:
            return pairs[0]
        return f"{keys(self.inside)}: {pairs[0]}; {keys(self.outside)}: {pairs[1]}"

    def shown(self, sample: Sample) -> str:
        ends = sample.diverged(sample.seeds)
        values = self._differences(sample)
        kept = [value for value in values.values() if math.isfinite(value)]
        if ends or not kept:
            return f"{ends} diverged" if ends else "no finite figure"
        (said,) = figures(math.exp(fmean(kept)) if self.ratio else fmean(kept))
        name = "a factor" if self.ratio else "a difference of"
        return f"{name} {said}, {self._means(sample, sorted(values))}"
