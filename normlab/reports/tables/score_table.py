"""A table of scores: its rows, and the entry of each score.

Pages, papers (`latex.py`), terminals (`terminal_table.py`), Markdown and CSV show the same entries.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from normlab.metrics.baseline import is_amount_of_training
from normlab.metrics.score_text import difference_text, heading, score_text
from normlab.metrics.significance import Interval, p_value
from normlab.records.pairs import Experiment, Summary
from normlab.records.record import RunRecord, Score
from normlab.reports.arrangement.row_names import RowName
from normlab.reports.legend import Note
from normlab.reports.setting_names import setting
from normlab.reports.tables.comparison import Comparison


class ValueText(NamedTuple):
    """A value as a table shows it: the mean, and the standard deviation ("" for one seed)."""

    mean: str
    sd: str = ""

    def __str__(self) -> str:
        return f"{self.mean} +- {self.sd}" if self.sd else self.mean


class DifferenceText(NamedTuple):
    """A difference as a table shows it. A single pair of seeds has no interval and no p value."""

    mean: str
    low: str = ""
    high: str = ""
    p: str = ""

    def __str__(self) -> str:
        return f"{self.mean} [{self.low}, {self.high}], {self.p}" if self.p else self.mean


@dataclass(frozen=True)
class Entry:
    """A score of a row, by seed, and its difference from the baseline.

    If only one seed can be paired, or all have the same difference, it is `bare`, without an
    interval. `pairs` are the seeds that it is over, which may be fewer than those of the score.
    `article_value` is the value that the article reports, on its own data.
    """

    score: str
    scores: Mapping[int, Score] = field(default_factory=dict[int, Score])
    article_value: str | float | None = None
    difference: Interval | None = None
    bare: float | None = None
    pairs: tuple[int, ...] = ()
    best: bool = False

    @property
    def values(self) -> list[float]:
        return [score.value for score in self.scores.values()]

    @property
    def summary(self) -> Summary | None:
        return Summary.of(self.values) if self.scores else None

    @property
    def p(self) -> float | None:
        return None if self.difference is None else p_value(self.difference)

    @property
    def shown_value(self) -> ValueText | None:
        """The mean and standard deviation as text, or None if there is no value."""
        if (summary := self.summary) is None:
            return None
        if math.isinf(summary.mean) and is_amount_of_training(self.score):
            reached = sum(map(math.isfinite, self.values))
            return ValueText(f"reached {reached}/{summary.n}" if reached else "not reached")
        sd = "" if summary.sd is None else score_text(summary.sd, self.score)
        return ValueText(score_text(summary.mean, self.score), sd)

    @property
    def shown_difference(self) -> DifferenceText | None:
        """The difference, its interval and its p value as text, or None if there is no difference.

        A bare difference has neither. If it is zero (of loss spikes, for example), it is left out.
        """
        if (gap := self.difference) is None or (p := self.p) is None:
            return DifferenceText(difference_text(self.bare, self.score)) if self.bare else None
        chance = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
        mean, low, high = (difference_text(x, self.score) for x in (gap.mean, gap.low, gap.high))
        return DifferenceText(mean, low, high, chance)

    @property
    def value(self) -> str:
        """The mean and standard deviation in one text, or a dash if there is no value."""
        return "-" if self.shown_value is None else str(self.shown_value)

    @property
    def gap(self) -> str:
        """The difference in one text, or "" if there is none."""
        return "" if self.shown_difference is None else str(self.shown_difference)


@dataclass(frozen=True)
class ScoreRow:
    """One setting at one point of the grid: its scores by column, and its seeds as one experiment.

    `stability` describes how its seeds trained, and `article_stability` is what the article says
    about that. `problem` says why the row has no scores, and `refused` is set if its seeds cannot
    be averaged. `comparison` is with the baseline at the same point. `at` is the point in words.
    """

    row_name: RowName
    point: str
    entries: dict[str, Entry]
    is_baseline: bool = False
    outcome: str = "-"
    stability: str = "-"
    article_stability: str | float | None = None
    problem: str | None = None
    experiment: Experiment | None = None
    comparison: Comparison | None = None
    refused: bool = False
    at: str = ""

    @property
    def name(self) -> str:
        return self.row_name.text

    @property
    def in_sentence(self) -> str:
        """Return the row's name with its point for a sentence: `bn (running) at depth 2`."""
        name = self.row_name.in_sentence
        return f"{name} at {self.at}" if self.at else name

    @property
    def label(self) -> str:
        """Return the row's name with its point: `ln`, `ln at batch size 8`."""
        return f"{self.name} at {self.at}" if self.at else self.name

    @property
    def records(self) -> tuple[RunRecord, ...]:
        """The records of the row's seeds, or () if they cannot be averaged."""
        return () if self.experiment is None else self.experiment.records

    def article_text(self, columns: Sequence[str]) -> str:
        """Return the article's values of some columns, and what it says about stability."""
        statements = {name: self.entries[name].article_value for name in columns}
        statements["stability"] = self.article_stability
        return "; ".join(
            f"{name} {value if isinstance(value, str) else f'{value:,.10g}'}"
            for name, value in statements.items()
            if value is not None
        )

    @property
    def failed(self) -> bool:
        """Whether the seeds cannot be averaged, or one of them did not finish."""
        return self.refused or not all(record.finished for record in self.records)


