"""The tables of studies in a terminal: what has ended, with the values of the article."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._terminal import complain, print_note, print_table
from normlab.studies import rate_name
from normlab.studies.queue import Job

if TYPE_CHECKING:
    from normlab.reports.table import Table


def print_tables(jobs: Sequence[Job], results: Path) -> None:
    """Print the table of each study by what has ended, with the published seeds that count."""
    from normlab.reports.published import read
    from normlab.reports.study_table import build

    for job in jobs:
        runs = [(run.planned, run.record()) for run in job.asked()]
        if job.published:
            try:
                _, there = read(results / job.study.name / job.scale)
            except ValueError as error:
                complain(f"{job.name}: the table is of the runs made here alone: {error}")
                there = []
            beside = [each for each in there if each[0].seed in job.published]
            kept = [each for each in beside if rate_name(each[0].row, each[0].point) in job.names]
            runs = kept + runs
        print()
        _print(build(job.study, job.scale, runs), job.study.baseline)


def _print(table: "Table", baseline: str) -> None:
    """Print the scores of a table, then the differences to the baseline, then its notes.

    What Markdown has in bold bears a star.
    """
    from normlab.reports.study_table import BOLD
    from normlab.reports.table import parts, said, shown, stability

    labels = ["setting", "at"]
    scores: list[list[str]] = []
    gaps: list[list[str]] = []
    for row in table.rows:
        names = [row.name, row.point or "-"]
        texts = [parts(entry, column) for column, entry in shown(table, row)]
        best = [" *" if row.entries[column].best else "" for column in table.columns]
        figures = [
            "; ".join(filter(None, (f"{figure}{mark}", document)))
            for (figure, _, document), mark in zip(texts, best, strict=True)
        ]
        scores.append([*names, *figures, "; ".join(stability(table, row)), *said(table, row)])
        if any(gap for _, gap, _ in texts):
            gaps.append([*names, *(gap or "-" for _, gap, _ in texts)])
    starred = {BOLD: BOLD.replace("bold", "*", 1)}
    notes = [starred.get(note, note) for note in table.notes]
    print_note(table.title)
    print_table(
        [*labels, *table.columns, "stability", *([table.apart] if table.apart else [])],
        scores,
        numeric=table.columns,
        labels=len(labels),
        notes=[] if gaps else notes,
    )
    if gaps:
        print()
        print_note(f"difference to {baseline} at the same point, paired by seed")
        print_table(
            [*labels, *table.columns],
            gaps,
            numeric=table.columns,
            labels=len(labels),
            notes=notes,
            whole=True,
        )
