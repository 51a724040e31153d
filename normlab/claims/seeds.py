"""Endpoints that are decided by the runs of a study, and their runs by side and seed.

A run counts if it ended (finished or diverged), was made by committed code, tested its last weights
or their average, and has the score. A seed counts if all its runs on every side count, and these
runs differ only in the settings compared. Runs that do not count are listed with the reason.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, product
from statistics import fmean
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field

from normlab.claims.evidence import Place, Plan, Runs, Where
from normlab.claims.judge import (
    FEWEST,
    LOOKS,
    Count,
    Judgement,
    Look,
    at_look,
    sequential,
    stuck,
    undecided_by_seen,
)
from normlab.errors import UserError
from normlab.metrics.spread import at_baseline
from normlab.records.pairs import Experiment, spelled, varying, why_not_paired
from normlab.records.record import RunRecord
from normlab.records.store import fits, lookup, written

Text = Annotated[str, Meta(min_length=1)]
Chosen = dict[str, str | int | float | bool | None]
NOT_ALL = "not all seeds train"
_Point = tuple[str, ...]  # the values of the nuisance keys
Cells = Mapping[str, Mapping[int, tuple[RunRecord, ...]]]


def keys(where: Where) -> str:
    """Format a selection, such as `norm=bn placement=pre`."""
    return " ".join(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in where.items())


class Endpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """Base class of endpoints: primary ones, which decide their part, and secondary ones.

    `says` lists the `says` values of parts that this kind can decide; empty means all.
    """

    says: ClassVar[tuple[str, ...]] = ()

    @property
    def family(self) -> Place | None:
        """Return the study and scale, or the timings, whose p values are corrected together."""
        return None

    def question(self, says: str) -> str:
        """Describe the measurement in one line; `says` is the part's `says`."""
        raise NotImplementedError

    def judge(self, runs: Runs, says: str) -> Judgement:
        """Judge the available evidence before any correction; `says` is the part's `says`."""
        raise NotImplementedError


