"""The endpoint `contrast`: two settings by the paired difference of a score, seed by seed."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, geometric_mean
from typing import ClassVar

from msgspec import field

from normlab.claims.asked import (
    Asked,
    StudyEndpoint,
    diverged,
    mean_of,
    per_seed,
    scores_text,
    train_count,
    train_text,
)
from normlab.claims.endpoint import Chosen, Side, keys
from normlab.claims.judge import (
    UNDECIDED,
    Decision,
    Judgement,
    decide,
    figures,
    less_often,
    of_decision,
    sequential,
    stuck,
)
from normlab.claims.runs import Runs, Where
from normlab.claims.sample import Query, Sample, collect

_NOT_ALL = "not all seeds train"


class Contrast(StudyEndpoint, frozen=True, kw_only=True):
    """Two sides of which the first is to be better by more than the margin.

    contrast:
      study: translation
      scale: cpu
      score: [test/bleu, test_2017/bleu]     one, or a list that is averaged within a seed
      better: {norm: ln}                     the claimed direction
      worse: {norm: bn}
      where: {task: multi30k}                optional: shared by both sides
      over: [placement]                      optional: nuisances, averaged within a seed
      in: {batching: bucket}                 optional, with than_in: an interaction,
      than_in: {batching: random}            the difference is larger `in` than `than_in`
      margin: 0.5                            in the unit of the score
      measure: true                          optional: a probe's figure, of which less is better
      ratio: true                            optional: the margin is a factor, such as 1.25
      minus: test/loss                       optional: subtracted from each score, run by run

    Sides are chosen by the options of groups and by dotted keys of the config.
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
        sides = ({**self.inside}, {**self.better}, {**self.worse})
        for key in (*self.over, *self.where):
            if any(key in side for side in sides):
                raise ValueError(f"{key}: is what is compared; take it out of where and over")
        for key in self.over:
            if key in self.where:
                raise ValueError(f"over: {key} is fixed by where; take it out of one of them")

    def question(self, says: str) -> str:
        sides = keys(self.better), keys(self.worse)
        name = scores_text(self.scores, self.minus)
        way = "less" if self.measure else "better"
        by = f"a factor {self.margin:g}" if self.ratio else f"{self.margin:g}"
        if says == "equality":
            said = f"{name} alike with {sides[0]} and with {sides[1]}"
            if self.inside:
                said = f"what {name} is {way} with {sides[0]} than with {sides[1]} alike"
                said += f" with {keys(self.inside)} and with {keys(self.outside)}"
            said += f", within {by}"
        else:
            said = f"{name} {way} with {sides[0]} than with {sides[1]}"
            if self.inside:
                said += f", more so with {keys(self.inside)} than with {keys(self.outside)}"
            said += f", by more than {by}"
        return said + self.within("mean over")

    def judge(self, runs: Runs, says: str) -> Judgement:
        asked = self.asked(runs, *self.sides, minus=self.minus)
        if (unanswered := asked.without_answer(self._shown)) is not None:
            return unanswered
        sample, equality = asked.sample, says == "equality"
        values = self._differences(sample)
        margin = math.log(self.margin) if self.ratio else self.margin

        def look(chosen: Sequence[int], share: float) -> Decision:
            if _any_diverged(sample, chosen):
                return self._by_count(sample, chosen, equality=equality, error=share)
            if self._stopped(asked, values, chosen) is not None:
                return UNDECIDED
            differences = [values[seed] for seed in chosen]
            return decide(differences, margin=margin, equality=equality, error=share)

        at, decision = sequential(sample.seeds, look)
        used = sample.seeds[: at.seeds]
        if _any_diverged(sample, used):
            said = train_text(sample, self.scores, used)
            if self.inside:
                return asked.finding(stuck(_NOT_ALL, found=said), used)
            return asked.finding(of_decision(decision, at, found=said), used)
        if (stop := self._stopped(asked, values, used)) is not None:
            return asked.finding(stop, used)
        detail = self._means(sample, used)
        found = of_decision(decision, at, ratio=self.ratio, margin=self.margin, detail=detail)
        return asked.finding(found, used)

    def differences(self, runs: Runs) -> dict[int, float]:
        """Return the difference by seed, of a factor its logarithm, also of runs that do not count.

        That is for their spread, before the runs that do; they decide nothing.
        """
        place = self.study, self.scale
        sides = {keys(side): side for side in self.sides}
        query = Query(*place, sides, self.where, self.over, self._all_scores)
        sample = collect(runs.of_study(*place), runs.plan(*place), query, strict=False)
        if sample.problem is not None:
            return {}
        found = self._differences(sample)
        return {seed: value for seed, value in found.items() if math.isfinite(value)}

    @property
    def _all_scores(self) -> tuple[str, ...]:
        return (*self.scores, *((self.minus,) if self.minus else ()))

    @property
    def sides(self) -> list[Where]:
        """Return the sides: two, or four of an interaction, those `in` first."""
        if not self.inside:
            return [self.better, self.worse]
        places = (self.inside, self.outside)
        return [{**side, **place} for place in places for side in (self.better, self.worse)]

    def _differences(self, sample: Sample) -> dict[int, float]:
        """Return the difference by seed, of an interaction that of the differences."""
        labels = [keys(side) for side in self.sides]
        sides = [self._signed(sample, label) for label in labels]
        seeds = sorted(set.intersection(*(set(side) for side in sides)))
        change = math.log if self.ratio else float
        better, worse, *others = sides
        found = {}
        for seed in seeds:
            found[seed] = _gap(better[seed], worse[seed], change)
            if others:
                found[seed] -= _gap(others[0][seed], others[1][seed], change)
        return {seed: -value if self._less(sample) else value for seed, value in found.items()}

    def _signed(self, sample: Sample, label: str) -> dict[int, float]:
        return per_seed(sample, label, self.scores, minus=self.minus)

    def _less(self, sample: Sample) -> bool:
        """Tell whether less of the score is better."""
        if self.measure:
            return True
        label = next(iter(sample.cells))
        runs = [run for each in sample.cells[label].values() for run in each if run.finished]
        found = next((score for run in runs if (score := run.figure(self.scores[0]))), None)
        return found is not None and not found.higher_is_better

    def _means(self, sample: Sample, seeds: Sequence[int]) -> str:
        """Write the means of the sides, geometric ones for a factor, whose quotient it then is."""
        sides = [self._signed(sample, keys(side)) for side in self.sides]
        means = [mean_of(side, seeds) for side in sides]
        if self.ratio and all(side[seed] > 0 for side in sides for seed in seeds):
            means = [geometric_mean(side[seed] for seed in seeds) for side in sides]
        said = figures(*means)
        pairs = [f"{a} against {b}" for a, b in zip(said[::2], said[1::2], strict=True)]
        if len(pairs) == 1:
            return pairs[0]
        places = (self.inside, self.outside)
        return "; ".join(f"{keys(at)}: {pair}" for at, pair in zip(places, pairs, strict=True))

    def _shown(self, sample: Sample) -> str:
        """Put runs into words that decide nothing."""
        ends = sum(diverged(sample, side, sample.seeds) for side in sample.cells)
        values = self._differences(sample)
        kept = [value for value in values.values() if math.isfinite(value)]
        if ends or not kept:
            return f"{ends} diverged" if ends else "no finite figure"
        mean = fmean(kept)
        (said,) = figures(math.exp(mean) if self.ratio else mean)
        name = "a factor" if self.ratio else "a difference of"
        return f"{name} {said}, {self._means(sample, sorted(values))}"

    def _stopped(
        self, asked: Asked, values: Mapping[int, float], seeds: Sequence[int]
    ) -> Judgement | None:
        """Say why seeds that all finished decide nothing: by their mean, or one by itself."""
        if (stop := asked.stopped(values, seeds)) is not None:
            return stop
        trained = [train_count(asked.sample, s, self.scores, seeds) for s in asked.sample.cells]
        if min(trained) == len(seeds):
            return None
        return stuck(_NOT_ALL, found=train_text(asked.sample, self.scores, seeds))

    def _by_count(
        self, sample: Sample, seeds: Sequence[int], *, equality: bool, error: float
    ) -> Decision:
        """Decide by how many seeds train: scores are compared only where all do."""
        if self.inside:
            return UNDECIDED
        better, worse = (
            (train_count(sample, side, self.scores, seeds), len(seeds)) for side in sample.cells
        )
        found = less_often(worse, better, error=error)
        if equality and found.verdict == "supported":
            return replace(found, verdict="contradicted")
        return found


def _any_diverged(sample: Sample, seeds: Sequence[int]) -> bool:
    return any(diverged(sample, side, seeds) for side in sample.cells)


def _gap(a: float, b: float, change: Callable[[float], float]) -> float:
    """Return the difference of two figures, of their logarithms for a factor; NaN for none."""
    try:
        return change(a) - change(b)
    except ValueError:  # the logarithm of a figure that is not above 0
        return math.nan
