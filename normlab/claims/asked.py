"""What the endpoints share that a study answers: which runs, which setting, what it would cost."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby, islice
from statistics import fmean
from typing import Any

from msgspec import field

from normlab.claims.endpoint import Chosen, Endpoint, Text, Texts, keys
from normlab.claims.judge import FEWEST, LOOKS, Judgement, reached, stuck
from normlab.claims.runs import Plan, Runs, Where
from normlab.claims.sample import Query, Sample, collect, point_of
from normlab.metrics.spread import at_baseline, least_share, trains
from normlab.records.record import RunRecord
from normlab.studies import load_study, unchosen

_PILOT = "a pilot: it decides nothing"


@dataclass(frozen=True)
class Asked:
    """What an endpoint asks of a study, and the runs that may answer."""

    runs: Runs
    query: Query
    sample: Sample

    @classmethod
    def of(
        cls,
        runs: Runs,
        *,
        place: tuple[str, str],
        sides: Sequence[Where],
        where: Where,
        over: tuple[str, ...],
        scores: tuple[str, ...],
    ) -> "Asked":
        """Gather the runs.

        Raises `ValueError` for a side that the study plans no run of, or where a run is on two.
        """
        plan = runs.plan(*place)
        labels = {keys(side): side for side in sides}
        for side in sides:
            if not plan.may_choose(asked := {**where, **side}):
                raise ValueError(
                    f"{plan.study.name} at scale={place[1]} plans no run with {keys(asked)}; it "
                    f"plans {'; '.join(plan.names)}"
                )
        query = Query(*place, labels, where, over, scores)
        return cls(runs, query, collect(runs.of_study(*place), plan, query))

    @property
    def plan(self) -> Plan:
        """Return what the study plans at this scale."""
        return self.runs.plan(self.query.study, self.query.scale)

    @property
    def last_look(self) -> tuple[int, ...]:
        """Return the seeds of the last look reached."""
        return self.sample.seeds[: reached(len(self.sample.seeds))[-1].seeds]

    def without_answer(self, shown: Callable[[Sample], str]) -> Judgement | None:
        """Say why the runs answer nothing, and what is there; None where they may answer.

        `shown` puts runs that decide nothing into words.
        """
        if self.sample.problem is not None:
            return self.finding(Judgement("not measured", reason=self.sample.problem))
        seeds = len(self.sample.seeds)
        if self.plan.scale.pilot:
            return self.finding(Judgement("not measured", reason=_PILOT, n=seeds))
        if seeds >= FEWEST:
            return None
        loose = collect(self.runs.of_study(*self._place), self.plan, self.query, strict=False)
        found = {"detail": "", "records": ()}
        if loose.problem is None and loose.seeds:
            found = {
                "detail": f"{shown(loose)} ({_counted(len(loose.seeds))}): decides nothing",
                "records": self.folders(loose, loose.seeds),
            }
        reason = f"too few seeds ({seeds} of {FEWEST})"
        if not seeds:
            reason = "no run counts" if self.sample.excluded else "no runs"
        return self.finding(Judgement("not measured", reason=reason, n=seeds, **found))

    def floor(self, side: str, seeds: Sequence[int]) -> str | None:
        """Say where a side is at the floor by some seeds, of any score, at any of its points."""
        points: dict[tuple[str, ...], list[RunRecord]] = {}
        for run in self.sample.runs(side, seeds):
            if run.finished:
                points.setdefault(point_of(run, self.query.over), []).append(run)
        for point, runs in points.items():
            for score in self.query.scores:
                if (found := at_baseline(runs, score)) is not None:
                    name = ", ".join(
                        [side, *map("=".join, zip(self.query.over, point, strict=True))]
                    )
                    return f"{name} at the floor: {found}"
        return None

    def stopped(self, values: Mapping[int, float], seeds: Sequence[int]) -> Judgement | None:
        """Say why the figures of some seeds decide nothing: a side at the floor, one not finite.

        `values` are the figures by seed.
        """
        for side in self.sample.cells:
            if (low := self.floor(side, seeds)) is not None:
                return stuck(low)
        odd = [str(seed) for seed in seeds if not math.isfinite(values[seed])]
        return stuck(f"no finite figure at seed {', '.join(odd)}") if odd else None

    def finding(self, found: Judgement, seeds: Sequence[int] | None = None) -> Judgement:
        """Add to a finding its setting, its runs, and what would measure more."""
        chosen: Sequence[int] = ()
        if self.sample.problem is None and len(self.sample.seeds) >= FEWEST:
            chosen = self.last_look if seeds is None else seeds
        more: dict[str, Any] = {
            "grade": self.plan.scale.grade,
            "setting": self.setting,
            "excluded": self.sample.excluded,
            "n": found.n or len(chosen),
            "seeds": len(self.sample.seeds) if self.sample.problem is None else None,
            "records": found.records or self.folders(self.sample, chosen),
        }
        if not found.stuck:
            more |= self._next()
        return Judgement(**{**vars(found), **more})

    @property
    def setting(self) -> str:
        """Name data and size, such as `Multi30k de-en, 2+2 layers`."""
        cells = self.sample.cells.values()
        some = [run for cell in cells for each in cell.values() for run in each]
        task = self.query.where.get("task") or (some[0].choice("task") if some else None)
        data = self.plan.scale.data_name or task
        sizes = sorted({size for run in some if (size := _layers(run))}, key=len)
        layers = f"{' to '.join((sizes[0], sizes[-1])[: len(sizes)])} layers" if sizes else None
        return ", ".join(str(each) for each in (data, layers) if each)

    def folders(self, sample: Sample, seeds: Sequence[int]) -> tuple[str, ...]:
        """Return where the runs of some seeds lie; asserts that none is there twice."""
        return tuple(self.runs.folder(run) for run in sample.all_runs(seeds))

    @property
    def _place(self) -> tuple[str, str]:
        return self.query.study, self.query.scale

    def _next(self) -> dict[str, Any]:
        """Return the command that would reach the next look, what it costs, what it waits for."""
        study, scale = self.plan.study, self.query.scale
        have = len(self.sample.seeds)
        target = next((look.seeds for look in LOOKS if look.seeds > have), None)
        if target is None or self.sample.problem is not None:
            return {}
        planned, hours = study.cost(scale)
        each = len(self.plan.scale.seeds)
        seeds = target - have
        # A seed of which a part is there would pair runs of two machines.
        made = self.runs.seeds_made(*self._place) if have else ()
        new = list(islice((seed for seed in count(1) if seed not in made), seeds))
        given = sorted(self.plan.scale.seeds) == new
        return {
            "command": f"normlab study run {study.name} scale={scale}"
            + ("" if given else f" seeds={_spans(new)}"),
            "untuned": self._untuned(),
            "cost": f"{planned * seeds // each} runs, about {hours * seeds / each:.1f} h; "
            f"data: {self.plan.scale.data}",
        }

    def _untuned(self) -> tuple[str, ...]:
        """Return the rows of the sides, at their points, for which tuning chose nothing yet."""
        query, study = self.query, self.plan.study
        asked = [self.plan.may_choose({**query.where, **side}) for side in query.sides.values()]
        missing = unchosen(study, query.scale, lambda name: load_study(name, self.runs.configs))
        return tuple(name for name in missing if any(name in names for names in asked))


def _spans(seeds: Sequence[int]) -> str:
    """Write rising seeds as `seeds=` takes them, such as `6-8,10`."""
    runs = groupby(enumerate(seeds), key=lambda each: each[1] - each[0])
    ends = [(each[0][1], each[-1][1]) for _, group in runs if (each := list(group))]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ends)


class StudyEndpoint(Endpoint, frozen=True, kw_only=True):
    """A question to the runs of a study at a scale: which scores, where, averaged over what."""

    study: Text
    scale: Text
    scores: Texts = field(name="score")
    where: Chosen = field(default_factory=dict)
    over: tuple[Text, ...] = ()

    @property
    def family(self) -> tuple[str, str] | None:
        """Return study and scale."""
        return self.study, self.scale

    @property
    def sides(self) -> Sequence[Where]:
        """Return the settings that are compared, or the one that is looked at."""
        raise NotImplementedError

    def within(self, nuisances: str) -> str:
        """Say where it is asked, and over what, after words such as `mean over`."""
        where = f"; {keys(self.where)}" if self.where else ""
        return where + (f"; {nuisances} {', '.join(self.over)}" if self.over else "")

    def asked(self, runs: Runs, *sides: Where, minus: str | None = None) -> Asked:
        """Gather the runs of the sides; `minus` is a further score that they need."""
        return Asked.of(
            runs,
            place=(self.study, self.scale),
            sides=sides,
            where=self.where,
            over=self.over,
            scores=(*self.scores, *((minus,) if minus else ())),
        )


def mean_of(values: Mapping[int, float], seeds: Sequence[int]) -> float:
    """Return the mean over some seeds."""
    return fmean(values[seed] for seed in seeds)


def per_seed(
    sample: Sample, side: str, scores: Sequence[str], *, minus: str | None = None
) -> dict[int, float]:
    """Return the figure of a side by seed: the mean over scores, then over the nuisances."""
    found: dict[int, float] = {}
    for seed, runs in sample.cells[side].items():
        values = [_figure(run, scores, minus) for run in runs]
        if all(value is not None for value in values):
            found[seed] = fmean(value for value in values if value is not None)
    return found


def diverged(sample: Sample, side: str, seeds: Sequence[int]) -> int:
    """Return of how many seeds of a side a run diverged."""
    return sum(any(not run.finished for run in sample.cells[side][seed]) for seed in seeds)


def train_count(sample: Sample, side: str, scores: Sequence[str], seeds: Sequence[int]) -> int:
    """Return of how many seeds all runs of a side train: end, and clear of the floor."""
    return sum(
        all(trains(run, score) for run in sample.cells[side][seed] for score in scores)
        for seed in seeds
    )


def train_text(sample: Sample, scores: Sequence[str], seeds: Sequence[int]) -> str:
    """Write of how many seeds each side trains; where all do, also which share that shows."""
    counts = {side: train_count(sample, side, scores, seeds) for side in sample.cells}
    many = len(seeds) >= FEWEST
    every = f" (at least {math.floor(100 * least_share(len(seeds)))} %)" if many else ""
    return "train: " + ", ".join(
        f"{side} {n}/{len(seeds)}{every if n == len(seeds) else ''}" for side, n in counts.items()
    )


def scores_text(scores: Sequence[str], minus: str | None = None) -> str:
    """Name the scores of a figure, and what is subtracted from each."""
    return " and ".join(scores) + (f" minus {minus}" if minus else "")


def _figure(run: RunRecord, scores: Sequence[str], minus: str | None) -> float | None:
    less = 0.0
    if minus is not None:
        subtracted = run.figure(minus)
        if subtracted is None:
            return None
        less = subtracted.value
    found = [run.figure(score) for score in scores]
    if not run.finished or any(each is None for each in found):
        return None
    return fmean(each.value - less for each in found if each is not None)


def _layers(run: RunRecord) -> str | None:
    """Return the layers of a run's model, such as `2+2` or `12`."""
    model = run.config.get("model") or {}
    ends = [model.get(key) for key in ("encoder_layers", "decoder_layers")]
    if None not in ends:
        return "+".join(str(end) for end in ends)
    layers = model.get("num_layers")
    return None if layers is None else str(layers)


def _counted(seeds: int) -> str:
    return f"{seeds} seed{'s' if seeds != 1 else ''}"
