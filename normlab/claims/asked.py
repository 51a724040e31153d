"""How runs answer: judged at planned looks, with their setting, and what would measure more."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count, groupby, islice
from typing import Any

from normlab.claims.endpoint import StudyEndpoint, keys
from normlab.claims.judge import FEWEST, LOOKS, Judgement, Look, reached, sequential, stuck
from normlab.claims.runs import Runs
from normlab.claims.sample import Sample, collect
from normlab.records.record import RunRecord
from normlab.studies import load_study, unchosen


class SeedsEndpoint(StudyEndpoint, frozen=True, kw_only=True):
    """A question that is judged at planned looks, each at the first seeds that count."""

    def judge(self, runs: Runs, says: str) -> Judgement:
        asked = Asked(runs, self)
        if (unanswered := asked.unanswered()) is not None:
            return unanswered
        at, found = sequential(
            asked.sample.seeds, lambda seeds, look: self.at_look(asked.sample, seeds, look, says)
        )
        return asked.finding(found, asked.sample.seeds[: at.seeds])

    def refused(self, runs: Sequence[RunRecord]) -> str | None:
        """Say why runs do not answer this question, whatever they found."""
        return None

    def at_look(self, sample: Sample, seeds: Sequence[int], look: Look, says: str) -> Judgement:
        """Judge some seeds of a sample, of a part that `says` what it does."""
        raise NotImplementedError

    def shown(self, sample: Sample) -> str:
        """Put runs into words that decide nothing."""
        raise NotImplementedError


def stopped(sample: Sample, values: Mapping[int, float], seeds: Sequence[int]) -> Judgement | None:
    """Say why the figures of some seeds decide nothing: a side at the floor, one not finite.

    `values` are the figures by seed.
    """
    for side in sample.cells:
        if (low := sample.floor(side, seeds)) is not None:
            return stuck(low)
    odd = [str(seed) for seed in seeds if not math.isfinite(values[seed])]
    return stuck(f"no finite figure at seed {', '.join(odd)}") if odd else None


class Asked:
    """An endpoint, the runs that may answer it, and what would measure more."""

    def __init__(self, runs: Runs, endpoint: SeedsEndpoint) -> None:
        """Gather the runs.

        Raises `ValueError` for a side that the study plans no run of, or where a run is on two.
        """
        self.runs, self.endpoint = runs, endpoint
        self.plan = plan = runs.plan(endpoint.study, endpoint.scale)
        for side in endpoint.sides:
            if not plan.may_choose(asked := {**endpoint.where, **side}):
                raise ValueError(
                    f"{endpoint.study} at scale={endpoint.scale} plans no run with {keys(asked)}; "
                    f"it plans {'; '.join(plan.names)}"
                )
        self.sample = collect(runs, endpoint)

    def unanswered(self) -> Judgement | None:
        """Say why the runs answer nothing, and what is there; None where they may answer."""
        sample, n = self.sample, len(self.sample.seeds)
        if (other := self.endpoint.refused(_all(sample))) is not None:
            return self.finding(Judgement("not measured", reason=other))
        if sample.problem is not None:
            return self.finding(Judgement("not measured", reason=sample.problem))
        if self.plan.scale.pilot:
            reason = "a pilot: it decides nothing"
            return self.finding(Judgement("not measured", reason=reason, n=n))
        if n >= FEWEST:
            return None
        reason = f"too few seeds ({n} of {FEWEST})"
        if not n:
            reason = "no run counts" if sample.excluded else "no runs"
        found = Judgement("not measured", reason=reason, n=n)
        loose = collect(self.runs, self.endpoint, strict=False)
        if loose.seeds:
            seeds = f"{len(loose.seeds)} seed{'s' if len(loose.seeds) != 1 else ''}"
            said = f"{self.endpoint.shown(loose)} ({seeds}): decides nothing"
            found = replace(found, detail=said, records=self._folders(loose, loose.seeds))
        return self.finding(found)

    def finding(self, found: Judgement, seeds: Sequence[int] | None = None) -> Judgement:
        """Add to a finding its setting, its runs, and what would measure more.

        `seeds` are those of the look that counts, by default of the last one reached.
        """
        sample = self.sample
        if seeds is None:
            last = max((look.seeds for look in reached(len(sample.seeds))), default=0)
            seeds = sample.seeds[:last]
        return replace(
            found,
            grade=self.plan.scale.grade,
            setting=self._setting(),
            excluded=sample.excluded,
            n=found.n or len(seeds),
            seeds=len(sample.seeds) if sample.problem is None else None,
            records=found.records or self._folders(sample, seeds),
            **({} if found.stuck or sample.problem is not None else self._next()),
        )

    def _setting(self) -> str:
        """Name data and size, such as `Multi30k de-en, 2+2 layers`."""
        runs = _all(self.sample)
        task = self.endpoint.where.get("task") or (runs[0].choice("task") if runs else None)
        data = self.plan.scale.data_name or task
        sizes = sorted({size for run in runs if (size := _layers(run))}, key=len)
        layers = f"{' to '.join((sizes[0], sizes[-1])[: len(sizes)])} layers" if sizes else None
        return ", ".join(str(each) for each in (data, layers) if each)

    def _folders(self, sample: Sample, seeds: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.runs.folder(run) for run in sample.all_runs(seeds))

    def _next(self) -> dict[str, Any]:
        """Return the command that would reach the next look, what it costs, what it waits for."""
        study, scale, place = self.plan.study, self.plan.scale, self.endpoint.scale
        have = len(self.sample.seeds)
        target = next((look.seeds for look in LOOKS if look.seeds > have), None)
        if target is None:
            return {}
        planned, hours = study.cost(place)
        seeds = target - have
        # A seed of which a part is there would pair runs of two machines.
        made = self.runs.seeds_made(study.name, place) if have else ()
        new = list(islice((seed for seed in count(1) if seed not in made), seeds))
        given = "" if sorted(scale.seeds) == new else f" seeds={_spans(new)}"
        return {
            "command": f"normlab study run {study.name} scale={place}{given}",
            "untuned": self._untuned(),
            "cost": f"{planned * seeds // len(scale.seeds)} runs, about "
            f"{hours * seeds / len(scale.seeds):.1f} h; data: {scale.data}",
        }

    def _untuned(self) -> tuple[str, ...]:
        """Return the rows of the sides, at their points, for which tuning chose nothing yet."""
        endpoint = self.endpoint
        asked = [self.plan.may_choose({**endpoint.where, **side}) for side in endpoint.sides]
        configs = self.runs.configs
        missing = unchosen(self.plan.study, endpoint.scale, lambda name: load_study(name, configs))
        return tuple(name for name in missing if any(name in names for names in asked))


def _all(sample: Sample) -> list[RunRecord]:
    """Return all runs of the sides, of seeds that count or do not."""
    return [run for cell in sample.cells.values() for runs in cell.values() for run in runs]


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
    layers = model.get("num_layers")
    return None if layers is None else str(layers)
