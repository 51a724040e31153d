"""The kinds of endpoints in claim files.

`contrast`, `gap`, `level`, `document` and `trains` are decided by the runs of a study; `computed`,
`timing` and `published` need no runs.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean, geometric_mean
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from normlab.claims import judge
from normlab.claims.evidence import BENCH, Place, Runs, Where
from normlab.claims.judge import FEWEST, Count, Judgement, Look, at_look, decide, figures, stuck
from normlab.claims.seeds import Chosen, Endpoint, Sample, StudyEndpoint, Text, keys
from normlab.records.record import RunRecord
from normlab.records.store import lookup, written

Side = Annotated[Chosen, Meta(min_length=1)]


class Difference(StudyEndpoint, frozen=True, kw_only=True):
    """Base class of endpoints about the difference between two settings, in the unit of the score.

    better: {norm: ln}                     the claimed direction
    worse: {norm: bn}
    in: {batching: bucket}                 optional, with than_in: an interaction, where
    than_in: {batching: random}            the difference is larger `in` than `than_in`
    measure: true                          optional: a probe's value, for which less is better
    ratio: true                            optional: a factor, such as 1.25, instead of a difference
    """

    better: Side
    worse: Side
    inside: Chosen = field(name="in", default_factory=dict)
    outside: Chosen = field(name="than_in", default_factory=dict)
    measure: bool = False
    ratio: bool = False

    def __post_init__(self) -> None:
        if bool(self.inside) != bool(self.outside):
            raise ValueError("in: an interaction needs both in and than_in; set both or neither")

    @property
    def sides(self) -> list[Where]:
        """Return the two sides; for an interaction, the four sides with the `in` pair first."""
        places = (self.inside, self.outside) if self.inside else ({},)
        return [{**side, **place} for place in places for side in (self.better, self.worse)]

    def values(self, sample: Sample) -> dict[int, float]:
        """Return the difference per seed; for an interaction, the difference of differences."""
        sides = [sample.figures(side) for side in sample.cells]
        runs = chain.from_iterable(next(iter(sample.cells.values())).values())
        scores = [score for run in runs if run.finished and (score := run.figure(self.scores[0]))]
        sign = -1 if self.measure or (scores and not scores[0].higher_is_better) else 1
        scaled = _logarithm if self.ratio else float
        found: dict[int, float] = {}
        for seed in sorted(set.intersection(*map(set, sides))):
            better, worse, *others = (scaled(side[seed]) for side in sides)
            found[seed] = sign * (better - worse - (others[0] - others[1] if others else 0.0))
        return found

    def detail(self, sample: Sample, seeds: Sequence[int]) -> str:
        """Format the sides' means; with `ratio` geometric means, whose ratio is the factor."""
        sides = [[values[seed] for seed in seeds] for values in map(sample.figures, sample.cells)]
        mean = geometric_mean if self.ratio else fmean
        said = figures(*map(mean, sides))
        pairs = [f"{a} against {b}" for a, b in zip(said[::2], said[1::2], strict=True)]
        places = [keys(self.inside), keys(self.outside)] if self.inside else []
        return "; ".join(map(": ".join, zip(places, pairs, strict=True))) if places else pairs[0]


class Contrast(Difference, frozen=True, kw_only=True):
    """A comparison of two settings: is the first better by more than the margin?

    contrast: {better: {norm: ln}, worse: {norm: bn}, margin: 0.5}

    If a seed diverged, the counts of trained seeds are compared instead.
    """

    says: ClassVar[tuple[str, ...]] = ("difference", "equality")

    margin: float

    def __post_init__(self) -> None:
        super().__post_init__()
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

    def of_counts(self, counted: Sequence[Count], look: Look, says: str) -> Judgement | None:
        if self.inside:
            return None
        found = judge.less_often(counted[1], counted[0], error=look.share)
        differ = says == "equality" and found.verdict == "supported"
        return replace(found, verdict="contradicted") if differ else found

    def of_values(self, values: Sequence[float], look: Look, says: str) -> Judgement:
        m, equality = self.margin, says == "equality"
        margin, bounds = (math.log(m), (1.0, m, 1 / m)) if self.ratio else (m, (0.0, m, -m))
        found = decide(values, margin=margin, equality=equality, error=look.share)
        return at_look(found, look, bounds=bounds, ratio=self.ratio)


