"""Decides whether a row is above, below, or not clearly different from the baseline.

A row is above or below the baseline only if the 95 % interval of the difference excludes zero, or
for a single seed if the bare difference is not zero. If several seeds all have the same difference,
there is no interval, and the row is not clearly different. A row that did not clearly learn, or
that has a score which is not finite, is not compared.
"""

import math
from enum import Enum
from typing import NamedTuple

from normlab.metrics.baseline import against_baseline
from normlab.records.record import is_probe_metric
from normlab.reports.tables.comparison import count_diverged
from normlab.reports.tables.score_table import ScoreRow, ScoreTable


class Standing(Enum):
    """The standing of a row relative to the baseline at a point."""

    BELOW = "below"
    ABOVE = "above"
    OPEN = "open"
    UNTRAINED = "untrained"
    UNTRAINED_BASELINE = "untrained baseline"
    DIVERGED = "diverged"
    NOT_FINITE = "not finite"
    UNKNOWN = "unknown"

    @property
    def is_compared(self) -> bool:
        return self in (Standing.BELOW, Standing.ABOVE, Standing.OPEN)

    @classmethod
    def of(cls, low: float, high: float) -> "Standing":
        """Return the standing for a difference whose interval reaches from `low` to `high`."""
        return cls.ABOVE if low > 0 else cls.BELOW if high < 0 else cls.OPEN


class PointDifference(NamedTuple):
    """A row compared with the baseline at a point. `gap` is None if it cannot be computed."""

    point: str
    standing: Standing
    gap: float | None = None
    interval: tuple[float, float] | None = None


def main_score(table: ScoreTable) -> str | None:
    """Return the first column that is a score of some row, or None if there is none."""
    columns = (name for name in table.columns if not is_probe_metric(name))
    return next((c for c in columns if any(row.entries[c].scores for row in table.rows)), None)


def is_untrained(row: ScoreRow, column: str) -> bool:
    """Return whether a row's score is near the untrained baseline."""
    ended = [record for record in row.records if record.finished]
    return (compared := against_baseline(ended, column)) is not None and compared.is_near


def point_difference(row: ScoreRow, base: ScoreRow | None, column: str) -> PointDifference:
    """Return how a row compares with the baseline at its point."""
    if count_diverged(row.records):
        return PointDifference(row.point, Standing.DIVERGED)
    if base is None or not row.records or not base.records:
        return PointDifference(row.point, Standing.UNKNOWN)
    if is_untrained(row, column):
        return PointDifference(row.point, Standing.UNTRAINED)
    if is_untrained(base, column):
        return PointDifference(row.point, Standing.UNTRAINED_BASELINE)
    entry = row.entries[column]
    if not all(map(math.isfinite, [*entry.values, *base.entries[column].values])):
        return PointDifference(row.point, Standing.NOT_FINITE)
    if (gap := entry.difference) is not None:
        standing = Standing.of(gap.low, gap.high)
        return PointDifference(row.point, standing, gap.mean, (gap.low, gap.high))
    if entry.bare is None:
        return PointDifference(row.point, Standing.UNKNOWN)
    one_seed = row.comparison is not None and len(row.comparison.seeds) == 1
    standing = Standing.of(entry.bare, entry.bare) if one_seed else Standing.OPEN
    return PointDifference(row.point, standing, entry.bare)
