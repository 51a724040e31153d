"""The endpoints of one setting: `level` and `document` by a value, `trains` by counts of seeds."""

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, ClassVar

from msgspec import Meta, field

from normlab.claims.contrast import NOT_ALL
from normlab.claims.endpoint import Chosen, Side, keys
from normlab.claims.judge import (
    CONSTANT,
    LOOKS,
    Decision,
    Judgement,
    Look,
    against,
    alone,
    constant,
    decide,
    figures,
    interval_text,
    of_decision,
    stuck,
)
from normlab.claims.runs import Where, value_of
from normlab.claims.sample import Sample, SeedsEndpoint, stopped
from normlab.metrics.spread import p_value, t_interval
from normlab.records.record import RunRecord


class _OneSetting(SeedsEndpoint, frozen=True, kw_only=True):
    """A question about the value of one setting, of which all seeds have to train."""

    of: Side

    @property
    def sides(self) -> list[Where]:
        """Return the one setting."""
        return [self.of]

    def at_look(self, sample: Sample, seeds: Sequence[int], look: Look, says: str) -> Judgement:
        if sample.diverged(seeds):
            return stuck(NOT_ALL, found=sample.train_text(seeds))
        values = sample.figures(keys(self.of))
        if (stop := stopped(sample, values, seeds)) is not None:
            return stop
        return self.of_figures([values[seed] for seed in seeds], look, says)

    def of_figures(self, values: Sequence[float], look: Look, says: str) -> Judgement:
        """Judge finite values, one per seed."""
        raise NotImplementedError

    def shown(self, sample: Sample) -> str:
        values = list(sample.figures(keys(self.of)).values())
        return _mean_text(values) if values else f"{sample.diverged(sample.seeds)} diverged"


def _mean_text(values: Sequence[float]) -> str:
    return f"mean {figures(fmean(values))[0]}"


class Level(_OneSetting, frozen=True, kw_only=True):
    """One setting whose value is to be above or below a bound.

    level:
      study: translation
      scale: small
      score: test/bleu
      of: {norm: bn}                    options of groups and dotted keys of the config
      where: {placement: pre}           optional
      over: [batching]                  optional: nuisances, averaged within a seed
      above: 0.5                        or below
      margin: 0                         optional
      minus: test/loss                  optional: subtracted from each score, run by run
    """

    kind: ClassVar[str] = "level"
    says: ClassVar[tuple[str, ...]] = ("difference", "equality", "figure")

    above: float | None = None
    below: float | None = None
    margin: Annotated[float, Meta(ge=0)] = 0.0
    minus: str | None = None

    def __post_init__(self) -> None:
        """Refuse two bounds, or none."""
        if (self.above is None) == (self.below is None):
            raise ValueError("needs exactly one of above and below")

    def question(self, says: str) -> str:
        way = f"below {self.below:g}" if self.above is None else f"above {self.above:g}"
        by = f" by more than {self.margin:g}" if self.margin else ""
        return f"{self.figure} {way}{by} with {keys(self.of)}" + self.within("mean over")

    def of_figures(self, values: Sequence[float], look: Look, says: str) -> Judgement:
        sign, bound = (1, self.above) if self.above is not None else (-1, self.below)
        assert bound is not None
        differences = [sign * (value - bound) for value in values]
        equality = says == "equality"
        decision = decide(differences, margin=self.margin, equality=equality, error=look.share)
        if (found := decision.interval) is None:
            return of_decision(decision, look, detail=_mean_text(values))
        low, high = sorted(bound + sign * end for end in (found.low, found.high))
        mean = bound + sign * found.mean
        bounds = [bound + times * self.margin for times in (-1, 0, 1)]
        said = interval_text(mean, low, high, bounds)
        return of_decision(decision, look, found=said, mean=mean, low=low, high=high)


class Document(_OneSetting, frozen=True, kw_only=True):
    """One setting whose value a document states.

    document:
      study: translation
      scale: paper
      score: test/bleu_tok
      of: {norm: bn}                    options of groups and dotted keys of the config
      where: {placement: pre}           optional
      over: [batching]                  optional: nuisances, averaged within a seed
      value: 28.7
      data: {task: iwslt}               the document's own; on other data nothing is compared
    """

    kind: ClassVar[str] = "document"
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

    def of_figures(self, values: Sequence[float], look: Look, says: str) -> Judgement:
        if constant(values):
            return of_decision(Decision("undecided", 1.0, reason=CONSTANT), look)
        interval = t_interval(values, confidence=1 - look.share)
        p = p_value(interval, against=self.value)
        # An interval that holds the value is no reason to stop: only the last look may say so.
        verdict = "supported" if look == LOOKS[-1] else "undecided"
        if not interval.low <= self.value <= interval.high:
            verdict = "contradicted"
        return of_decision(Decision(verdict, p, interval, confidence=1 - look.share), look)


class Trains(SeedsEndpoint, frozen=True, kw_only=True):
    """The counts of seeds that train on a side, compared with those of a reference.

    trains:
      study: translation
      scale: small
      score: test/bleu                  compared with the floor that the run knows
      side: {norm: none}
      reference: {norm: ln}             optional if the part says trains
      where: {placement: pre}           optional
      over: [batching]                  optional: a seed trains if all its runs do

    A seed that diverged, or ended at the floor, did not train.
    """

    kind: ClassVar[str] = "trains"
    says: ClassVar[tuple[str, ...]] = ("trains", "fails")

    side: Side
    reference: Chosen = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a side against itself."""
        if self.side == self.reference:
            raise ValueError("reference: is the same as side; name another setting")

    @property
    def sides(self) -> list[Where]:
        """Return the side, and its reference if it has one."""
        return [self.side, *([self.reference] if self.reference else [])]

    def question(self, says: str) -> str:
        sides = ", against ".join(self.labels)
        return f"how many seeds train with {sides}, by {self.scores[0]}{self.within('in each')}"

    def at_look(self, sample: Sample, seeds: Sequence[int], look: Look, says: str) -> Judgement:
        said, fails = sample.train_text(seeds), says in ("fails", "difference")
        side, *others = ((sample.train_count(label, seeds), len(seeds)) for label in self.labels)
        if not others:
            return of_decision(alone(side, fails=fails, error=look.share), look, found=said)
        if not others[0][0]:
            floor = sample.floor(keys(self.reference), seeds)
            return stuck(floor or "no seed of the reference trains", found=said)
        found = against(side, others[0], fails=fails, error=look.share)
        return of_decision(found, look, found=said)

    def shown(self, sample: Sample) -> str:
        return sample.train_text(sample.seeds)