class StudyEndpoint(Endpoint, frozen=True, kw_only=True):
    """Base class of endpoints decided by a study's runs at one scale, at the planned analyses.

    In addition to its own keys, every kind has:

      study: translation
      scale: small
      score: [test/bleu, test_2017/bleu]     one score, or a list that is averaged per seed
      minus: test/loss                       optional: a score to subtract within each run
      where: {task: multi30k}                optional: the selection shared by all sides
      over: [placement]                      optional: nuisance keys, averaged per seed
      seen_seeds: 5                          optional: seeds 1 to 5 were seen before it was written

    An endpoint written after runs were seen is decided by five or more later seeds; until these are
    run, it is undecided, and the value of the runs that were seen is only shown.
    """

    study: Text
    scale: Text
    scores: Annotated[tuple[Text, ...], Meta(min_length=1)] = field(name="score")
    minus: str | None = None
    where: Chosen = field(default_factory=dict)
    over: tuple[Text, ...] = ()
    seen_seeds: Annotated[int, Meta(ge=0)] = 0

    @property
    def family(self) -> Place | None:
        return self.study, self.scale

    @property
    def sides(self) -> Sequence[Where]:
        """Return the settings to compare, or the single setting to measure."""
        raise NotImplementedError

    @property
    def labels(self) -> Mapping[str, Where]:
        return {keys(side): side for side in self.sides}

    @property
    def all_scores(self) -> tuple[str, ...]:
        return (*self.scores, *((self.minus,) if self.minus else ()))

    @property
    def figure(self) -> str:
        """Return the name of the value: the scores, and the score subtracted from each."""
        name = " and ".join(self.scores)
        return f"{name} minus {self.minus}" if self.minus else name

    def within(self, nuisances: str = "mean over") -> str:
        """Return the end of a question's text: the selection and the nuisance keys."""
        where = f"; {keys(self.where)}" if self.where else ""
        mean = f"; {nuisances} {', '.join(self.over)}" if self.over else ""
        return where + mean + (f"; seeds after {self.seen_seeds}" if self.seen_seeds else "")

    def unseen(self, sample: "Sample") -> tuple[int, ...]:
        """Return the seeds that were not seen before the endpoint was written."""
        return tuple(seed for seed in sample.seeds if seed > self.seen_seeds)

    def refused(self, runs: Sequence[RunRecord]) -> str | None:
        """Return why these runs cannot answer the question; None if they can."""
        return None

    def values(self, sample: "Sample", seeds: Sequence[int]) -> dict[int, float]:
        """Return the value of each of the seeds to judge, by default that of the first side."""
        figures = sample.figures(next(iter(sample.cells)))
        return {seed: figures[seed] for seed in seeds}

    def of_values(self, values: Sequence[float], look: Look, says: str) -> Judgement:
        """Judge the values if all seeds train."""
        raise NotImplementedError

    def of_counts(self, counted: Sequence[Count], look: Look, says: str) -> Judgement | None:
        """Judge by the counts of trained seeds if a seed diverged; None if this kind cannot."""
        return None

    def detail(self, sample: "Sample", seeds: Sequence[int]) -> str:
        """Return the values behind a judgement as text."""
        return ""

    def at_look(self, sample: "Sample", seeds: Sequence[int], look: Look, says: str) -> Judgement:
        """Judge seeds at one planned analysis: by value or, if any diverged, by how many train."""
        trained, counted = sample.train_text(seeds), list(sample.train_counts(seeds).values())
        if not all(run.finished for run in sample.runs(seeds)):
            found = self.of_counts(counted, look, says)
            return (
                at_look(replace(found, found=trained), look) if found else stuck(NOT_ALL, trained)
            )
        values = self.values(sample, seeds)
        odd = [str(seed) for seed in seeds if not math.isfinite(values[seed])]
        floors = [low for side in sample.cells if (low := sample.floor(side, seeds)) is not None]
        if floors or odd:
            return stuck(floors[0] if floors else f"no finite value at seed {', '.join(odd)}")
        if any(train < n for train, n in counted):
            return stuck(NOT_ALL, trained)
        found = self.of_values([values[seed] for seed in seeds], look, says)
        return replace(found, detail=self.detail(sample, seeds) or found.detail)

    def judge(self, runs: Runs, says: str) -> Judgement:
        plan = runs.plan(self.study, self.scale)
        for side in self.sides:
            if not plan.may_choose(asked := {**self.where, **side}):
                raise UserError(
                    f"{self.study} at scale={self.scale} plans no run with {keys(asked)}; "
                    f"planned: {'; '.join(plan.names)}"
                )
        there = runs.made.get((self.study, self.scale), {})
        sample = collect(runs, self)
        all_runs = [run for cell in sample.cells.values() for each in cell.values() for run in each]
        unseen = self.unseen(sample)
        all_seen = bool(sample.seeds) and len(unseen) < FEWEST and self.seen_seeds > 0
        if not all_seen:
            sample = replace(sample, seeds=unseen)
        n, chosen = len(sample.seeds), sample.seeds
        if refused := self.refused(all_runs) or sample.problem:
            found = Judgement("not measured", reason=refused)
        elif plan.scale.pilot:
            found = Judgement("not measured", reason="a pilot: it decides nothing", n=n)
        elif n >= FEWEST:
            look, found = sequential(
                sample.seeds, lambda seeds, look: self.at_look(sample, seeds, look, says)
            )
            chosen = sample.seeds[: look.seeds]
            found = undecided_by_seen(found) if all_seen else found
        else:
            reason = "no run counts" if sample.excluded else "no runs"
            reason = f"too few seeds ({n} of {FEWEST})" if n else reason
            found = Judgement("not measured", reason=reason)
        more = "" if found.stuck or sample.problem else self._next(plan, len(unseen), runs)
        counted = sample.train_counts(chosen) if chosen and found.interval is None else {}
        return replace(
            found,
            grade=plan.scale.grade,
            setting=self._setting(plan, all_runs),
            trained=tuple((side, *each) for side, each in counted.items()),
            excluded=sample.excluded,
            n=found.n or len(chosen),
            records=tuple(there[run.run_id].folder for run in sample.runs(chosen)),
            to_measure=more,
        )

    def _setting(self, plan: Plan, runs: Sequence[RunRecord]) -> str:
        """Describe the data and model size, such as `Multi30k de-en, 2+2 layers`."""
        sizes = sorted({size for run in runs if (size := _layers(run))}, key=len)
        layers = f", {' to '.join((sizes[0], sizes[-1])[: len(sizes)])} layers" if sizes else ""
        return plan.scale.data_name + layers

    def _next(self, plan: Plan, have: int, runs: Runs) -> str:
        """Return the command that runs the seeds up to the next planned analysis, with its cost."""
        study, scale = plan.study, plan.scale
        target = next((look.seeds for look in LOOKS if look.seeds > have), None)
        if target is None:
            return ""
        planned, hours = study.cost(self.scale)
        seeds = target - have
        # Use new seeds: completing a partly run seed could pair runs from two machines.
        there = runs.made.get((self.study, self.scale), {}) if have or self.seen_seeds else {}
        made = {record.seed for record, _ in there.values()}
        after = count(self.seen_seeds + 1)
        new = list(islice((seed for seed in after if seed not in made), seeds))
        given = "" if sorted(scale.seeds) == new else f" seeds={','.join(map(str, new))}"
        runs_left, hours_left = (each * seeds / len(scale.seeds) for each in (planned, hours))
        cost = f"{runs_left:.0f} runs, about {hours_left:.1f} h; data: {scale.data}"
        return f"`normlab study run {study.name} scale={self.scale}{given}` ({cost})"


