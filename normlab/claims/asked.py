"""How runs answer: judged at planned looks, with their setting and what would measure more."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count, groupby, islice
from typing import Any

from normlab.claims.endpoint import StudyEndpoint, keys
from normlab.claims.judge import FEWEST, LOOKS, Judgement, Look, reached, sequential, stuck
from normlab.claims.runs import Plan, Runs
from normlab.claims.sample import Sample, collect
from normlab.records.record import RunRecord
from normlab.studies import load_study, unchosen


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
