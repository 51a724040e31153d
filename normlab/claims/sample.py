"""Endpoints about the runs of a study, and the runs that may decide them, by side and seed.

A run counts if it ended (finished or diverged), was made by clean code, tested its last weights or
their average, and has the score. A seed counts if every side has all its runs, and these differ
only in what is compared. Runs that do not count are listed with the reason.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby, islice, product
from statistics import fmean
from typing import Annotated, Any

from msgspec import Meta, field

from normlab.claims.evidence import Endpoint, Text
from normlab.claims.judge import FEWEST, LOOKS, Count, Judgement, Look, reached, sequential
from normlab.claims.runs import Plan, Runs, Where, value_of, written
from normlab.metrics.spread import at_baseline, least_share, trains
from normlab.records.labels import norm_label
from normlab.records.pairs import spelled, varying, why_not_paired
from normlab.records.record import RunRecord
from normlab.records.store import select
from normlab.studies import load_study, unchosen

Chosen = dict[str, str | int | float | bool | None]
"""How runs are selected: options of groups and dotted keys of the config, with their values."""
_Point = tuple[str, ...]  # the values of the nuisance keys
Cells = Mapping[str, Mapping[int, tuple[RunRecord, ...]]]


def keys(where: Where) -> str:
    """Format a selection, such as `norm=bn placement=pre`."""
    words = {None: "null", True: "true", False: "false"}
    said = {k: words[v] if v is None or isinstance(v, bool) else v for k, v in where.items()}
    return " ".join(f"{key}={value}" for key, value in said.items())


class StudyEndpoint(Endpoint, frozen=True, kw_only=True):
    """An endpoint about the runs of a study at a scale, judged at planned looks.

    In addition to its own keys, every kind has:

      study: translation
      scale: small
      score: [test/bleu, test_2017/bleu]     one, or a list that is averaged within a seed
      minus: test/loss                       optional: subtracted from each score, run by run
      where: {task: multi30k}                optional: shared by all sides
      over: [placement]                      optional: nuisances, averaged within a seed
    """

    study: Text
    scale: Text
    scores: Annotated[tuple[Text, ...], Meta(min_length=1)] = field(name="score")
    minus: str | None = None
    where: Chosen = field(default_factory=dict)
    over: tuple[Text, ...] = ()

    @property
    def family(self) -> tuple[str, str] | None:
        return self.study, self.scale

    @property
    def sides(self) -> Sequence[Where]:
        """Return the compared settings, or the single setting that is measured."""
        raise NotImplementedError

    @property
    def labels(self) -> Mapping[str, Where]:
        """Return the sides by label, such as `norm=bn`."""
        return {keys(side): side for side in self.sides}

    @property
    def all_scores(self) -> tuple[str, ...]:
        """Return the scores that a run must have."""
        return (*self.scores, *((self.minus,) if self.minus else ()))

    @property
    def figure(self) -> str:
        """Return the name of the value: the scores, and what is subtracted from each."""
        name = " and ".join(self.scores)
        return f"{name} minus {self.minus}" if self.minus else name

    def within(self, nuisances: str = "mean over") -> str:
        """Describe the selection and the nuisances, for the end of a question."""
        where = f"; {keys(self.where)}" if self.where else ""
        return where + (f"; {nuisances} {', '.join(self.over)}" if self.over else "")

    def refused(self, runs: Sequence[RunRecord]) -> str | None:
        """Return why runs cannot answer this question, whatever their scores; None if they can."""
        return None

    def at_look(self, sample: "Sample", seeds: Sequence[int], look: Look, says: str) -> Judgement:
        """Judge some seeds of a sample; `says` is the kind of statement of the part."""
        raise NotImplementedError

    def shown(self, sample: "Sample") -> str:
        """Describe the results of runs that decide nothing."""
        raise NotImplementedError

    def judge(self, runs: Runs, says: str) -> Judgement:
        plan = runs.plan(self.study, self.scale)
        for side in self.sides:
            if not plan.may_choose(asked := {**self.where, **side}):
                raise ValueError(
                    f"{self.study} at scale={self.scale} plans no run with {keys(asked)}; "
                    f"it plans {'; '.join(plan.names)}"
                )
        sample = shown = collect(runs, self)
        all_runs = [run for cell in sample.cells.values() for each in cell.values() for run in each]
        n, looks = len(sample.seeds), reached(len(sample.seeds))
        chosen = sample.seeds[: looks[-1].seeds if looks else 0]
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
            reason = "no run counts" if sample.excluded else "no runs"
            reason = f"too few seeds ({n} of {FEWEST})" if n else reason
            found = Judgement("not measured", reason=reason, n=n)
            loose = collect(runs, self, strict=False)
            if many := len(loose.seeds):
                seeds = f"{many} seed{'s' if many != 1 else ''}"
                said = f"{self.shown(loose)} ({seeds}): decides nothing"
                found, shown, chosen = replace(found, detail=said), loose, loose.seeds
        more = {} if found.stuck or sample.problem else self._next(plan, n, runs)
        return replace(
            found,
            grade=plan.scale.grade,
            setting=self._setting(plan, all_runs),
            excluded=sample.excluded,
            n=found.n or (len(chosen) if shown is sample else 0),
            seeds=None if sample.problem else n,
            records=tuple(map(runs.folder, shown.runs(chosen))),
            **more,
        )

    def _setting(self, plan: Plan, runs: Sequence[RunRecord]) -> str:
        """Describe the data and model size, such as `Multi30k de-en, 2+2 layers`."""
        task = self.where.get("task") or (runs[0].choice("task") if runs else None)
        sizes = sorted({size for run in runs if (size := _layers(run))}, key=len)
        layers = f"{' to '.join((sizes[0], sizes[-1])[: len(sizes)])} layers" if sizes else None
        return ", ".join(str(each) for each in (plan.scale.data_name or task, layers) if each)

    def _next(self, plan: Plan, have: int, runs: Runs) -> dict[str, Any]:
        """Return the command that would reach the next look, its cost, and what to tune first."""
        study, scale = plan.study, plan.scale
        target = next((look.seeds for look in LOOKS if look.seeds > have), None)
        if target is None:
            return {}
        planned, hours = study.cost(self.scale)
        seeds = target - have
        # Completing a seed that has some of its runs could pair runs from two machines.
        there = runs.of_study(self.study, self.scale) if have else ()
        made = {record.seed for record in there}
        new = list(islice((seed for seed in count(1) if seed not in made), seeds))
        given = "" if sorted(scale.seeds) == new else f" seeds={_spans(new)}"
        names = {name for s in self.sides for name in plan.may_choose({**self.where, **s})}
        missing = unchosen(study, self.scale, lambda name: load_study(name, runs.configs))
        return {
            "command": f"normlab study run {study.name} scale={self.scale}{given}",
            "untuned": tuple(name for name in missing if name in names),
            "cost": f"{planned * seeds // len(scale.seeds)} runs, about "
            f"{hours * seeds / len(scale.seeds):.1f} h; data: {scale.data}",
        }


def _layers(run: RunRecord) -> str | None:
    """Return the number of layers of a run's model, such as `2+2` or `12`."""
    model = run.config.get("model") or {}
    both = "encoder_layers", "decoder_layers"
    found = [model[key] for key in (both if both[0] in model else ("num_layers",)) if key in model]
    return "+".join(map(str, found)) or None