def _layers(run: RunRecord) -> str | None:
    """Return the number of layers of a run's model, such as `2+2` or `12`."""
    model = run.config.get("model") or {}
    sizes = [model.get(key) for key in ("encoder_layers", "decoder_layers", "num_layers")]
    return "+".join(str(size) for size in sizes if size is not None) or None


@dataclass(frozen=True)
class Sample:
    """The seeds that count and their runs; if there are none, `problem` may say why.

    `cells` has the runs by side and seed, one run per nuisance setting.
    """

    endpoint: StudyEndpoint
    cells: Cells
    seeds: tuple[int, ...]
    excluded: tuple[str, ...] = ()
    problem: str | None = None

    def figures(self, side: str) -> dict[int, float]:
        """Return a side's value per seed: the mean over scores, then over nuisance settings."""
        cells = self.cells[side].items()
        ended = ((seed, runs) for seed, runs in cells if all(run.finished for run in runs))
        return {seed: fmean(map(self._value, runs)) for seed, runs in ended}

    def _value(self, run: RunRecord) -> float:
        found = (run.figure(score) for score in self.endpoint.all_scores)
        values = [each.value for each in found if each is not None]
        less = values.pop() if self.endpoint.minus else 0.0
        return fmean(value - less for value in values)

    @property
    def higher_is_better(self) -> bool:
        """Return the direction of the first score, as its runs recorded it."""
        runs = (run for cell in self.cells.values() for each in cell.values() for run in each)
        scores = (run.figure(self.endpoint.scores[0]) for run in runs if run.finished)
        return next((score.higher_is_better for score in scores if score is not None), True)

    def runs(self, seeds: Sequence[int]) -> list[RunRecord]:
        return [run for cell in self.cells.values() for seed in seeds for run in cell[seed]]

    def train_counts(self, seeds: Sequence[int]) -> dict[str, Count]:
        """Return by side how many seeds train (all runs finish and clearly beat the baseline)."""
        scores, n = self.endpoint.scores, len(seeds)

        def train(runs: Sequence[RunRecord]) -> bool:
            return all(r.finished and at_baseline([r], s) is None for r in runs for s in scores)

        return {k: (sum(train(cell[seed]) for seed in seeds), n) for k, cell in self.cells.items()}

    def train_text(self, seeds: Sequence[int]) -> str:
        """Return how many seeds of each side train, with a lower bound on the share if all do."""
        n = len(seeds)
        every = f" (at least {math.floor(100 * 0.025 ** (1 / n))} %)"  # Clopper and Pearson 1934
        counts = self.train_counts(seeds).items()
        said = [f"{side} {k}/{n}{every if k == n else ''}" for side, (k, _) in counts]
        return f"train: {', '.join(said)}"

    def floor(self, side: str, seeds: Sequence[int]) -> str | None:
        """Return which score shows that a side does not train; None if every setting trains."""
        for runs in zip(*(self.cells[side][seed] for seed in seeds), strict=True):
            finished = [run for run in runs if run.finished]
            for score in self.endpoint.all_scores:
                if (found := at_baseline(finished, score)) is not None:
                    return f"{side}: {found}"
        return None


def unfit(record: RunRecord, scores: Sequence[str]) -> str | None:
    """Return why a run cannot be used as evidence in any comparison; None if it can."""
    if (status := record.outcome.status) not in ("finished", "diverged"):
        return f"did not end ({status})"
    dirty = record.environment.get("dirty")
    if dirty is not False:
        return "made by uncommitted code" if dirty else "not known to be made by clean code"
    if not record.finished:
        return None
    if lacking := [score for score in scores if record.figure(score) is None]:
        return f"lacks {lacking[0]}"
    if all(score in record.stability for score in scores):
        return None
    if not record.weights:
        return "tested weights chosen by loss"
    chosen = {"last", "average"}.isdisjoint(record.weights)
    return "tested weights chosen by a score" if chosen else None


