"""Which rows of a table may be compared, over which seeds, and which is the best.

Seeds are paired where both runs were made in like arithmetic (device, precision, instruction set),
unless the precision is what the study compares. Where a seed of a row diverged, its scores are
compared with none: the survivors are not a fair sample. The best of a column is Holm's (1979)
answer over all pairs of rows at one point, from five seeds on.
"""

import math
from collections.abc import Sequence
from itertools import combinations

from normlab.metrics.floors import at_floor
from normlab.metrics.spread import Interval, p_value, paired_interval
from normlab.metrics.statistics import holm
from normlab.records.aggregate import Cell
from normlab.records.arithmetic import arithmetic
from normlab.records.code import same_code
from normlab.records.record import RunRecord

CONFIDENCE = 0.95
SEEDS_TO_DECIDE = 5
# What two rows share if their difference is to be one of the settings that the study declares.
_SHARED = (
    *(("data", key) for key in ("source", "sizes", "checksums")),
    ("environment", "world_size"),
)
_PRECISION = 1  # of the parts of an arithmetic


class Comparison:
    """How the rows of one study are compared.

    `precision` says that the rows are to differ in it, so that it need not be alike.
    """

    def __init__(self, *, precision: bool) -> None:
        self.precision = precision

    def obstacle(self, a: Cell, b: Cell) -> str | None:
        """Say why no score of two rows is compared, None where scores may be."""
        one, other = a.records[0], b.records[0]
        for part, key in _SHARED:
            values = [getattr(record, part).get(key) for record in (one, other)]
            if values[0] != values[1]:
                return f"{part}.{key} is {values[0]!r:.60} and {values[1]!r:.60}"
        if not self._seeds(a, b) and any(seed in b.seeds for seed in a.seeds):
            kinds = [" ".join(self._arithmetic(record)) for record in (one, other)]
            return f"arithmetic is {kinds[0]} and {kinds[1]}"
        if any(diverged := [diverged_seeds(cell) for cell in (a, b)]):
            its, others = (
                f"{n} of {len(cell.seeds)}" for n, cell in zip(diverged, (a, b), strict=True)
            )
            return f"{its} of its seeds and {others} of the other's diverged"
        return None

    def difference(self, a: Cell, b: Cell, score: str) -> Interval | None:
        """Return `a - b` paired by seed; None for fewer than two pairs or scores of unlike making.

        Steps to a target that a seed never reached make none either.
        """
        if self.obstacle(a, b) is not None or a.signature(score) != b.signature(score):
            return None
        common = self._seeds(a, b)
        left, right = (
            {seed: value for seed, value in values(cell, score).items() if seed in common}
            for cell in (a, b)
        )
        both = left.keys() & right.keys()
        if len(both) < 2 or not all(math.isfinite(x[seed]) for x in (left, right) for seed in both):
            return None
        return paired_interval(left, right, confidence=CONFIDENCE)

    def paired_seeds(self, a: Cell, b: Cell) -> list[int]:
        """Return the seeds that finished on both sides in like arithmetic."""
        common = self._seeds(a, b)
        return [r.seed for r in a.records if r.finished and r.seed in common]

    def best(self, cells: Sequence[Cell], score: str) -> int | None:
        """Return the place of the row that is significantly better than each other, if one is.

        Rows without such a score are left out. Every other must have five seeds, all of which
        finished, be clear of the floor, and be made by the code of the others; p is corrected by
        Holm over all pairs of rows. Of a probe's figure no side is better.
        """
        if score.startswith("stability/") or any(diverged_seeds(cell) for cell in cells):
            return None
        there = [n for n, cell in enumerate(cells) if cell.score(score) is not None]
        if len(there) < 2 or not all(_counts(cells[n], score) for n in there):
            return None
        if not all(self._one_code(cells[a], cells[b]) for a, b in combinations(there, 2)):
            return None
        sign = 1 if higher_is_better(cells[there[0]], score) else -1
        best = max(there, key=lambda n: sign * _mean(cells[n], score))
        pairs = list(combinations(there, 2))
        gaps = [self.difference(cells[a], cells[b], score) for a, b in pairs]
        ours = [best in pair for pair in pairs]
        for (a, _), gap, own in zip(pairs, gaps, ours, strict=True):
            ahead = gap is not None and sign * gap.mean * (1 if a == best else -1) > 0
            if own and (gap is None or gap.n < SEEDS_TO_DECIDE or not ahead):
                return None
        found = [1.0 if gap is None else p_value(gap) for gap in gaps]
        limit = 1 - CONFIDENCE
        if any(p >= limit for p, own in zip(found, ours, strict=True) if own):
            return None  # which no correction makes better, and saves its import
        corrected = holm(found)
        return (
            best if all(p < limit for p, own in zip(corrected, ours, strict=True) if own) else None
        )

    def _seeds(self, a: Cell, b: Cell) -> set[int]:
        """Return the seeds whose runs were made in like arithmetic on both sides."""
        others = {record.seed: self._arithmetic(record) for record in b.records}
        return {r.seed for r in a.records if others.get(r.seed) == self._arithmetic(r)}

    def _one_code(self, a: Cell, b: Cell) -> bool:
        """Tell whether in each pair of runs both were made by the same code."""
        others = {record.seed: record.environment for record in b.records}
        pairs = self._seeds(a, b)
        runs = [record for record in a.records if record.seed in pairs]
        return all(same_code(run.environment, others[run.seed]) for run in runs)

    def _arithmetic(self, record: RunRecord) -> tuple[str, ...]:
        kind = arithmetic(record)
        return (*kind[:_PRECISION], *kind[_PRECISION + 1 :]) if self.precision else kind


def values(cell: Cell, score: str) -> dict[int, float]:
    """Return a score by seed, of the seeds that finished."""
    found = {record.seed: record.figure(score) for record in cell.records if record.finished}
    return {seed: figure.value for seed, figure in found.items() if figure is not None}


def higher_is_better(cell: Cell, score: str) -> bool:
    """Return the direction of a score; True where no run has it."""
    found = (record.figure(score) for record in cell.records)
    return next((figure.higher_is_better for figure in found if figure is not None), True)


def diverged_seeds(cell: Cell) -> int:
    """Count the seeds that diverged."""
    return sum(record.outcome.status == "diverged" for record in cell.records)


def _counts(cell: Cell, score: str) -> bool:
    """Tell whether a row has seeds enough, all of which finished, and is clear of its floor."""
    complete = SEEDS_TO_DECIDE <= len(values(cell, score)) == len(cell.seeds)
    return complete and at_floor(cell.records, score) is None


def _mean(cell: Cell, score: str) -> float:
    summary = cell.score(score)
    assert summary is not None
    return summary.mean