class TableLine(NamedTuple):
    """A row with its entries by column, and the article's values.

    `article` is "" if the article says nothing about the row, and None if no row has such values.
    """

    row: ScoreRow
    entries: list[Entry]
    article: str | None


@dataclass(frozen=True)
class ScoreTable:
    """The scores of runs: a title for readers, a key for labels, columns, rows and notes.

    `article_heading` is the heading of the column with the article's values on its own data, or ""
    if there are none. `axes` are the settings that a grid varies, and `answer` sums up the first
    score in a sentence (see `answer.py`). `names` are the user's own names for scores and axes, and
    `says_score` is set if the title already names the only score.
    """

    title: str
    key: str
    columns: tuple[str, ...]
    rows: tuple[ScoreRow, ...]
    notes: tuple[Note, ...] = ()
    article_heading: str = ""
    axes: tuple[str, ...] = ()
    answer: str = ""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    says_score: bool = False

    @property
    def problems(self) -> list[str]:
        """Return a line for each row without scores."""
        return [f"{row.label}: {row.problem}" for row in self.rows if row.problem]

    @property
    def column_titles(self) -> list[str]:
        """The scores, by the user's own names for them."""
        return [self.names.get(name) or name for name in self.columns]

    @property
    def head(self) -> list[str]:
        last = ["stability", *filter(None, [self.article_heading])]
        return ["setting", "at", *self.column_titles, *last]

    @property
    def filled(self) -> "ScoreTable":
        """Return the table without the columns in which no row has a value."""
        columns = [name for name in self.columns if any(_has(row, name) for row in self.rows)]
        return replace(self, columns=tuple(columns) or self.columns)

    def heading(self, column: str) -> str:
        """Return the user's own name of a column or, without one, ours (`BLEU` for `test/bleu`)."""
        return self.names.get(column) or heading(column)

    def axis_name(self, key: str) -> str:
        """Return an axis's name for readers: the user's own, or `batch size`."""
        return self.names.get(key) or setting(key)

    @property
    def lines(self) -> list[TableLine]:
        """Return each row with its entries by column, and what the article says about it."""
        return [
            TableLine(
                row,
                [row.entries[name] for name in self.columns],
                row.article_text(self.columns) if self.article_heading else None,
            )
            for row in self.rows
        ]


def _has(row: ScoreRow, column: str) -> bool:
    """Return whether a row has a score, or the article's value, in a column."""
    return bool(row.entries[column].scores) or row.entries[column].article_value is not None
