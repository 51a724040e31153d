"""A table of scores: its rows, and the entry of each score.

Pages, papers (`latex.py`), terminals (`terminal_table.py`), Markdown and CSV show the same entries.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from normlab.metrics.score_text import difference_text, heading, score_text
from normlab.metrics.significance import Interval, p_value
from normlab.records.pairs import Experiment, Summary
from normlab.records.record import RunRecord, Score
from normlab.reports.setting_names import setting
from normlab.reports.tables.comparison import Comparison
from normlab.reports.tables.notes import Note


@dataclass(frozen=True)
class Entry:
    """A score of a row, by seed, and its difference from the baseline.

    `bare` is the difference if only one seed can be paired; it has no interval. `article_value` is
    the value reported by the article, on the article's own data.
    """

    score: str
    scores: Mapping[int, Score] = field(default_factory=dict[int, Score])
    article_value: str | float | None = None
    difference: Interval | None = None
    bare: float | None = None
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
    def value(self) -> str:
        """Return the mean and standard deviation as text."""
        if (summary := self.summary) is None:
            return "-"
        if math.isinf(summary.mean):  # steps to a target that some seed never reached
            reached = sum(map(math.isfinite, self.values))
            return f"reached {reached}/{summary.n}" if reached else "not reached"
        sd = "" if summary.sd is None else f" +- {score_text(summary.sd, self.score)}"
        return score_text(summary.mean, self.score) + sd

    @property
    def gap(self) -> str:
        """Return the difference, its interval and its p value as text; "" without a difference.

        The difference of a single pair of seeds has neither. A difference that is zero for each
        seed (of loss spikes, for example) is left out.
        """
        if (gap := self.difference) is None or (p := self.p) is None:
            return difference_text(self.bare, self.score) if self.bare else ""
        if gap.mean == gap.low == gap.high == 0:
            return ""
        chance = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
        mean, low, high = (difference_text(x, self.score) for x in (gap.mean, gap.low, gap.high))
        return f"{mean} [{low}, {high}], {chance}"


@dataclass(frozen=True)
class ScoreRow:
    """One setting at one point of the grid: its scores by column, and its seeds as one experiment.

    `stability` describes how its seeds trained, `article_stability` what the article says about
    that, and `problem` says why the row has no scores; `refused` is set if its seeds cannot be
    averaged.
    `comparison` is with the baseline at the same point. `at` is the point in words.
    """

    name: str
    point: str
    entries: dict[str, Entry]
    outcome: str = "-"
    stability: str = "-"
    article_stability: str | float | None = None
    problem: str | None = None
    experiment: Experiment | None = None
    comparison: Comparison | None = None
    refused: bool = False
    at: str = ""

    @property
    def label(self) -> str:
        """Return the row's name with its point: `ln`, `ln at batch size 8`."""
        return f"{self.name} at {self.at}" if self.at else self.name

    @property
    def records(self) -> tuple[RunRecord, ...]:
        """Return the records of the row's seeds; empty if they could not be joined."""
        return () if self.experiment is None else self.experiment.records

    @property
    def failed(self) -> bool:
        """Whether the seeds cannot be averaged, or one of them did not finish."""
        return self.refused or not all(record.finished for record in self.records)


@dataclass(frozen=True)
class ScoreTable:
    """A study's table: its title, columns, rows and notes.

    `article_heading` is the heading of the column with the article's values on its own data, or ""
    if there are none. `axes` are the settings that a grid varies, and `answer` sums up the first
    score in a sentence (see `answer.py`). `names` are the user's own names of scores and axes, and
    `says_score` is set if the title names the only score.
    """

    title: str
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
    def head(self) -> list[str]:
        columns = [self.names.get(name) or name for name in self.columns]
        return ["setting", "at", *columns, "stability", *filter(None, [self.article_heading])]

    @property
    def filled(self) -> "ScoreTable":
        """Return the table without the columns in which no row has a value."""
        columns = [name for name in self.columns if any(_has(row, name) for row in self.rows)]
        return replace(self, columns=tuple(columns) or self.columns)

    def heading(self, column: str) -> str:
        """Return a column's name for readers: the user's own, or `BLEU` for `test/bleu`."""
        return self.names.get(column) or heading(column)

    def axis_name(self, key: str) -> str:
        """Return an axis's name for readers: the user's own, or `batch size`."""
        return self.names.get(key) or setting(key)

    @property
    def lines(self) -> list[tuple[ScoreRow, list[Entry], list[str]]]:
        """Return each row with its entries and last columns: stability and the article's values."""
        lines: list[tuple[ScoreRow, list[Entry], list[str]]] = []
        for row in self.rows:
            entries = [row.entries[name] for name in self.columns]
            statements = {
                **{each.score: each.article_value for each in entries},
                "stability": row.article_stability,
            }
            texts = [
                f"{name} {v if isinstance(v, str) else f'{v:,.10g}'}"
                for name, v in statements.items()
                if v is not None
            ]
            article = ["; ".join(texts) or "-"] if self.article_heading else []
            lines.append((row, entries, [row.stability, *article]))
        return lines


def _has(row: ScoreRow, column: str) -> bool:
    """Return whether a row has a score, or the article's value, in a column."""
    return bool(row.entries[column].scores) or row.entries[column].article_value is not None
