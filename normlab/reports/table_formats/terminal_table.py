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
from normlab.reports.tables.score_table import ScoreTable
from normlab.reports.tables.stability import ended_in_brief
from normlab.terminal import print_error, print_prose, print_table


def compare_ended_runs(places: Sequence[Path]) -> None:
    """Print the tables of all ended runs in some places, and the problems with these runs."""
    runs, problems = read_runs(places, ended=True)
    problems += print_tables(arrange_by_recipe(runs), {}, whole_notes=False)
    for problem in problems:
        print_error(problem)


def print_tables(tables: Sequence[Arrangement], names: Names, *, whole_notes: bool) -> list[str]:
    """Print tables with the notes on all of them. Return a line for each refused row."""
    built = [build_table(runs, names) for runs in tables]
    for number, (runs, table) in enumerate(zip(tables, built, strict=True)):
        print(end="\n" if number else "")
        print_score_table(table, runs.baseline)
    print_legend([note for table in built for note in table.notes], whole=whole_notes)
    return [problem for table in built for problem in table.problems]


def print_score_table(table: ScoreTable, baseline: str) -> None:
    """Print a table's answer and scores, then the differences from the baseline.

    A star marks the entries that are bold in Markdown.
    """
    scores: list[list[str]] = []
    gaps: list[list[str]] = []
    labels = 1 + len(table.axes)
    differing = {score for row in table.rows for score, each in row.entries.items() if each.gap}
    for row, entries, article in table.lines:
        at = values_at(row.point, table.axes)
        names = [row.name, *(at.get(axis, "-") for axis in table.axes)]
        texts = [f"{each.value}{' *' if each.best else ''}" for each in entries]
        last = [ended_in_brief(row)] if article is None else [ended_in_brief(row), article or "-"]
        scores.append([*names, *texts, *last])
        if any(each.gap for each in entries):
            gaps.append([*names, *(each.gap or "-" for each in entries if each.score in differing)])
    head = ["setting", *map(table.axis_name, table.axes), *table.head[2:]]
    head[labels + len(table.columns)] = "seeds"
    if table.answer:
        print_prose(table.answer)
        print()
    print_prose(table.title)
    columns = head[labels : labels + len(table.columns)]
    print_table(head, scores, numeric=columns, labels=labels)
    if gaps:
        print()
        where = " at the same point" if table.axes else ""
        only = all(e.difference is None for row in table.rows for e in row.entries.values())
        paired = "of the only seed" if only else "paired by seed"
        print_prose(f"difference from {baseline}{where}, {paired}")
        columns = [
            title for score, title in zip(table.columns, columns, strict=True) if score in differing
        ]
        print_table([*head[:labels], *columns], gaps, numeric=columns, labels=labels)