class Gap(Difference, frozen=True, kw_only=True):
    """A difference reported by an article: does the confidence interval of ours contain it?

    gap: {better: {norm: ln}, worse: {norm: bn}, value: 6.5}

    It is asked on other data only where a claim speaks of the difference in general.
    """

    says: ClassVar[tuple[str, ...]] = ("figure",)

    value: float

    def question(self, says: str) -> str:
        sides = f"{keys(self.better)} over {keys(self.worse)}"
        inside = f", in {keys(self.inside)} less in {keys(self.outside)}" if self.inside else ""
        asked = f"the interval of the gain in {self.figure} of {sides}{inside} holds"
        return f"{asked} {self.value:g}{self.within()}"

    def of_values(self, values: Sequence[float], look: Look, says: str) -> Judgement:
        wanted = _logarithm(self.value) if self.ratio else self.value
        found = judge.contains(values, wanted, look)
        return at_look(found, look, bounds=(self.value,), ratio=self.ratio)


def _logarithm(value: float) -> float:
    return math.log(value) if value > 0 else math.nan


class Level(StudyEndpoint, frozen=True, kw_only=True):
    """A bound on the value of one setting: is the value above it?

    level: {of: {norm: bn}, above: 0.5, margin: 0}     the margin is optional
    """

    says: ClassVar[tuple[str, ...]] = ("difference", "figure")

    of: Side
    above: float
    margin: Annotated[float, Meta(ge=0)] = 0.0

    @property
    def sides(self) -> list[Where]:
        return [self.of]

    def question(self, says: str) -> str:
        by = f" by more than {self.margin:g}" if self.margin else ""
        return f"{self.figure} above {self.above:g}{by} with {keys(self.of)}" + self.within()

    def of_values(self, values: Sequence[float], look: Look, says: str) -> Judgement:
        m, bound = self.margin, self.above
        found = decide([v - bound for v in values], margin=m, equality=False, error=look.share)
        if found.interval is None:
            found = replace(found, detail=f"mean {figures(fmean(values))[0]}")
            return at_look(found, look)
        mean, low, high = (bound + value for value in found.interval)
        found = replace(found, interval=(mean, low, high))
        return at_look(found, look, bounds=(bound - m, bound, bound + m))


class Document(StudyEndpoint, frozen=True, kw_only=True):
    """A value reported by an article: does the confidence interval of one setting contain it?

    document: {of: {norm: bn}, value: 28.7, data: {task: iwslt}}

    `data` is the article's data; runs on other data are not compared with it.
    """

    says: ClassVar[tuple[str, ...]] = ("figure",)

    of: Side
    value: float
    data: Side

    @property
    def sides(self) -> list[Where]:
        return [self.of]

    def question(self, says: str) -> str:
        where = keys({**self.data, **self.where})
        return f"the interval of {self.figure} with {keys(self.of)} holds {self.value:g}; {where}"

    def refused(self, runs: Sequence[RunRecord]) -> str | None:
        for run in runs:
            for key, wanted in self.data.items():
                if written(found := lookup(run, key)) != written(wanted):
                    return f"other data: {key}={found}, the document's is {key}={wanted}"
        return None

    def of_values(self, values: Sequence[float], look: Look, says: str) -> Judgement:
        return at_look(judge.contains(values, self.value, look), look)


