"""Endpoints decided by the runs of a study: `contrast`, `level`, `document` and `trains`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean, geometric_mean
from typing import Annotated, ClassVar

from msgspec import Meta, field

from normlab.claims.judge import (
    CONSTANT,
    LOOKS,
    Count,
    Judgement,
    Look,
    at_look,
    constant,
    counts,
    decide,
    figures,
    less_often,
    stuck,
    tested,
)
from normlab.claims.runs import Where, value_of
from normlab.claims.sample import Chosen, Sample, StudyEndpoint, keys
from normlab.metrics.spread import p_value, t_interval
from normlab.records.record import RunRecord

Side = Annotated[Chosen, Meta(min_length=1)]
NOT_ALL = "not all seeds train"


class _Valued(StudyEndpoint, frozen=True, kw_only=True):
    """An endpoint about one value per seed, such as a difference, provided all seeds train."""

    def values(self, sample: Sample) -> dict[int, float]:
        """Return the value of each seed."""
        raise NotImplementedError

    def of_values(self, sample: Sample, seeds: Sequence[int], look: Look, says: str) -> Judgement:
        """Judge the values of seeds that train."""
        raise NotImplementedError

    def of_counts(self, counted: Sequence[Count], look: Look, says: str) -> Judgement | None:
        """Judge the counts of trained seeds after a divergence; None if they decide nothing."""
        return None

    def described(self, values: Mapping[int, float], sample: Sample) -> str:
        """Summarize values, for example by their mean."""
        return f"mean {figures(fmean(values.values()))[0]}"

    def at_look(self, sample: Sample, seeds: Sequence[int], look: Look, says: str) -> Judgement:
        trained, counted = sample.train_text(seeds), list(sample.train_counts(seeds).values())
        if sample.diverged(seeds):
            found = self.of_counts(counted, look, says)
            return stuck(NOT_ALL, trained) if found is None else at_look(found, look, found=trained)
        values = self.values(sample)
        odd = [str(seed) for seed in seeds if not math.isfinite(values[seed])]
        floors = [low for side in sample.cells if (low := sample.floor(side, seeds)) is not None]
        if floors or odd:
            return stuck(floors[0] if floors else f"no finite figure at seed {', '.join(odd)}")
        if any(train < n for train, n in counted):
            return stuck(NOT_ALL, trained)
        return self.of_values(sample, seeds, look, says)

    def shown(self, sample: Sample) -> str:
        ends, values = sample.diverged(sample.seeds), self.values(sample)
        finite = values and all(map(math.isfinite, values.values()))
        said = self.described(values, sample) if finite else "no finite figure"
        return f"{ends} diverged" if ends else said


class Contrast(_Valued, frozen=True, kw_only=True):
    """A comparison of two sides: is the first better by more than the margin?

    contrast:
      better: {norm: ln}                     the claimed direction
      worse: {norm: bn}
      in: {batching: bucket}                 optional, with than_in: an interaction,
      than_in: {batching: random}            the difference is larger `in` than `than_in`
      margin: 0.5                            in the unit of the score
      measure: true                          optional: a probe's value, where less is better
      ratio: true                            optional: the margin is a factor, such as 1.25

    If a seed diverged, the counts of trained seeds decide instead.
    """

    says: ClassVar[tuple[str, ...]] = ("difference", "equality")

    better: Side
    worse: Side
    inside: Chosen = field(name="in", default_factory=dict)
    outside: Chosen = field(name="than_in", default_factory=dict)
    margin: float
    measure: bool = False
    ratio: bool = False

    def __post_init__(self) -> None:
        if bool(self.inside) != bool(self.outside):
            raise ValueError("in: an interaction needs both in and than_in; give both, or none")
        if self.margin < self.ratio:
            raise ValueError(f"margin: expected at least {int(self.ratio)}, found {self.margin:g}")

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
        return said + self.within()

    @property
    def sides(self) -> list[Where]:
        """Return the two sides, or the four of an interaction with the `in` pair first."""
        places = (self.inside, self.outside) if self.inside else ({},)
        return [{**side, **place} for place in places for side in (self.better, self.worse)]

    def values(self, sample: Sample) -> dict[int, float]:
        """Return the difference per seed; for an interaction, the difference of differences."""
        sides = [sample.figures(side) for side in sample.cells]
        runs = chain.from_iterable(next(iter(sample.cells.values())).values())
        scores = [score for run in runs if run.finished and (score := run.figure(self.scores[0]))]
        less = self.measure or bool(scores and not scores[0].higher_is_better)
        found: dict[int, float] = {}
        for seed in sorted(set.intersection(*map(set, sides))):
            better, worse, *others = (self._scaled(side[seed]) for side in sides)
            gap = better - worse - (others[0] - others[1] if others else 0.0)
            found[seed] = -gap if less else gap
        return found

    def _scaled(self, value: float) -> float:
        """Return the value, or with `ratio` its logarithm, NaN if it is not positive."""
        if not self.ratio:
            return value
        return math.log(value) if value > 0 else math.nan

    def of_counts(self, counted: Sequence[Count], look: Look, says: str) -> Judgement | None:
        if self.inside:
            return None
        found = less_often(counted[1], counted[0], error=look.share)
        differ = says == "equality" and found.verdict == "supported"
        return replace(found, verdict="contradicted") if differ else found

    def of_values(self, sample: Sample, seeds: Sequence[int], look: Look, says: str) -> Judgement:
        m, values = self.margin, self.values(sample)
        margin = math.log(m) if self.ratio else m
        bounds = (1.0, m, 1 / m) if self.ratio else (0.0, m, -m)
        differences = [values[seed] for seed in seeds]
        equality = says == "equality"
        found = decide(differences, margin=margin, equality=equality, error=look.share)
        detail = self._means(sample, seeds)
        return at_look(found, look, bounds=bounds, ratio=self.ratio, detail=detail)

    def _means(self, sample: Sample, seeds: Sequence[int]) -> str:
        """Format the sides' means; geometric with `ratio`, so that their quotient is the factor."""
        sides = [[values[seed] for seed in seeds] for values in map(sample.figures, sample.cells)]
        geometric = self.ratio and all(value > 0 for side in sides for value in side)
        said = figures(*(geometric_mean(side) if geometric else fmean(side) for side in sides))
        pairs = [f"{a} against {b}" for a, b in zip(said[::2], said[1::2], strict=True)]
        if len(pairs) == 1:
            return pairs[0]
        return f"{keys(self.inside)}: {pairs[0]}; {keys(self.outside)}: {pairs[1]}"

    def described(self, values: Mapping[int, float], sample: Sample) -> str:
        mean = fmean(values.values())
        (said,) = figures(math.exp(mean) if self.ratio else mean)
        name = "a factor" if self.ratio else "a difference of"
        return f"{name} {said}, {self._means(sample, sorted(values))}"


