"""The sample of an endpoint: for each side and seed, the runs that count.

A run counts if it has ended (finished or diverged), was made by committed code, was tested with its
last weights or their average, and has the score, and if its rate was chosen by trials where the
study lists candidates. A seed counts if all its runs on every side count,
and if these runs are pairs (`normlab.records.pairs`) that differ only in the compared settings.
Runs that do not count are listed with the reason.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from normlab.claims.evidence import EvidenceStore, PlannedRuns, RecordAt
from normlab.claims.verdict import Reason
from normlab.claims.where import Where
from normlab.errors import UserError
from normlab.metrics.baseline import (
    ACCURACY_MARGIN,
    BaselineComparison,
    against_baseline,
    at_baseline,
    nats_needed,
)
from normlab.metrics.glossary import is_accuracy, is_loss, metric
from normlab.records.packed import Key
from normlab.records.pairs import (
    Pairing,
    PairRules,
    spelled,
    varying,
    why_not_one_experiment,
    why_not_one_score,
)
from normlab.records.point import split_place
from normlab.records.record import RunRecord, is_probe_metric
from normlab.records.store import fits, lookup, written

Point = tuple[str, ...]
"""The values of the nuisance keys, in their order."""
Cells = Mapping[str, Mapping[int, tuple[RunRecord, ...]]]
"""The runs, keyed by side and seed, with one run per nuisance setting."""
_RATE_NOT_CHOSEN = "rate not chosen"  # although the study's scale lists candidates
Count = tuple[int, int]
"""The number of seeds that train, and the number of seeds."""


@dataclass(frozen=True)
class Selection:
    """The runs of a study to sample.

    `sides` has the settings of each side, keyed by its label, and `where` the settings that all
    sides share. The value of a run is the mean of `scores`, minus its score `minus`. The value of a
    seed is the mean over the settings of the nuisance keys `over`.
    """

    study: str
    scale: str
    sides: Mapping[str, Where]
    scores: tuple[str, ...]
    minus: str | None
    where: Where
    over: tuple[str, ...]

    @property
    def all_scores(self) -> tuple[str, ...]:
        return (*self.scores, *((self.minus,) if self.minus else ()))


@dataclass(frozen=True)
class Sample:
    """The runs of each side, and the `seeds` that count.

    `excluded` says why runs do not count, with their numbers. If the sample as a whole cannot be
    used, `problem` says why.
    """

    scores: tuple[str, ...]
    minus: str | None
    cells: Cells
    seeds: tuple[int, ...]
    excluded: tuple[str, ...] = ()
    problem: str | None = None

    def values(self, side: str) -> dict[int, float]:
        """Return a side's value for each seed all of whose runs finished."""
        cells = self.cells[side].items()
        finished = ((seed, runs) for seed, runs in cells if all(run.finished for run in runs))
        return {seed: fmean(map(self._value, runs)) for seed, runs in finished}

    def _value(self, run: RunRecord) -> float:
        scores = [run.metric(name) for name in self.scores]
        less = run.metric(self.minus) if self.minus else None
        return fmean(each.value - (less.value if less else 0.0) for each in scores if each)

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value of the first score is better, according to the runs' records."""
        runs = (run for cell in self.cells.values() for each in cell.values() for run in each)
        scores = (run.metric(self.scores[0]) for run in runs if run.finished)
        return next((score.higher_is_better for score in scores if score is not None), True)

    def runs(self, seeds: Sequence[int]) -> list[RunRecord]:
        return [run for cell in self.cells.values() for seed in seeds for run in cell[seed]]

    @property
    def all_runs(self) -> list[RunRecord]:
        """The runs of every seed that has all nuisance settings, even if it does not count."""
        return [run for cell in self.cells.values() for each in cell.values() for run in each]

    def train_counts(self, seeds: Sequence[int]) -> dict[str, Count]:
        """Return how many of the seeds train, for each side.

        A seed trains if all its runs finish clearly better than the untrained baseline.
        """

        def train(runs: Sequence[RunRecord]) -> bool:
            clear = (not at_baseline([run], name) for run in runs for name in self.scores)
            return all(run.finished for run in runs) and all(clear)

        return {
            side: (sum(train(cell[seed]) for seed in seeds), len(seeds))
            for side, cell in self.cells.items()
        }

    def why_untrained(self, side: str, seeds: Sequence[int]) -> Reason | None:
        """Return why a side does not clearly beat the untrained baseline, or None if it does.

        The scores of each nuisance setting are averaged over the seeds.
        """
        scores = (*self.scores, *((self.minus,) if self.minus else ()))
        for runs in zip(*(self.cells[side][seed] for seed in seeds), strict=True):
            finished = [run for run in runs if run.finished]
            for score in scores:
                compared = against_baseline(finished, score)
                if compared is not None and not compared.beaten:
                    return _not_trained(compared)
        return None