class Trains(StudyEndpoint, frozen=True, kw_only=True):
    """The number of seeds that train in one setting, compared with a reference setting.

    trains: {side: {norm: none}, reference: {norm: ln}}

    The reference is optional for parts with `says: trains`. A run trains if it finishes clearly
    better than the untrained baseline (`metrics.spread`).
    With nuisances, a seed trains if all its runs do.
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
        found = judge.counts(side, reference, fails=fails, error=look.share)
        return at_look(replace(found, found=said), look)


class Published(Endpoint, frozen=True):
    """A verdict from published sources, or the reason why nothing can measure the part yet.

    published: {standing: contradicts, reason: "T5 and LLaMA use RMSNorm."}
    """

    standing: Literal["supports", "contradicts", "missing"]
    reason: Text

    def question(self, says: str) -> str:
        known = self.standing != "missing"
        return "published code and papers" if known else "nothing measures it yet"

    def judge(self, runs: Runs, says: str) -> Judgement:
        if self.standing == "missing":
            return Judgement("not measured", reason=self.reason)
        verdict = "supported" if self.standing == "supports" else "contradicted"
        return Judgement(verdict, found=self.reason, grade="D")


class Computed(Endpoint, frozen=True):
    """The findings of a computed check; `only` selects findings by the start of their question.

    computed: {check: batch.mates, only: [bn in training]}
    """

    check: Annotated[str, Meta(pattern=r"^[a-z_0-9]+\.[a-z_0-9]+$")]
    only: tuple[str, ...] = ()

    def question(self, says: str) -> str:
        return f"the check {self.check}" + (f": {'; '.join(self.only)}" if self.only else "")

    def judge(self, runs: Runs, says: str) -> Judgement:
        pieces = runs.computed.get(self.check, ())
        chosen = [piece for piece in pieces if piece.question.startswith(self.only or ("",))]
        if not chosen:
            known = "; ".join(piece.question for piece in pieces)
            reason = f"`only` fits no question: {known}" if pieces else "not computed"
            command = "`normlab claims --compute` (seconds)"
            return Judgement("not measured", reason=reason, to_measure=command)
        holds = all(piece.standing == "supports" for piece in chosen)
        said = ". ".join(f"{piece.question}: {piece.finding}" for piece in chosen)
        return Judgement("supported" if holds else "contradicted", found=said, grade="D")


class Timing(Endpoint, frozen=True):
    """A comparison of two candidates in a group by their times: is the first faster?

    timing:
      faster: bn folded
      than: ln
      group: "model, 1 sentence"
      margin: 0.02                 optional: a share of the time
      report: norms_vit            optional: results/bench/norms_vit.json; default norms.json
      measured: model=vit          optional: arguments for `python scripts/bench norms`
      seen: true                   optional: written after this report was seen, which shows but
                                   does not decide

    Names are those printed by `python scripts/bench norms`. The share of time saved is computed per
    round within one process, so the interval covers noise, not differences between machines. The p
    values of a report are corrected together, like those of a study.
    """

    says: ClassVar[tuple[str, ...]] = ("difference",)

    faster: Text
    slower: Text = field(name="than")
    group: Text
    margin: Annotated[float, Meta(ge=0, lt=1)] = 0.02
    report: str = "norms"
    measured: str = ""
    seen: bool = False

    @property
    def family(self) -> Place | None:
        return BENCH, self.report

    def question(self, says: str) -> str:
        by = f"by more than {self.margin:.0%}"
        return f"{self.faster} faster than {self.slower} ({self.group}), {by}"

    def judge(self, runs: Runs, says: str) -> Judgement:
        timings = runs.timings.get(self.report)
        group = timings.groups.get(self.group, ()) if timings else ()
        named = {each.name: each for each in group}
        if timings is None or not named.keys() >= {self.faster, self.slower}:
            command = f"python scripts/bench norms {self.measured}".strip()
            command = f"`{command} --json results/{BENCH}/{self.report}.json` (minutes)"
            return Judgement("not measured", reason="no timings of both", to_measure=command)
        first, second = named[self.faster], named[self.slower]
        pairs = zip(first.ratios_to_first, second.ratios_to_first, strict=True)
        saved = [1 - own / other for own, other in pairs]
        medians = figures(first.milliseconds["median"], second.milliseconds["median"])
        where = timings.environment
        more: dict[str, Any] = {
            "detail": f"{' against '.join(medians)} ms",
            "n": len(saved),
            "repeats": "round",
            "grade": "C" if self.group.startswith("model") else "D",  # a norm alone
            "setting": f"{where['device']} {where['precision']}",
            "records": (timings.path,),
        }
        if (n := len(saved)) < FEWEST:
            return Judgement("not measured", reason=f"too few rounds ({n} of {FEWEST})", **more)
        found = decide(saved, margin=self.margin, equality=False)
        if found.interval is not None:
            mean, low, high = (f"{value:.1%}" for value in found.interval)
            more["found"] = f"{mean} [{low}, {high}] of the time saved"
            if found.smallest is not None:
                unshown = f"these rounds would have shown {found.smallest:.1%} (80 % power)"
                more["reason"] = found.reason or unshown
                more["unshown"] = "" if found.p_direction is None else unshown
        found = replace(found, p_look=found.p, **more)  # there is one look, at all rounds
        return judge.undecided_by_seen(found) if self.seen else found


KINDS: dict[str, type[Endpoint]] = {
    kind.__name__.lower(): kind
    for kind in (Contrast, Gap, Trains, Level, Document, Computed, Timing, Published)
}
