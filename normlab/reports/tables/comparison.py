"""Compares rows: which are comparable, on which seeds, their difference, and the best row.

`normlab.records.pairs` decides which runs of a seed may be compared. If a seed of a row diverged,
its other seeds are not a fair sample, and the row is not compared. The best row of a column is
found by Holm's (1979) test over all pairs of rows at a point, with at least five seeds.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from normlab.metrics.baseline import (
    at_baseline,
)
from normlab.metrics.glossary import has_direction
from normlab.metrics.significance import Interval, constant, holm, p_value, t_interval
from normlab.records.code import same_code
from normlab.records.grouping import grouped
from normlab.records.pairs import (
    Experiment,
    Pairing,
    PairRules,
    unequal_training,
)
from normlab.records.record import RunRecord, is_probe_metric

SEEDS_TO_DECIDE = 5


@dataclass(frozen=True)
class Comparison:
    """A row compared with its baseline: the pairs of their finished runs.

    `obstacle` says why the rows are not compared, and is "" if they are.
    """

    pairing: Pairing
    obstacle: str

    @classmethod
    def of(cls, row: Experiment, baseline: Experiment, rules: PairRules) -> "Comparison":
        runs, others = ([run for run in each.records if run.finished] for each in (row, baseline))
        pairing = Pairing.of(runs, others, rules)
        return cls(pairing, _obstacle(row, baseline, pairing, rules))

    @property
    def seeds(self) -> list[int]:
        return [*self.pairing.pairs]

    @property
    def has_one_code(self) -> bool:
        """Whether both runs of every pair were made by the same code."""
        return all(same_code(a.made_by, b.made_by) for a, b in self.pairing.pairs.values())

    @property
    def pairs_all_runs(self) -> bool:
        """Whether every finished run of both rows is in a pair."""
        return not self.pairing.reasons and not self.pairing.alone

    def differences(self, score: str) -> dict[int, float]:
        """Return the difference from the baseline for each seed, or {} if it is not comparable."""
        by_seed = self.pairing.differences(score)
        return {} if self.obstacle or not all(map(math.isfinite, by_seed.values())) else by_seed

    def interval(self, score: str) -> Interval | None:
        """Return the mean difference with its interval.

        Returns None for fewer than two pairs, and if all pairs have the same difference, because
        then there is no spread to judge by.
        """
        values = [*self.differences(score).values()]
        return t_interval(values) if len(values) > 1 and not constant(values) else None


def _obstacle(row: Experiment, baseline: Experiment, pairing: Pairing, rules: PairRules) -> str:
    """Return why two rows are not compared, or "" if they are."""
    unequal = unequal_training(row.parts, baseline.parts) if rules.training else {}
    diverged = [
        f"{count} of {len(each.records)} of the {name}"
        for each, name in ((row, "row"), (baseline, "baseline"))
        if (count := count_diverged(each.records))
    ]
    why: list[str] = []
    if unequal:
        why = [f"{key} {a}, the baseline's {b}" for key, (a, b) in unequal.items()]
    elif pairing.reasons and not pairing.pairs:
        by_reason = grouped((reason, seed) for seed, reason in pairing.reasons.items())
        why = [f"{reason} (seeds {' '.join(map(str, n))})" for reason, n in by_reason.items()]
    elif diverged:
        why = [f"seeds diverged: {', '.join(diverged)}", "the others are not a fair sample"]
    elif not pairing.pairs:
        sides = [[run.seed for run in each.records if run.finished] for each in (row, baseline)]
        each_side = "; ".join(" ".join(map(str, side)) or "none" for side in sides)
        why = [f"no seed finished on both sides ({each_side})"]
    return "; ".join(why)


def best(rows: Sequence[Experiment], score: str, rules: PairRules) -> Experiment | None:
    """Return the row that is significantly better than every other row, or None if there is none.

    All rows must have the score in at least five seeds, all of them finished and clearly better
    than the untrained baseline, and paired runs must share their code. p values are Holm-corrected
    over all pairs of rows. Probe metrics and scores without a better direction, such as
    `length_ratio`, have no best row.
    """
    if is_probe_metric(score) or not has_direction(score) or len(rows) < 2:
        return None
    if not all(SEEDS_TO_DECIDE <= len(row.scores(score)) == len(row.records) for row in rows):
        return None
    if any(at_baseline(row.records, score) for row in rows):
        return None
    both = list(combinations(rows, 2))
    compared = [Comparison.of(a, b, rules) for a, b in both]
    if not all(each.has_one_code for each in compared):
        return None
    sign = 1 if next(iter(rows[0].scores(score).values())).higher_is_better else -1
    top = max(rows, key=lambda row: sign * fmean(row.values(score).values()))
    gaps = [each.interval(score) for each in compared]
    corrected = holm([1.0 if gap is None else p_value(gap) for gap in gaps])
    for (a, b), gap, p in zip(both, gaps, corrected, strict=True):
        if top in (a, b):
            ahead = 0.0 if gap is None else sign * gap.mean * (1 if a is top else -1)
            if gap is None or gap.n < SEEDS_TO_DECIDE or p >= 0.05 or ahead <= 0:
                return None
    return top


def count_diverged(records: Iterable[RunRecord]) -> int:
    """Return how many runs diverged."""
    return sum(record.outcome.status == "diverged" for record in records)
