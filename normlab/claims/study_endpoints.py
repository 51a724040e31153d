"""The kinds of endpoints in claim files that are decided by the runs of a study.

These are `contrast`, `gap`, `spread`, `level`, `reported` and `trains`. The other kinds are in
`other_endpoints`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, geometric_mean, stdev
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from normlab.claims import decision
from normlab.claims.decision import (
    REFERENCE_FAILS,
    Analysis,
    Decision,
    Form,
    corrected_for_look,
    decide,
    stuck,
)
from normlab.claims.endpoint import Chosen, StudyEndpoint
from normlab.claims.sample import Count, Sample
from normlab.claims.side import Side, name_of, names_of
from normlab.claims.source import Unit
from normlab.claims.verdict import Verdict
from normlab.claims.where import Where, where_text
from normlab.config.conversion import WrongField
from normlab.records.record import RunRecord, is_probe_metric
from normlab.records.store import lookup, written

Setting = Annotated[Chosen, Meta(min_length=1)]
_FEWER = ("fails", "difference")
"""The assertions for which `Trains` asks whether fewer runs train."""
CORRECTED_FOR_FIGURES: tuple[Verdict, ...] = ("contradicted",)
"""The verdicts on an article's value that must survive the correction.

An interval that contains the value supports the part without a correction.
"""


class Difference(StudyEndpoint, frozen=True, kw_only=True):
    """Base class of endpoints about the difference between two settings, in the unit of the score.

    better: {norm: ln}                     the claimed direction
    worse: {norm: bn}
    inside: {batching: bucket}             optional, both or neither: an interaction, where the
    outside: {batching: random}            difference is larger inside than outside
    ratio: true                            optional: a factor, such as 1.25, instead of a difference
    first: worse                           optional: the first side in the statement, and in the
                                           difference that is shown; default better
    """

    better: Setting
    worse: Setting
    inside: Chosen = field(default_factory=dict)
    outside: Chosen = field(default_factory=dict)
    ratio: bool = False
    first: Literal["better", "worse"] = "better"

    def __post_init__(self) -> None:
        if bool(self.inside) != bool(self.outside):
            raise WrongField(
                "inside", "an interaction needs both inside and outside; set both or neither"
            )

    @property
    def unit(self) -> Unit:
        if self.ratio:
            return "factor"
        return "interaction" if self.inside else "difference"

    @property
    def form(self) -> Form:
        return "factor" if self.ratio else "number"

    @property
    def sides(self) -> list[Where]:
        """The two sides or, for an interaction, the two sides `inside` and then `outside`."""
        conditions = (self.inside, self.outside) if self.inside else ({},)
        return [
            {**side, **condition} for condition in conditions for side in (self.better, self.worse)
        ]

    @property
    def named_sides(self) -> list[Side]:
        pair = [self.better, self.worse]
        with_names = list(zip(pair, names_of(pair, self.study), strict=True))
        if self.first == "worse":
            with_names.reverse()
        if not self.inside:
            return [Side(where_text(side), name) for side, name in with_names]
        return [
            Side(where_text({**side, **condition}), name, name_of(condition, self.study))
            for condition in (self.inside, self.outside)
            for side, name in with_names
        ]

    def values(self, sample: Sample, seeds: Sequence[int]) -> dict[int, float]:
        """Return the difference per seed or, for an interaction, the difference of differences."""
        sides = [sample.values(side) for side in sample.cells]
        sign = 1 if sample.higher_is_better else -1
        scaled = _logarithm if self.ratio else float
        differences: dict[int, float] = {}
        for seed in seeds:
            better, worse, *others = (scaled(side[seed]) for side in sides)
            outside = others[0] - others[1] if others else 0.0
            differences[seed] = sign * (better - worse - outside)
        return differences

    def behind(self, sample: Sample, seeds: Sequence[int]) -> dict[str, float]:
        """Return the mean of each side or, with `ratio`, the geometric mean."""
        mean = geometric_mean if self.ratio else fmean
        values = {side: sample.values(side) for side in sample.cells}
        return {side: mean([of[seed] for seed in seeds]) for side, of in values.items()}

    def is_opposite(self, sample: Sample) -> bool:
        return (self.first == "better") != sample.higher_is_better


class Contrast(Difference, frozen=True, kw_only=True):
    """A comparison of two settings: is the first one better by more than the margin?

    contrast: {better: {norm: ln}, worse: {norm: bn}, margin: 0.5}

    If a seed diverged, the counts of trained seeds are compared instead. Then an interaction is
    undecided.
    """

    assertions: ClassVar[tuple[str, ...]] = ("difference", "equality")

    margin: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.margin < self.ratio:
            problem = f"expected at least {int(self.ratio)}, found {self.margin:g}"
            raise WrongField("margin", problem)

    @property
    def limits(self) -> tuple[float, float]:
        return (1 / self.margin if self.ratio else -self.margin), self.margin

    def question(self, assertion: str) -> str:
        better, worse, equality = (
            where_text(self.better),
            where_text(self.worse),
            assertion == "equality",
        )
        size = f"a factor of {self.margin:g}" if self.ratio else f"{self.margin:g}"
        by = f"within {size}" if equality else f"by more than {size}"
        is_probe = is_probe_metric(self.scores[0])
        if self.inside:
            verb, more = "fall" if is_probe else "improve", "as much" if equality else "more"
            inside, outside = where_text(self.inside), where_text(self.outside)
            text = (
                f"Does {self.value_name} {verb} {more} from {worse} to {better} with {inside} "
                f"{'as' if equality else 'than'} with {outside}"
            )
        elif equality:
            text = f"Is {self.value_name} the same with {better} as with {worse}"
        else:
            way = "lower" if is_probe else "better"
            text = f"Is {self.value_name} {way} with {better} than with {worse}"
        return f"{text}, {by}{self.conditions()}?"

    def decide_counts(
        self, trained: Sequence[Count], look: Analysis, assertion: str
    ) -> Decision | None:
        if self.inside:
            return None
        less = decision.less_often(trained[1], trained[0], error=look.share)
        differ = assertion == "equality" and less.verdict == "supported"
        return replace(less, verdict="contradicted") if differ else less

    def decide_values(self, values: Sequence[float], look: Analysis, assertion: str) -> Decision:
        m, equality = self.margin, assertion == "equality"
        margin, bounds = (math.log(m), (1.0, m, 1 / m)) if self.ratio else (m, (0.0, m, -m))
        decided = decide(values, margin=margin, equality=equality, error=look.share)
        return corrected_for_look(decided, look, bounds=bounds, form=self.form)


class Gap(Difference, frozen=True, kw_only=True):
    """A difference reported by an article: is it inside the confidence interval of our difference?

    gap: {better: {norm: ln}, worse: {norm: bn}, value: 6.5}

    The data may differ from the article's only if the claim is about the difference in general.
    """

    assertions: ClassVar[tuple[str, ...]] = ("figure",)
    corrected_verdicts: ClassVar[tuple[Verdict, ...]] = CORRECTED_FOR_FIGURES

    value: float

    def question(self, assertion: str) -> str:
        worse, better = where_text(self.worse), where_text(self.better)
        gain = f"the gain in {self.value_name} from {worse} to {better}"
        if self.inside:
            gain += (
                f" with {where_text(self.inside)}, minus the gain with {where_text(self.outside)},"
            )
        return f"Does the interval of {gain} contain {self.value:g}{self.conditions()}?"

    def decide_values(self, values: Sequence[float], look: Analysis, assertion: str) -> Decision:
        value = _logarithm(self.value) if self.ratio else self.value
        held = decision.contains(values, value, look)
        return corrected_for_look(held, look, bounds=(self.value,), form=self.form)


class Spread(StudyEndpoint, frozen=True, kw_only=True):
    """A comparison of spreads: do scores vary more over seeds in one setting than in another?

    spread: {wider: {norm: bn}, narrower: {norm: ln}, margin: 1.5}     a factor of the deviations

    The logarithm of the ratio of both standard deviations is judged by its jackknife (Miller 1968,
    "Jackknifing variances"): with n seeds, the value of a seed is n times the logarithm minus n - 1
    times the logarithm without that seed, and the mean of these values has a t interval. The method
    does not assume a normal distribution, and keeps pairs of runs with the same seed together. In
    simulations with equal deviations (12 seeds, 4,000 draws, allowed error 0.0125), its error was
    0.012 for normal values, and 0.020 for a t distribution with 5 degrees of freedom, which has
    heavy tails.
    """

    assertions: ClassVar[tuple[str, ...]] = ("difference", "equality")

    wider: Setting
    narrower: Setting
    margin: Annotated[float, Meta(gt=1)]

    @property
    def unit(self) -> Unit:
        return "spread"

    @property
    def limits(self) -> tuple[float, float]:
        return 1 / self.margin, self.margin

    @property
    def sides(self) -> list[Where]:
        return [self.wider, self.narrower]

    def question(self, assertion: str) -> str:
        wider, narrower = where_text(self.wider), where_text(self.narrower)
        text = f"Is the standard deviation of {self.value_name} over seeds"
        if assertion == "equality":
            text += f" the same with {wider} as with {narrower}, within"
        else:
            text += f" larger with {wider} than with {narrower}, by more than"
        return f"{text} a factor of {self.margin:g}{self.conditions()}?"

    def values(self, sample: Sample, seeds: Sequence[int]) -> dict[int, float]:
        """Return the jackknife pseudovalue for each seed."""
        wider, narrower = map(sample.values, sample.cells)

        def logarithm(chosen: Sequence[int]) -> float:
            deviations = (stdev(side[seed] for seed in chosen) for side in (wider, narrower))
            first, second = map(_logarithm, deviations)
            return first - second

        n, whole = len(seeds), logarithm(seeds)
        without = {seed: logarithm([other for other in seeds if other != seed]) for seed in seeds}
        return {seed: n * whole - (n - 1) * rest for seed, rest in without.items()}

    def behind(self, sample: Sample, seeds: Sequence[int]) -> dict[str, float]:
        """Return the standard deviation of each side."""
        values = {side: sample.values(side) for side in sample.cells}
        return {side: stdev(of[seed] for seed in seeds) for side, of in values.items()}

    def decide_values(self, values: Sequence[float], look: Analysis, assertion: str) -> Decision:
        m, equality = self.margin, assertion == "equality"
        decided = decide(values, margin=math.log(m), equality=equality, error=look.share)
        return corrected_for_look(decided, look, bounds=(1.0, m, 1 / m), form="factor")


def _logarithm(value: float) -> float:
    return math.log(value) if value > 0 else math.nan


class Level(StudyEndpoint, frozen=True, kw_only=True):
    """A bound on the value of one setting: is the value above the bound?

    level: {of: {norm: bn}, above: 0.5, margin: 0}     the margin is optional

    In a part that claims equality: does the value differ from the bound by less than the margin?
    """

    assertions: ClassVar[tuple[str, ...]] = ("difference", "equality", "figure")

    of: Setting
    above: float
    margin: Annotated[float, Meta(ge=0)] = 0.0

    @property
    def limits(self) -> tuple[float, float]:
        return self.above - self.margin, self.above + self.margin

    @property
    def sides(self) -> list[Where]:
        return [self.of]

    def question(self, assertion: str) -> str:
        if assertion == "equality":
            text = f"Is {self.value_name} within {self.margin:g} of {self.above:g}"
        else:
            by = f" by more than {self.margin:g}" if self.margin else ""
            text = f"Is {self.value_name} above {self.above:g}{by}"
        return f"{text} with {where_text(self.of)}{self.conditions()}?"

    def decide_values(self, values: Sequence[float], look: Analysis, assertion: str) -> Decision:
        m, bound, equality = self.margin, self.above, assertion == "equality"
        above_bound = [value - bound for value in values]
        decided = decide(above_bound, margin=m, equality=equality, error=look.share)
        if (above := decided.estimate) is None:
            return replace(decided, same_value=fmean(values))
        mean, low, high = (bound + value for value in (above.mean, above.low, above.high))
        decided = replace(decided, estimate=replace(above, mean=mean, low=low, high=high))
        return corrected_for_look(decided, look, bounds=(bound - m, bound, bound + m))


class Reported(StudyEndpoint, frozen=True, kw_only=True):
    """A value reported by an article: is it inside the confidence interval of one setting?

    reported: {of: {norm: bn}, value: 28.7, data: {task: iwslt}}

    `data` is the article's data. Runs on different data are not compared with the article's value.
    """

    assertions: ClassVar[tuple[str, ...]] = ("figure",)
    corrected_verdicts: ClassVar[tuple[Verdict, ...]] = CORRECTED_FOR_FIGURES

    of: Setting
    value: float
    data: Setting

    @property
    def sides(self) -> list[Where]:
        return [self.of]

    def question(self, assertion: str) -> str:
        interval = f"the interval of {self.value_name} with {where_text(self.of)}"
        return f"Does {interval} contain {self.value:g}{self.conditions(data=self.data)}?"

    def why_unusable(self, runs: Sequence[RunRecord]) -> str | None:
        for run in runs:
            for key, of_article in self.data.items():
                if written(value := lookup(run, key)) != written(of_article):
                    return f"other data: {key}={value}, the article's is {key}={of_article}"
        return None

    def decide_values(self, values: Sequence[float], look: Analysis, assertion: str) -> Decision:
        return corrected_for_look(decision.contains(values, self.value, look), look)


class Trains(StudyEndpoint, frozen=True, kw_only=True):
    """The number of seeds that train in a setting, compared with a reference setting.

    trains: {side: {norm: none}, reference: {norm: ln}}

    The reference is optional for parts with `assertion: trains`. A run trains if it finishes
    clearly better than the untrained baseline (`metrics.baseline`). With nuisance keys, a seed
    trains if all its runs do.
    """

    assertions: ClassVar[tuple[str, ...]] = ("trains", "fails")

    side: Setting
    reference: Chosen = field(default_factory=dict)

    @property
    def unit(self) -> Unit:
        return "seeds"

    @property
    def sides(self) -> list[Where]:
        return [self.side, *([self.reference] if self.reference else [])]

    def question(self, assertion: str) -> str:
        side, reference = where_text(self.side), where_text(self.reference)
        if assertion in _FEWER:
            text = f"Do fewer runs train with {side} than with {reference}"
            text = text if reference else f"Does no run train with {side}"
        else:
            text = f"Do all runs train with {side}{f', as with {reference}' if reference else ''}"
        return f"{text}, judged by {self.scores[0]}{self.conditions('for each')}?"

    def decide_at(
        self, sample: Sample, seeds: Sequence[int], look: Analysis, assertion: str
    ) -> Decision:
        trained, fails = sample.train_counts(seeds), assertion in _FEWER
        side, *others = trained.values()
        reference = others[0] if others else None
        if reference is not None and not reference[0]:
            why = self.why_untrained(sample, where_text(self.reference), seeds)
            return stuck(why or REFERENCE_FAILS, trained)
        decided = decision.counts(side, reference, fails=fails, error=look.share)
        return corrected_for_look(replace(decided, trained=trained), look)