def _spans(seeds: Sequence[int]) -> str:
    """Format increasing seeds for `seeds=`, such as `6-8,10`."""
    runs = groupby(enumerate(seeds), key=lambda each: each[1] - each[0])
    ends = [(each[0][1], each[-1][1]) for _, group in runs if (each := list(group))]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ends)


@dataclass(frozen=True)
class Sample:
    """The seeds that count and their runs, or the `problem` because of which there are none.

    `cells` has the runs by side and seed, one for each nuisance setting in `points`.
    """

    endpoint: StudyEndpoint
    cells: Cells
    seeds: tuple[int, ...]
    points: Sequence[_Point] = ()
    excluded: tuple[str, ...] = ()
    problem: str | None = None

    def runs(self, seeds: Sequence[int]) -> list[RunRecord]:
        """Return the runs of all sides for some seeds."""
        return [run for cell in self.cells.values() for seed in seeds for run in cell[seed]]

    def figures(self, side: str) -> dict[int, float]:
        """Return a side's value per seed: the mean over scores, then over the nuisances."""
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
        less = values.pop() if self.endpoint.minus else 0.0
        return fmean(value - less for value in values)

    def diverged(self, seeds: Sequence[int]) -> int:
        """Count the seeds with a diverged run, summed over all sides."""
        cells = [cell[seed] for cell in self.cells.values() for seed in seeds]
        return sum(any(not run.finished for run in runs) for runs in cells)

    def train_counts(self, seeds: Sequence[int]) -> dict[str, Count]:
        """Count per side the seeds whose runs all finish clear of the untrained baseline."""
        scores, n = self.endpoint.scores, len(seeds)
        return {
            side: (sum(all(trains(r, s) for r in cell[seed] for s in scores) for seed in seeds), n)
            for side, cell in self.cells.items()
        }

    def train_text(self, seeds: Sequence[int]) -> str:
        """Say how many seeds of each side train, and if all do, the least share this implies."""
        n = len(seeds)
        every = f" (at least {math.floor(100 * least_share(n))} %)" if n >= FEWEST else ""
        counts = self.train_counts(seeds).items()
        said = [f"{side} {k}/{n}{every if k == n else ''}" for side, (k, _) in counts]
        return f"train: {', '.join(said)}"

    def floor(self, side: str, seeds: Sequence[int]) -> str | None:
        """Say where seeds of a side end at the untrained baseline by any score; None if nowhere."""
        by_point = zip(*(self.cells[side][seed] for seed in seeds), strict=True)
        for point, runs in zip(self.points, by_point, strict=True):
            finished = [run for run in runs if run.finished]
            for score in self.endpoint.all_scores:
                if (found := at_baseline(finished, score)) is not None:
                    over = map("=".join, zip(self.endpoint.over, point, strict=True))
                    return f"{', '.join([side, *over])} at the floor: {found}"
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
    """Collect the runs of a study for an endpoint; `ValueError` if one run is on two sides.

    Unless `strict`, ended runs that decide nothing are included so that they can be shown.
    """
    over = endpoint.over
    reasons: Counter[str] = Counter()
    sides: dict[str, dict[tuple[int, _Point], RunRecord]] = {}
    found: dict[str, str] = {}
    for label, side in endpoint.labels.items():
        sides[label] = {}
        for run in _chosen(runs, endpoint, {**endpoint.where, **side}):
            why = unfit(run, endpoint.all_scores)
            if why and (strict or not why.startswith(("lacks", "did not end"))):
                reasons[why] += 1
                continue
            known = sides[label].setdefault((run.seed, _point(run, over)), run)
            if known.fingerprint != run.fingerprint:
                keys = varying([known.parts, run.parts])[0]
                named = ", ".join(key for key in keys if not key.endswith(".option"))
                problem = f"{label} fits runs that differ in {named}; the claim must say which"
                return Sample(endpoint, {}, (), excluded=_said(reasons), problem=problem)
            if (other := found.setdefault(run.run_id, label)) != label:
                raise ValueError(f"{run.run_id} is on both sides: {other} and {label}")
    plan = runs.plan(endpoint.study, endpoint.scale)
    seen = {point for side in sides.values() for _, point in side}
    # A seed needs all planned nuisance settings; without a plan, all that any run has.
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
    if strict:
        compared = {key: None for side in endpoint.sides for key in side}
        may = (*plan.varied, *(name for key in compared for name in spelled(key)))
        differ = {seed: _differ(cells, seed, endpoint.all_scores, may) for seed in seeds}
        reasons.update(f"sides of {why}" for why in differ.values() if why is not None)
        seeds = [seed for seed in seeds if differ[seed] is None]
    for label, cell in cells.items():
        if short := len({seed for seed, _ in sides[label]} - set(cell)):
            reasons[f"{label}: seeds without all of {', '.join(over)}"] += short
    return Sample(endpoint, cells, tuple(seeds), points, _said(reasons))


def _chosen(runs: Runs, endpoint: StudyEndpoint, where: Where) -> list[RunRecord]:
    try:
        return select(runs.of_study(endpoint.study, endpoint.scale), where)
    except ValueError:  # no run has this key yet, for example a key of a task that nobody ran
        return []


def _point(run: RunRecord, over: tuple[str, ...]) -> _Point:
    """Return a run's values of the keys in `over`."""
    labels = {"norm": norm_label(run.config.get("choices", {}))}
    return tuple(written(labels.get(key, value_of(run.config, key))) for key in over)


def _differ(cells: Cells, seed: int, scores: Sequence[str], may: tuple[str, ...]) -> str | None:
    """Return an unintended difference between the runs of a seed; None if there is none."""
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