class _OneSetting(_Valued, frozen=True, kw_only=True):
    """An endpoint about the value of one setting."""

    of: Side

    @property
    def sides(self) -> list[Where]:
        return [self.of]

    def values(self, sample: Sample) -> dict[int, float]:
        return sample.figures(keys(self.of))


class Level(_OneSetting, frozen=True, kw_only=True):
    """A bound on one setting's value: is it above, or below?

    level:
      of: {norm: bn}
      above: 0.5                        or below
      margin: 0                         optional
    """

    says: ClassVar[tuple[str, ...]] = ("difference", "figure")

    above: float | None = None
    below: float | None = None
    margin: Annotated[float, Meta(ge=0)] = 0.0

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None):
            raise ValueError("needs exactly one of above and below")

    def question(self, says: str) -> str:
        way = f"below {self.below:g}" if self.above is None else f"above {self.above:g}"
        by = f" by more than {self.margin:g}" if self.margin else ""
        return f"{self.figure} {way}{by} with {keys(self.of)}" + self.within()

    def of_values(self, sample: Sample, seeds: Sequence[int], look: Look, says: str) -> Judgement:
        sign, bound = (1, self.above) if self.above is not None else (-1, self.below)
        assert bound is not None
        values = {seed: value for seed, value in self.values(sample).items() if seed in seeds}
        differences = [sign * (value - bound) for value in values.values()]
        found = decide(differences, margin=self.margin, equality=False, error=look.share)
        if found.interval is None:
            return at_look(found, look, detail=self.described(values, sample))
        mean, *ends = (bound + sign * value for value in found.interval)
        found = replace(found, interval=(mean, min(ends), max(ends)))
        return at_look(found, look, bounds=[bound + by * self.margin for by in (-1, 0, 1)])


class Document(_OneSetting, frozen=True, kw_only=True):
    """A value stated by an article: does one setting's interval contain it?

    document:
      of: {norm: bn}
      value: 28.7
      data: {task: iwslt}               the article's data; other data are not compared
    """

    says: ClassVar[tuple[str, ...]] = ("figure",)

    value: float
    data: Side

    def question(self, says: str) -> str:
        where = keys({**self.data, **self.where})
        return f"the interval of {self.figure} with {keys(self.of)} holds {self.value:g}; {where}"

    def refused(self, runs: Sequence[RunRecord]) -> str | None:
        for run in runs:
            for key, wanted in self.data.items():
                if str(found := value_of(run.config, key)) != str(wanted):
                    return f"other data: {key}={found}, the document's is {key}={wanted}"
        return None

    def of_values(self, sample: Sample, seeds: Sequence[int], look: Look, says: str) -> Judgement:
        values = [value for seed, value in self.values(sample).items() if seed in seeds]
        if constant(values):
            return at_look(Judgement("undecided", reason=CONSTANT), look)
        interval = t_interval(values, confidence=1 - look.share)
        # An interval that contains the value is no reason to stop: only the last look may say so.
        verdict = "supported" if look == LOOKS[-1] else "undecided"
        if not interval.low <= self.value <= interval.high:
            verdict = "contradicted"
        p = p_value(interval, against=self.value)
        return at_look(tested(verdict, p, interval, look.share), look)


class Trains(StudyEndpoint, frozen=True, kw_only=True):
    """A comparison of how many seeds train on one side and on a reference.

    trains:
      side: {norm: none}
      reference: {norm: ln}             optional if the part says trains

    A seed trains unless it diverged or its score ended at the untrained baseline, where the run
    records one. With nuisances, a seed trains if all its runs do.
    """

    says: ClassVar[tuple[str, ...]] = ("trains", "fails")

    side: Side
    reference: Chosen = field(default_factory=dict)

    @property
    def sides(self) -> list[Where]:
        return [self.side, *([self.reference] if self.reference else [])]

    def question(self, says: str) -> str:
        sides = ", against ".join(self.labels)
        return f"how many seeds train with {sides}, by {self.scores[0]}{self.within('in each')}"

    def at_look(self, sample: Sample, seeds: Sequence[int], look: Look, says: str) -> Judgement:
        said, fails = sample.train_text(seeds), says in ("fails", "difference")
        side, *others = sample.train_counts(seeds).values()
        reference = others[0] if others else None
        if reference is not None and not reference[0]:
            floor = sample.floor(keys(self.reference), seeds)
            return stuck(floor or "no seed of the reference trains", said)
        found = counts(side, reference, fails=fails, error=look.share)
        return at_look(found, look, found=said)

    def shown(self, sample: Sample) -> str:
        return sample.train_text(sample.seeds)
