"""A row of a comparison table: a setting at a point of a study's grid, and its scores."""

from collections.abc import Mapping
from dataclasses import dataclass

from normlab.metrics.spread import Interval
from normlab.records.aggregate import Summary


@dataclass(frozen=True)
class Entry:
    """One score of one row: its summary, what the document says, the difference to the baseline."""

    summary: Summary | None
    values: Mapping[int, float]
    higher_is_better: bool
    document: str | float | None
    difference: Interval | None
    p: float | None
    signature: str | None = None
    best: bool = False


@dataclass(frozen=True)
class Row:
    """One setting at one point of the grid; `problem` says why it has no figures.

    `stability` says how its seeds trained, `said` what the document says of that.
    """

    name: str
    point: str
    outcome: str
    seeds: tuple[int, ...]
    entries: Mapping[str, Entry]
    problem: str | None = None
    stability: str = "-"
    said: str | float | None = None

    @property
    def label(self) -> str:
        """Return name and point."""
        return f"{self.name} {self.point}".strip()
