"""The runs that may decide an endpoint: side by side, seed by seed, each of them once.

A run counts where it ended (finished or diverged), was made by clean code, tested its last weights
or their mean, and has the score. A seed counts where every side has all its runs, and where these
are alike but for what is compared. What is left out is said, with the reason.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from normlab.claims.runs import Plan, Where, value_of, written
from normlab.records.aggregate import group
from normlab.records.fingerprint import parts, varying_keys
from normlab.records.labels import norm_label
from normlab.records.pairs import spelled, why_not_paired
from normlab.records.record import RunRecord
from normlab.records.selection import Selection

_ENDED = ("finished", "diverged")
_TESTED = ("last", "average")


@dataclass(frozen=True)
class Query:
    """Which runs an endpoint asks for: the sides by their labels, what they share, the scores."""

    study: str
    scale: str
    sides: Mapping[str, Where]
    where: Where
    over: tuple[str, ...]
    scores: tuple[str, ...]


_Key = tuple[int, tuple[str, ...]]  # a seed and a point of the nuisances
Cells = Mapping[str, Mapping[int, tuple[RunRecord, ...]]]
"""By side and seed the runs, one for each point of the nuisances."""


@dataclass(frozen=True)
class Sample:
    """The seeds that count and their runs; or the problem for which none can be told."""

    cells: Cells
    seeds: tuple[int, ...]
    excluded: tuple[str, ...] = ()
    problem: str | None = None

    def runs(self, side: str, seeds: Sequence[int]) -> list[RunRecord]:
        """Return the runs of some seeds of a side."""
        return [run for seed in seeds for run in self.cells[side][seed]]

    def all_runs(self, seeds: Sequence[int]) -> list[RunRecord]:
        """Return the runs of some seeds of all sides; no run is among them twice."""
        found = [run for side in self.cells for run in self.runs(side, seeds)]
        names = Counter(run.run_id for run in found)
        assert max(names.values(), default=1) == 1, f"a run enters twice: {names.most_common(1)}"
        return found


def unfit(record: RunRecord, scores: Sequence[str]) -> str | None:
    """Say why a run decides nothing, whatever it is compared with; None where it may decide."""
    if record.outcome.status not in _ENDED:
        return f"did not end ({record.outcome.status})"
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
    tested = record.weights
    if not tested:
        return "tested weights chosen by loss"
    return None if any(name in tested for name in _TESTED) else "tested weights chosen by a score"


def collect(selection: Selection, plan: Plan, query: Query, *, strict: bool = True) -> Sample:
    """Gather the runs of a study for an endpoint.

    Not `strict`, runs count that decide nothing, so that what is there can be shown. Raises
    `ValueError` where one run is on two sides.
    """
    reasons: Counter[str] = Counter()
    sides: dict[str, dict[_Key, RunRecord]] = {}
    for label, where in query.sides.items():
        chosen = _chosen(selection, {**query.where, **where})
        fit = [run for run in chosen if not _left_out(run, query, strict, reasons)]
        if (problem := _several(label, fit, query.over)) is not None:
            return Sample({}, (), _said(reasons), problem)
        sides[label] = {(run.seed, point_of(run, query.over)): run for run in fit}
    _refuse_shared(sides)
    points = _points(plan, query.over, sides)
    cells = {label: _whole(runs, points) for label, runs in sides.items()}
    seeds = sorted(set.intersection(*(set(cell) for cell in cells.values())))
    if strict:
        may = (*plan.varied, *(name for key in _keys(query) for name in spelled(key)))
        seeds = [seed for seed in seeds if not _differ(cells, seed, query.scores, may, reasons)]
    for label, cell in cells.items():
        if short := len({seed for seed, _ in sides[label]} - set(cell)):
            reasons[f"{label}: seeds without all of {', '.join(query.over)}"] += short
    return Sample(cells, tuple(seeds), _said(reasons))


def _chosen(selection: Selection, where: Where) -> list[RunRecord]:
    try:
        return selection.select(where)
    except ValueError:  # a key that no run has yet, such as one of a task that nobody ran
        return []


def _left_out(run: RunRecord, query: Query, strict: bool, reasons: Counter[str]) -> bool:
    why = unfit(run, query.scores)
    if why is not None and strict:
        reasons[why] += 1
    return why is not None and (strict or why.startswith(("lacks", "did not end")))


def _several(label: str, runs: Sequence[RunRecord], over: tuple[str, ...]) -> str | None:
    """Say in what runs differ that would be one of a side; None where there is one a seed."""
    by_point: dict[tuple[str, ...], list[RunRecord]] = {}
    for run in runs:
        by_point.setdefault(point_of(run, over), []).append(run)
    for members in by_point.values():
        experiments = [each[0] for each in group(members).values()]
        if len(experiments) > 1:
            keys = [key for key, _ in varying_keys([parts(run.config) for run in experiments])]
            named = ", ".join(key for key in keys if not key.endswith(".option"))
            return f"{label} fits runs that differ in {named}; the claim must say which"
        seeds = Counter(run.seed for run in members)
        if (twice := seeds.most_common(1)) and twice[0][1] > 1:
            return f"{label}: seed {twice[0][0]} is there twice, with other scores"
    return None


def point_of(run: RunRecord, over: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values that a run has of some keys."""
    labels = {"norm": norm_label(run.config.get("choices", {}))}
    return tuple(written(labels.get(key, value_of(run.config, key))) for key in over)


def _points(
    plan: Plan,
    over: tuple[str, ...],
    sides: Mapping[str, Mapping[_Key, RunRecord]],
) -> list[tuple[str, ...]]:
    """Return the points that every seed has to have: those planned, or else those there are."""
    seen = {point for runs in sides.values() for _, point in runs}
    axes = [
        plan.values(key) or tuple(sorted({point[n] for point in seen}))
        for n, key in enumerate(over)
    ]
    return list(product(*axes))


def _whole(
    runs: Mapping[_Key, RunRecord], points: Sequence[tuple[str, ...]]
) -> dict[int, tuple[RunRecord, ...]]:
    """Return the seeds that have all points, with their runs in the order of these."""
    return {
        seed: tuple(runs[seed, point] for point in points)
        for seed in sorted({seed for seed, _ in runs})
        if all((seed, point) in runs for point in points)
    }


def _differ(
    cells: Cells, seed: int, scores: Sequence[str], may: tuple[str, ...], reasons: Counter[str]
) -> bool:
    """Tell whether the runs of a seed differ in more than what is compared, and count why."""
    first, *others = (cell[seed] for cell in cells.values())
    for other in others:
        for a, b in zip(first, other, strict=True):
            if (
                why := why_not_paired(a, b, may_differ=may) or _scored_otherwise(a, b, scores)
            ) is not None:
                reasons[f"sides of {why}"] += 1
                return True
    return False


def _scored_otherwise(a: RunRecord, b: RunRecord, scores: Sequence[str]) -> str | None:
    for score in scores:
        both = [run.scores[score] for run in (a, b) if score in run.scores]
        if len({(each.signature, each.higher_is_better) for each in both}) > 1:
            return f"different ways to compute {score}"
    return None


def _refuse_shared(sides: Mapping[str, Mapping[_Key, RunRecord]]) -> None:
    found: dict[str, str] = {}
    for label, runs in sides.items():
        for run in runs.values():
            other = found.setdefault(run.run_id, label)
            if other != label:
                raise ValueError(f"{run.run_id} is on both sides: {other} and {label}")


def _keys(query: Query) -> list[str]:
    return [key for where in query.sides.values() for key in where]


def _said(reasons: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{why}: {count}" for why, count in sorted(reasons.items()))