def collect(runs: Runs, endpoint: StudyEndpoint) -> Sample:
    """Collect the runs of a study for an endpoint; `UserError` if a run is on both sides."""
    over, there = endpoint.over, runs.made.get((endpoint.study, endpoint.scale), {})
    every = [record for record, _ in there.values()]
    reasons: Counter[str] = Counter()
    sides: dict[str, dict[tuple[int, _Point], RunRecord]] = {}
    found: dict[str, str] = {}
    for label, side in endpoint.labels.items():
        sides[label] = {}
        experiments: dict[_Point, list[RunRecord]] = {}
        for run in (run for run in every if fits(run, {**endpoint.where, **side})):
            if (why := unfit(run, endpoint.all_scores)) is not None:
                reasons[why] += 1
                continue
            point = tuple(written(lookup(run, key)) for key in over)
            sides[label][run.seed, point] = run
            experiments.setdefault(point, []).append(run)
            if (other := found.setdefault(run.run_id, label)) != label:
                raise UserError(f"{run.run_id} is on both sides: {other} and {label}")
        for runs_of_point in experiments.values():
            if (problem := _apart(label, runs_of_point)) is not None:
                return Sample(endpoint, {}, (), excluded=_said(reasons), problem=problem)
    plan = runs.plan(endpoint.study, endpoint.scale)
    seen = {point for side in sides.values() for _, point in side}
    # A seed needs all planned nuisance settings; without a plan, all settings that any run has.
    axes = (plan.values(key) or sorted({at[n] for at in seen}) for n, key in enumerate(over))
    points = list(product(*axes))
    cells = {
        label: {
            seed: tuple(side[seed, point] for point in points)
            for seed in sorted({seed for seed, _ in side})
            if all((seed, point) in side for point in points)
        }
        for label, side in sides.items()
    }
    seeds = sorted(set.intersection(*map(set, cells.values())))
    may = plan.varied + tuple(n for side in endpoint.sides for key in side for n in spelled(key))
    differ = {seed: _differ(cells, seed, endpoint.all_scores, may) for seed in seeds}
    reasons.update(f"sides of {why}" for why in differ.values() if why is not None)
    seeds = [seed for seed in seeds if differ[seed] is None]
    for label, cell in cells.items():
        if short := len({seed for seed, _ in sides[label]} - set(cell)):
            reasons[f"{label}: seeds without all of {', '.join(over)}"] += short
    problem = _not_one_experiment(cells, seeds, endpoint.all_scores)
    return Sample(endpoint, cells, tuple(seeds), _said(reasons), problem=problem)


def _apart(label: str, runs: Sequence[RunRecord]) -> str | None:
    """Return why a side's runs at a point have different configs; None if all have the same."""
    keys = varying([run.parts for run in runs])
    named = ", ".join(key for key in keys if not key.endswith(".option"))
    return f"{label} fits runs that differ in {named}; the claim must say which" if keys else None


def _not_one_experiment(cells: Cells, seeds: Sequence[int], scores: Sequence[str]) -> str | None:
    """Return why a side's seeds are not one experiment, scored in one way; None if they are."""
    for cell in cells.values():
        for runs in zip(*(cell[seed] for seed in seeds), strict=True):
            try:
                experiment = Experiment.of(runs)
                for score in scores:
                    experiment.scores(score)
            except UserError as error:
                return str(error)
    return None


def _differ(cells: Cells, seed: int, scores: Sequence[str], may: tuple[str, ...]) -> str | None:
    """Return the first unintended difference between a seed's runs; None if there is none."""
    first, *others = (cell[seed] for cell in cells.values())
    for a, b in ((a, b) for other in others for a, b in zip(first, other, strict=True)):
        if (why := why_not_paired(a, b, may_differ=may)) is not None:
            return why
        for score in scores:
            both = [run.scores[score] for run in (a, b) if score in run.scores]
            if len({(each.signature, each.higher_is_better) for each in both}) > 1:
                return f"different ways to compute {score}"
    return None


def _said(reasons: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{why}: {count}" for why, count in sorted(reasons.items()))
