"""The runs that may decide an endpoint, by side and seed, and the planned looks at them.

A run counts if it ended (finished or diverged), was made by clean code, tested its last weights or
their mean, and has the score. A seed counts if every side has all its runs, and these differ only
in what is compared. What does not count is listed with the reason.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby, islice, product
from statistics import fmean
from typing import Any

from normlab.claims.endpoint import StudyEndpoint, keys
from normlab.claims.judge import FEWEST, LOOKS, Judgement, Look, reached, sequential, stuck
from normlab.claims.runs import Plan, Runs, value_of, written
from normlab.metrics.spread import at_baseline, least_share, trains
from normlab.records.aggregate import group
from normlab.records.labels import norm_label
from normlab.records.pairs import spelled, varying, why_not_paired
from normlab.records.record import RunRecord
from normlab.studies import load_study, unchosen

_Point = tuple[str, ...]  # the values of the nuisances
_Side = Mapping[tuple[int, _Point], RunRecord]  # by seed and point
Cells = Mapping[str, Mapping[int, tuple[RunRecord, ...]]]


@dataclass(frozen=True)
class Sample:
    """The seeds that count and their runs, or the `problem` for which there are none.

    `cells` has the runs by side and seed, one for each point of the nuisances.
    """

    endpoint: StudyEndpoint
    cells: Cells
    seeds: tuple[int, ...]
    excluded: tuple[str, ...] = ()
    problem: str | None = None

    def runs(self, side: str, seeds: Sequence[int]) -> list[RunRecord]:
        """Return the runs of some seeds of a side."""
        return [run for seed in seeds for run in self.cells[side][seed]]

    def all_runs(self, seeds: Sequence[int]) -> list[RunRecord]:
        """Return the runs of some seeds of all sides."""
        return [run for side in self.cells for run in self.runs(side, seeds)]

    def figures(self, side: str) -> dict[int, float]:
        """Return the value of a side by seed: the mean over scores, then over the nuisances."""
        found = {
            seed: [self._figure(run) for run in runs] for seed, runs in self.cells[side].items()
        }
        return {
            seed: fmean(value for value in values if value is not None)
            for seed, values in found.items()
            if None not in values
        }

    def _figure(self, run: RunRecord) -> float | None:
        found = [run.figure(score) for score in self.endpoint.all_scores]
        values = [each.value for each in found if each is not None]
        if not run.finished or len(values) < len(found):
            return None
        less = values.pop() if self.endpoint.subtracted else 0.0
        return fmean(value - less for value in values)

    def diverged(self, seeds: Sequence[int]) -> int:
        """Count the seeds of which a run diverged, over all sides."""
        return sum(
            any(not run.finished for run in cell[seed])
            for cell in self.cells.values()
            for seed in seeds
        )

    def train_count(self, side: str, seeds: Sequence[int]) -> int:
        """Count the seeds of which all runs of a side train: they end, and clear of the floor."""
        scores = self.endpoint.scores
        return sum(
            all(trains(run, score) for run in self.cells[side][seed] for score in scores)
            for seed in seeds
        )

    def train_text(self, seeds: Sequence[int]) -> str:
        """Write how many seeds of each side train, and if all do, which share that shows."""
        n = len(seeds)
        every = f" (at least {math.floor(100 * least_share(n))} %)" if n >= FEWEST else ""
        counts = {side: self.train_count(side, seeds) for side in self.cells}
        said = [f"{side} {k}/{n}{every if k == n else ''}" for side, k in counts.items()]
        return f"train: {', '.join(said)}"

    def floor(self, side: str, seeds: Sequence[int]) -> str | None:
        """Say where some seeds of a side are at the floor, by any score at any of its points."""
        over = self.endpoint.over
        points: dict[_Point, list[RunRecord]] = {}
        for run in self.runs(side, seeds):
            if run.finished:
                points.setdefault(_point(run, over), []).append(run)
        for (point, runs), score in product(points.items(), self.endpoint.all_scores):
            if (found := at_baseline(runs, score)) is not None:
                name = ", ".join([side, *map("=".join, zip(over, point, strict=True))])
                return f"{name} at the floor: {found}"
        return None


def unfit(record: RunRecord, scores: Sequence[str]) -> str | None:
    """Return why a run decides nothing, whatever it is compared with; None if it may decide."""
    if (status := record.outcome.status) not in ("finished", "diverged"):
        return f"did not end ({status})"
    dirty = record.environment.get("dirty")
    if dirty is not False:
        return "made by uncommitted code" if dirty else "not known to be made by clean code"
    if not record.finished:
        return None
    for score in scores:
        if score not in record.scores and score not in record.stability:
            return f"lacks {score}"
    if all(score in record.stability for score in scores):
        return None
    if not record.weights:
        return "tested weights chosen by loss"
    last = "last" in record.weights or "average" in record.weights
    return None if last else "tested weights chosen by a score"


def collect(runs: Runs, endpoint: StudyEndpoint, *, strict: bool = True) -> Sample:
    """Gather the runs of a study for an endpoint; `ValueError` if one run is on two sides.

    Unless `strict`, runs that decide nothing are included, to be shown.
    """
    over = endpoint.over
    reasons: Counter[str] = Counter()
    sides: dict[str, _Side] = {}
    found: dict[str, str] = {}
    for label, side in endpoint.labels.items():
        fit: list[RunRecord] = []
        for run in _chosen(runs, endpoint, {**endpoint.where, **side}):
            why = unfit(run, endpoint.all_scores)
            if why is None or not (strict or why.startswith(("lacks", "did not end"))):
                fit.append(run)
            elif strict:
                reasons[why] += 1
        if (problem := _several(label, fit, over)) is not None:
            return Sample(endpoint, {}, (), _said(reasons), problem)
        sides[label] = {(run.seed, _point(run, over)): run for run in fit}
        for run in fit:
            if (other := found.setdefault(run.run_id, label)) != label:
                raise ValueError(f"{run.run_id} is on both sides: {other} and {label}")
    plan = runs.plan(endpoint.study, endpoint.scale)
    seen = {point for side in sides.values() for _, point in side}
    # A seed needs all planned points, or those that any run has.
    axes = (plan.values(key) or sorted({at[n] for at in seen}) for n, key in enumerate(over))
    points = list(product(*axes))
    cells = {label: _whole(side, points) for label, side in sides.items()}
    seeds = sorted(set.intersection(*(set(cell) for cell in cells.values())))
    if strict:
        compared = {key: None for side in endpoint.sides for key in side}
        may = (*plan.varied, *(name for key in compared for name in spelled(key)))
        differ = {seed: _differ(cells, seed, endpoint.all_scores, may) for seed in seeds}
        reasons.update(f"sides of {why}" for why in differ.values() if why is not None)
        seeds = [seed for seed in seeds if differ[seed] is None]
    for label, cell in cells.items():
        if short := len({seed for seed, _ in sides[label]} - set(cell)):
            reasons[f"{label}: seeds without all of {', '.join(over)}"] += short
    return Sample(endpoint, cells, tuple(seeds), _said(reasons))


def _chosen(runs: Runs, endpoint: StudyEndpoint, where: Mapping[str, object]) -> list[RunRecord]:
    try:
        return runs.of_study(endpoint.study, endpoint.scale).select(where)
    except ValueError:  # a key that no run has yet, such as one of a task that nobody ran
        return []


def _several(label: str, runs: Sequence[RunRecord], over: tuple[str, ...]) -> str | None:
    """Return why a side has several runs of one seed and point; None if it has one each."""
    by_point: dict[_Point, list[RunRecord]] = {}
    for run in runs:
        by_point.setdefault(_point(run, over), []).append(run)
    for members in by_point.values():
        experiments = [each[0] for each in group(members).values()]
        if len(experiments) > 1:
            keys = varying([run.parts for run in experiments])[0]
            named = ", ".join(key for key in keys if not key.endswith(".option"))
            return f"{label} fits runs that differ in {named}; the claim must say which"
        ((seed, count),) = Counter(run.seed for run in members).most_common(1)
        if count > 1:
            return f"{label}: seed {seed} is there twice, with other scores"
    return None


def _point(run: RunRecord, over: tuple[str, ...]) -> _Point:
    """Return the values of some keys of a run."""
    labels = {"norm": norm_label(run.config.get("choices", {}))}
    return tuple(written(labels.get(key, value_of(run.config, key))) for key in over)


def _whole(runs: _Side, points: Sequence[_Point]) -> dict[int, tuple[RunRecord, ...]]:
    """Return the seeds that have all points, with their runs in the order of these."""
    return {
        seed: tuple(runs[seed, point] for point in points)
        for seed in sorted({seed for seed, _ in runs})
        if all((seed, point) in runs for point in points)
    }


def _differ(cells: Cells, seed: int, scores: Sequence[str], may: tuple[str, ...]) -> str | None:
    """Return in what the runs of a seed differ besides what is compared."""
    first, *others = (cell[seed] for cell in cells.values())
    for other in others:
        for a, b in zip(first, other, strict=True):
            if (why := why_not_paired(a, b, may_differ=may)) is not None:
                return why
            for score in scores:
                both = [run.scores[score] for run in (a, b) if score in run.scores]
                if len({(each.signature, each.higher_is_better) for each in both}) > 1:
                    return f"different ways to compute {score}"
    return None


def _said(reasons: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{why}: {count}" for why, count in sorted(reasons.items()))


class SeedsEndpoint(StudyEndpoint, frozen=True, kw_only=True):
    """A question that is judged at planned looks, each at the first seeds that count.

    A side that the study plans no run of, and a run on two sides, are a `ValueError`.
    """

    def judge(self, runs: Runs, says: str) -> Judgement:
        plan = runs.plan(self.study, self.scale)
        for side in self.sides:
            if not plan.may_choose(asked := {**self.where, **side}):
                raise ValueError(
                    f"{self.study} at scale={self.scale} plans no run with {keys(asked)}; "
                    f"it plans {'; '.join(plan.names)}"
                )
        sample = collect(runs, self)
        all_runs = [run for cell in sample.cells.values() for each in cell.values() for run in each]
        n = len(sample.seeds)
        looks = reached(n)
        chosen = sample.seeds[: looks[-1].seeds if looks else 0]
        records = None
        if refused := self.refused(all_runs) or sample.problem:
            found = Judgement("not measured", reason=refused)
        elif plan.scale.pilot:
            found = Judgement("not measured", reason="a pilot: it decides nothing", n=n)
        elif looks:
            look, found = sequential(
                sample.seeds, lambda seeds, look: self.at_look(sample, seeds, look, says)
            )
            chosen = sample.seeds[: look.seeds]
        else:
            reason = f"too few seeds ({n} of {FEWEST})"
            if not n:
                reason = "no run counts" if sample.excluded else "no runs"
            loose, shown = collect(runs, self, strict=False), ""
            if many := len(loose.seeds):
                seeds = f"{many} seed{'s' if many != 1 else ''}"
                shown = f"{self.shown(loose)} ({seeds}): decides nothing"
                records = loose.all_runs(loose.seeds)
            found = Judgement("not measured", reason=reason, n=n, detail=shown)
        if records is None:
            records = sample.all_runs(chosen)
        more = {} if found.stuck or sample.problem else self._next(plan, sample, runs)
        return replace(
            found,
            grade=plan.scale.grade,
            setting=self._setting(plan, all_runs),
            excluded=sample.excluded,
            n=found.n or len(chosen),
            seeds=None if sample.problem else n,
            records=tuple(map(runs.folder, records)),
            **more,
        )

    def refused(self, runs: Sequence[RunRecord]) -> str | None:
        """Return why runs do not answer this question, whatever they found."""
        return None

    def at_look(self, sample: Sample, seeds: Sequence[int], look: Look, says: str) -> Judgement:
        """Judge some seeds of a sample, of a part that `says` what it does."""
        raise NotImplementedError

    def shown(self, sample: Sample) -> str:
        """Describe runs that decide nothing."""
        raise NotImplementedError

    def _setting(self, plan: Plan, runs: Sequence[RunRecord]) -> str:
        """Name data and size, such as `Multi30k de-en, 2+2 layers`."""
        task = self.where.get("task") or (runs[0].choice("task") if runs else None)
        sizes = sorted({size for run in runs if (size := _layers(run))}, key=len)
        layers = f"{' to '.join((sizes[0], sizes[-1])[: len(sizes)])} layers" if sizes else None
        return ", ".join(str(each) for each in (plan.scale.data_name or task, layers) if each)

    def _next(self, plan: Plan, sample: Sample, runs: Runs) -> dict[str, Any]:
        """Return the command that would reach the next look, its cost, and what to tune first."""
        study, scale, have = plan.study, plan.scale, len(sample.seeds)
        target = next((look.seeds for look in LOOKS if look.seeds > have), None)
        if target is None:
            return {}
        planned, hours = study.cost(self.scale)
        seeds = target - have
        # Further runs of a seed that is there in part would pair runs of two machines.
        made = runs.seeds_made(study.name, self.scale) if have else ()
        new = list(islice((seed for seed in count(1) if seed not in made), seeds))
        given = "" if sorted(scale.seeds) == new else f" seeds={_spans(new)}"
        names = [plan.may_choose({**self.where, **side}) for side in self.sides]
        missing = unchosen(study, self.scale, lambda name: load_study(name, runs.configs))
        return {
            "command": f"normlab study run {study.name} scale={self.scale}{given}",
            "untuned": tuple(name for name in missing if any(name in own for own in names)),
            "cost": f"{planned * seeds // len(scale.seeds)} runs, about "
            f"{hours * seeds / len(scale.seeds):.1f} h; data: {scale.data}",
        }


def stopped(sample: Sample, values: Mapping[int, float], seeds: Sequence[int]) -> Judgement | None:
    """Return why the values of some seeds decide nothing: a side at the floor, or one not finite.

    `values` are those of all seeds.
    """
    for side in sample.cells:
        if (low := sample.floor(side, seeds)) is not None:
            return stuck(low)
    odd = [str(seed) for seed in seeds if not math.isfinite(values[seed])]
    return stuck(f"no finite figure at seed {', '.join(odd)}") if odd else None


def _spans(seeds: Sequence[int]) -> str:
    """Write rising seeds as `seeds=` takes them, such as `6-8,10`."""
    runs = groupby(enumerate(seeds), key=lambda each: each[1] - each[0])
    ends = [(each[0][1], each[-1][1]) for _, group in runs if (each := list(group))]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ends)


def _layers(run: RunRecord) -> str | None:
    """Return the layers of a run's model, such as `2+2` or `12`."""
    model = run.config.get("model") or {}
    ends = [model.get(key) for key in ("encoder_layers", "decoder_layers")]
    if None not in ends:
        return "+".join(map(str, ends))
    return None if (layers := model.get("num_layers")) is None else str(layers)