def _not_trained(compared: BaselineComparison) -> Reason:
    score, baseline = compared.score, compared.baseline
    known = metric(score)
    values = {
        "score": score,
        "score_in_english": known.name if known else score,
        "value": f"{compared.mean:.4g}",
        "baseline": f"{baseline:.4g}",
    }
    if is_loss(score):
        return Reason("baseline_loss", {**values, "needed": f"{nats_needed(baseline):.3g}"})
    if is_accuracy(score):
        return Reason("baseline_accuracy", {**values, "needed": f"{100 * ACCURACY_MARGIN:g}"})
    return Reason("baseline", values)


def why_not_evidence(record: RunRecord, scores: Sequence[str]) -> str | None:
    """Return why a run cannot be used as evidence in any comparison, or None if it can."""
    if (status := record.outcome.status) not in ("finished", "diverged"):
        return f"did not end ({status})"
    dirty = record.environment.get("dirty")
    if dirty is not False:
        return "made by uncommitted code" if dirty else "not known to be made by committed code"
    if not record.finished:
        return None
    if lacking := [score for score in scores if record.metric(score) is None]:
        return f"lacks {lacking[0]}"
    if all(map(is_probe_metric, scores)):
        return None
    if not record.weights:
        return "tested weights chosen by loss"
    chosen = {"last", "average"}.isdisjoint(record.weights)
    return "tested weights chosen by a score" if chosen else None


def sample_of(evidence: EvidenceStore, selection: Selection) -> Sample:
    """Sample the runs of a study. Raise UserError if a run matches two sides."""
    records = evidence.records.get((selection.study, selection.scale), {}).values()
    places = map(split_place, evidence.untuned(selection.study, selection.scale))
    untuned = {Key(row, point, seed=0).name for row, point in places}
    reasons: Counter[str] = Counter()
    sides: dict[str, dict[tuple[int, Point], RunRecord]] = {}
    sides_of_runs: dict[str, str] = {}
    for label in selection.sides:
        eligible = _eligible(records, untuned, selection, label, reasons)
        for run in eligible:
            if (other := sides_of_runs.setdefault(run.run_id, label)) != label:
                raise UserError(f"{run.run_id} matches both sides, {other} and {label}")
        by_point: dict[Point, list[RunRecord]] = {}
        for run in eligible:
            by_point.setdefault(_point(run, selection), []).append(run)
        for members in by_point.values():
            if (problem := _why_not_one_config(label, members)) is not None:
                return _sample(selection, {}, (), reasons, problem)
        sides[label] = {(run.seed, _point(run, selection)): run for run in eligible}
    plan = evidence.plan(selection.study, selection.scale)
    cells = _cells(sides, selection.over, plan)
    unpaired = _unpaired(cells, selection, plan)
    seeds = sorted(set.intersection(*map(set, cells.values())) - unpaired.keys())
    reasons.update(f"sides of {why}" for why in unpaired.values())
    for label, cell in cells.items():
        if short := len({seed for seed, _ in sides[label]} - set(cell)):
            reasons[
                f"{label}: seeds that lack a run for some value of {', '.join(selection.over)}"
            ] += short
    problem = _not_one_experiment(cells, seeds, selection.all_scores)
    return _sample(selection, cells, tuple(seeds), reasons, problem)


