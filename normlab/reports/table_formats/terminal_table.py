"""Prints tables of scores in the terminal: answer, scores, differences and notes."""

from collections.abc import Sequence
from pathlib import Path

from normlab.reports.arrangement.arrangement import Arrangement
from normlab.reports.arrangement.unplanned import arrange_by_recipe
from normlab.reports.legend import print_legend
from normlab.reports.renaming import Names
from normlab.reports.runs import read_runs
from normlab.reports.tables.axes import values_at
from normlab.reports.tables.build_table import build_table
from normlab.reports.tables.score_table import ScoreRow, ScoreTable
from normlab.reports.tables.stability import ended_in_brief
from normlab.reports.tables.standing import is_untrained
from normlab.reports.tables.untrained import NEAR
from normlab.terminal import print_error, print_prose, print_table


def compare_ended_runs(places: Sequence[Path]) -> None:
    """Print the tables of all ended runs in some places, and the problems with these runs."""
    runs, problems = read_runs(places, ended=True)
    problems += print_tables(arrange_by_recipe(runs), {}, whole_notes=False)
    for problem in problems:
        print_error(problem)


def print_tables(tables: Sequence[Arrangement], names: Names, *, whole_notes: bool) -> list[str]:
    """Print tables, then the notes on all of them. Return a line for each refused row."""
    built = [build_table(runs, names) for runs in tables]
    for number, (runs, table) in enumerate(zip(tables, built, strict=True)):
        print(end="\n" if number else "")
        print_score_table(table, runs.baseline)
    print_legend([note for table in built for note in table.notes], whole=whole_notes)
    return [problem for table in built for problem in table.problems]


def print_score_table(table: ScoreTable, baseline: str) -> None:
    """Print a table's answer and scores, then the differences from the baseline.

    A star marks the entries that are bold in Markdown, and `NEAR` those that say nothing.
    """
    if table.answer:
        print_prose(table.answer)
        print()
    print_prose(table.title)
    _print_scores(table)
    columns = [
        score for score in table.columns if any(row.entries[score].gap for row in table.rows)
    ]
    if columns:
        print()
        _print_differences(table, columns, baseline)


def _print_scores(table: ScoreTable) -> None:
    labels, scores = _label_titles(table), table.column_titles
    lines: list[list[str]] = []
    for row, entries, article in table.lines:
        values = [
            f"{each.value}{' *' if each.best else ''}{_mark(each.score, row)}" for each in entries
        ]
        last = [ended_in_brief(row)] if article is None else [ended_in_brief(row), article or "-"]
        lines.append([*_labels(row, table), *values, *last])
    heading = [table.article_heading] if table.article_heading else []
    head = [*labels, *scores, "seeds", *heading]
    print_table(head, lines, numeric=scores, labels=len(labels))


def _print_differences(table: ScoreTable, columns: Sequence[str], baseline: str) -> None:
    """Print the rows with a difference, and the columns in which some row has one."""
    labels = _label_titles(table)
    titles = [table.names.get(score) or score for score in columns]
    where = " at the same point" if table.axes else ""
    only = all(e.difference is None for row in table.rows for e in row.entries.values())
    paired = "of the only seed" if only else "paired by seed"
    print_prose(f"difference from {baseline}{where}, {paired}")
    bases = {row.point: row for row in table.rows if row.is_baseline}

    def gap(row: ScoreRow, score: str) -> str:
        sides = [row, bases[row.point]] if row.point in bases else [row]
        text = row.entries[score].gap
        return f"{text}{_mark(score, *sides)}" if text else "-"

    lines = [
        [*_labels(row, table), *(gap(row, score) for score in columns)]
        for row in table.rows
        if any(row.entries[score].gap for score in columns)
    ]
    print_table([*labels, *titles], lines, numeric=titles, labels=len(labels))


def _mark(score: str, *rows: ScoreRow) -> str:
    """Return the mark of an entry if a row's score is near the untrained baseline, or ""."""
    return f" {NEAR}" if any(is_untrained(row, score) for row in rows) else ""


def _label_titles(table: ScoreTable) -> list[str]:
    """Return the headings of the first columns: the row's name, and the axes of the grid."""
    return ["setting", *map(table.axis_name, table.axes)]


def _labels(row: ScoreRow, table: ScoreTable) -> list[str]:
    """Return a row's name and its value on each axis."""
    at = values_at(row.point, table.axes)
    return [row.name, *(at.get(axis, "-") for axis in table.axes)]
