"""Rows that are not compared with the baseline, or only on some seeds, and the note on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from normlab.records.grouping import grouped
from normlab.reports.legend import About, Note
from normlab.reports.tables.score_table import ScoreRow

_ROWS_LISTED = 3
"""If a brief note is about more rows, it only counts them."""


class ComparisonLimit(NamedTuple):
    """Why a row is not compared with the baseline or, if it is compared, on which seeds only."""

    obstacle: str = ""
    seeds: tuple[int, ...] = ()

    @classmethod
    def of(cls, row: ScoreRow) -> "ComparisonLimit | None":
        """Return a row's limit, or None for the baseline and for a row compared on all seeds."""
        comparison = row.comparison
        if comparison is None or (not comparison.obstacle and comparison.pairs_all_runs):
            return None
        return cls(comparison.obstacle, () if comparison.obstacle else tuple(comparison.seeds))

    def text(self, baseline: str) -> str:
        if self.obstacle:
            return f"not compared with {baseline}, {self.obstacle}"
        return f"only seeds {' '.join(map(str, self.seeds))} are pairs"


@dataclass(frozen=True)
class Uncompared:
    """The rows that are not compared with the baseline, or only on some seeds, keyed by reason."""

    rows: Mapping[ComparisonLimit, Sequence[ScoreRow]]

    @classmethod
    def of(cls, rows: Sequence[ScoreRow]) -> "Uncompared":
        reasons = ((ComparisonLimit.of(row), row) for row in rows)
        return cls(grouped((reason, row) for reason, row in reasons if reason is not None))

    @property
    def on_no_seed(self) -> list[ScoreRow]:
        """The rows that are not compared at all."""
        return [row for reason, rows in self.rows.items() if reason.obstacle for row in rows]

    def note(self, baseline: str, in_sentence: str, shared: str) -> Note:
        """Return the note on these rows.

        `baseline` is the baseline's name, `in_sentence` the same name for a sentence, and `shared`
        what the two runs of a pair have in common.
        """
        reasons = [
            f"{reason.text(baseline)} ({'; '.join(row.label for row in rows)})"
            for reason, rows in self.rows.items()
        ]
        text = f"differences: {'; '.join(reasons)}; the two runs of a pair have the same seed, "
        names = [row.in_sentence for row in self.on_no_seed]
        if not names:
            return Note(text + shared, about=About.PAIRS)
        if len(names) > _ROWS_LISTED:
            brief = f"{len(names)} rows are not compared with {in_sentence}"
        else:
            brief = f"not compared: {'; '.join(names)}"
        return Note(text + shared, brief)
