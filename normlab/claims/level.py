"""The endpoints `level` and `document`: one setting against a bound or a document's figure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

from msgspec import Meta

from normlab.claims.asked import (
    Asked,
    StudyEndpoint,
    diverged,
    mean_of,
    per_seed,
    scores_text,
    train_text,
)
from normlab.claims.endpoint import Side, keys
from normlab.claims.judge import (
    CONSTANT,
    LOOKS,
    UNDECIDED,
    Decision,
    Judgement,
    constant,
    decide,
    figures,
    interval_text,
    of_decision,
    sequential,
    stuck,
)
from normlab.claims.runs import Runs, Where, value_of
from normlab.claims.sample import Sample
from normlab.metrics.spread import p_value, t_interval


class Level(StudyEndpoint, frozen=True, kw_only=True):
    """One setting, of which a figure is to lie above or below a bound.

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

    kind: ClassVar[str] = "level"
    says: ClassVar[tuple[str, ...]] = ("difference", "equality", "figure")

    of: Side
    above: float | None = None
    below: float | None = None
    margin: Annotated[float, Meta(ge=0)] = 0.0
    minus: str | None = None

    def __post_init__(self) -> None:
        """Refuse two bounds, or none."""
        if (self.above is None) == (self.below is None):
            raise ValueError("needs exactly one of above and below")

    @property
    def bound(self) -> float:
        """Return the bound."""
        (bound,) = (each for each in (self.above, self.below) if each is not None)
        return bound

    @property
    def sides(self) -> list[Where]:
        """Return the one setting."""
        return [self.of]

    def question(self, says: str) -> str:
        name = scores_text(self.scores, self.minus)
        way = "below" if self.above is None else "above"
        by = f" by more than {self.margin:g}" if self.margin else ""
        return f"{name} {way} {self.bound:g}{by} with {keys(self.of)}{self.within('mean over')}"

    def judge(self, runs: Runs, says: str) -> Judgement:
        side = keys(self.of)
        asked = self.asked(runs, self.of, minus=self.minus)
        if (unanswered := asked.without_answer(self._shown)) is not None:
            return unanswered
        values = per_seed(asked.sample, side, self.scores, minus=self.minus)
        sign = -1 if self.above is None else 1

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


def stopped(asked: Asked, side: str, seeds: Sequence[int]) -> Judgement | None:
    """Say why a side's figures cannot be taken: some diverged, is at the floor, not finite."""
    scores = asked.query.scores
    if diverged(asked.sample, side, seeds):
        return stuck("not all seeds train", found=train_text(asked.sample, scores, seeds))
    return asked.stopped(per_seed(asked.sample, side, scores), seeds)


def mean_text(values: dict[int, float]) -> str:
    """Write the mean over all seeds; nothing where there is none."""
    return f"mean {figures(mean_of(values, list(values)))[0]}" if values else ""


class Document(StudyEndpoint, frozen=True, kw_only=True):
    """One setting, of which the document states a figure.

    document:
      study: translation
      scale: gpu
      score: test/bleu_tok
      of: {norm: bn}
      where: {placement: pre}           optional
      over: [batching]                  optional: nuisances, averaged within a seed
      value: 28.7
      data: {task: iwslt}               the document's own; on other data nothing is compared

    The side is chosen by the options of groups and by dotted keys of the config.
    """

    kind: ClassVar[str] = "document"
    says: ClassVar[tuple[str, ...]] = ("figure",)

    of: Side
    value: float
    data: Side

    @property
    def sides(self) -> list[Where]:
        """Return the one setting."""
        return [self.of]

    def question(self, says: str) -> str:
        where = keys({**self.data, **self.where})
        name = scores_text(self.scores)
        return f"the interval of {name} with {keys(self.of)} holds {self.value:g}; {where}"

    def judge(self, runs: Runs, says: str) -> Judgement:
        side = keys(self.of)
        asked = self.asked(runs, self.of)
        if (other := self._other_data(asked)) is not None:
            return asked.finding(Judgement("not measured", reason=f"other data: {other}"))
        if (unanswered := asked.without_answer(self._shown)) is not None:
            return unanswered
        values = per_seed(asked.sample, side, self.scores)

        def look(chosen: Sequence[int], share: float) -> Decision:
            if stopped(asked, side, chosen) is not None:
                return UNDECIDED
            figures = [values[seed] for seed in chosen]
            if constant(figures):
                return Decision("undecided", 1.0, None, CONSTANT)
            interval = t_interval(figures, confidence=1 - share)
            holds = interval.low <= self.value <= interval.high
            p = p_value(interval, against=self.value)
            # To hold it is no reason to stop: only the last look may say so.
            last = len(chosen) == LOOKS[-1].seeds
            verdict = "contradicted" if not holds else "supported" if last else "undecided"
            return Decision(verdict, p, interval, confidence=1 - share)

        at, decision = sequential(asked.sample.seeds, look)
        used = asked.sample.seeds[: at.seeds]
        stop = stopped(asked, side, used)
        return asked.finding(stop or of_decision(decision, at), used)

    def _other_data(self, asked: Asked) -> str | None:
        """Say which data the runs are of, where they are not of the document's."""
        cells = asked.sample.cells.values()
        runs = [run for cell in cells for each in cell.values() for run in each]
        for run in runs:
            for key, wanted in self.data.items():
                if str(value_of(run.config, key)) != str(wanted):
                    return f"{key}={value_of(run.config, key)}, the document's is {key}={wanted}"
        return None

    def _shown(self, sample: Sample) -> str:
        """Put runs into words that decide nothing."""
        return mean_text(per_seed(sample, keys(self.of), self.scores)) or "no finite figure"