def _sample(
    selection: Selection,
    cells: Cells,
    seeds: tuple[int, ...],
    reasons: Counter[str],
    problem: str | None,
) -> Sample:
    excluded = tuple(f"{why}: {count}" for why, count in sorted(reasons.items()))
    return Sample(selection.scores, selection.minus, cells, seeds, excluded, problem)


def _eligible(
    records: Iterable[RecordAt],
    untuned: Set[str],
    selection: Selection,
    label: str,
    reasons: Counter[str],
) -> list[RunRecord]:
    """Return the runs of a side that count, and add to `reasons` why the other runs do not.

    `untuned` are the names of packed runs whose rate the study has yet to choose.
    """
    where = {**selection.where, **selection.sides[label]}
    runs: list[RunRecord] = []
    for each in records:
        if not fits(each.record, where):
            continue
        why = _RATE_NOT_CHOSEN if each.name in untuned else None
        why = why or why_not_evidence(each.record, selection.all_scores)
        if why is None:
            runs.append(each.record)
        else:
            reasons[why] += 1
    return runs


def _point(run: RunRecord, selection: Selection) -> Point:
    return tuple(written(lookup(run, key)) for key in selection.over)


def _cells(
    sides: Mapping[str, Mapping[tuple[int, Point], RunRecord]],
    over: Sequence[str],
    plan: PlannedRuns,
) -> dict[str, dict[int, tuple[RunRecord, ...]]]:
    """Return the runs of each side, keyed by seed.

    Seeds that lack a run for some combination of values of the keys `over` are left out. Such a key
    takes the values in the study's grid or, if it is not in the grid, all values that runs have.
    """
    existing = {point for side in sides.values() for _, point in side}
    axes = (plan.values(key) or sorted({at[n] for at in existing}) for n, key in enumerate(over))
    points = list(product(*axes))
    return {
        label: {
            seed: tuple(side[seed, point] for point in points)
            for seed in sorted({seed for seed, _ in side})
            if all((seed, point) in side for point in points)
        }
        for label, side in sides.items()
    }


def _unpaired(cells: Cells, selection: Selection, plan: PlannedRuns) -> dict[int, str]:
    """Return why runs are not pairs, keyed by seed, for seeds that all sides have."""
    chosen = {key for side in selection.sides.values() for key in side}
    compared = tuple(name for key in sorted(chosen) for name in spelled(key))
    rules = PairRules(may_differ=plan.varied + compared)
    first, *others = cells.values()
    reasons: dict[int, str] = {}
    common = set.intersection(*map(set, cells.values()))
    for other in others:
        for number in range(len(next(iter(first.values()), ()))):
            a, b = ([cell[seed][number] for seed in sorted(common)] for cell in (first, other))
            pairing = Pairing.of(a, b, rules, scores=selection.all_scores)
            reasons = {**pairing.reasons, **reasons}
    return reasons


def _why_not_one_config(label: str, runs: Sequence[RunRecord]) -> str | None:
    """Return how the configs of a side's runs at a point differ, or None if they do not."""
    differing = varying([run.parts for run in runs])
    keys = ", ".join(key for key in differing if not key.endswith(".option"))
    problem = f"{label} matches runs that differ in {keys}; the claim must select one of them"
    return problem if differing else None


def _not_one_experiment(cells: Cells, seeds: Sequence[int], scores: Sequence[str]) -> str | None:
    """Return why a side's seeds are not one experiment scored in one way, or None if they are."""
    for cell in cells.values():
        for runs in zip(*(cell[seed] for seed in seeds), strict=True):
            reasons = (why_not_one_score(runs, score) for score in scores)
            if reason := why_not_one_experiment(runs) or next(filter(None, reasons), None):
                return reason
    return None
