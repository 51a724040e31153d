"""Prints plans of studies and executes their runs, for `normlab study` and `normlab articles`."""

import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from normlab.config.folders import PUBLISH_TO
from normlab.errors import UserError
from normlab.reports.legend import Note, print_legend
from normlab.studies import study_runs as studied
from normlab.studies.cost import COLUMNS, cost_table
from normlab.studies.job import Job
from normlab.studies.process_pool import simultaneous_runs
from normlab.studies.publisher import Publisher
from normlab.studies.runs_display import run_all_shown
from normlab.studies.study_queue import StudyQueue
from normlab.terminal import print_error, print_prose, print_table


def print_plan(
    jobs: Sequence[Job],
    *,
    processes: int | None = None,
    published: Path = PUBLISH_TO,
    notes: bool = False,
) -> None:
    """Print the cost of the remaining runs, estimated from the user's and from published runs."""
    for job in jobs:
        left = job.left(print_error)
        print_prose(job.progress(left))
        rows, cost_notes = cost_table(job, left, published, simultaneous_runs(processes))
        if job.study.claims:
            numbers = ", ".join(map(str, job.study.claims))
            cost_notes.append(f"claims: {numbers}; `normlab claims N` shows how a claim is decided")
        place = COLUMNS.index("length")
        columns = [*COLUMNS]
        if len({row[place] for row in rows}) == 1 < len(rows):  # printed once, to save a column
            print_prose(f"each run trains for {rows[0][place]}")
            columns, *rows = ([*row[:place], *row[place + 1 :]] for row in (columns, *rows))
        print_table(columns, rows, numeric=(columns[0], *columns[3:]), labels=2)
        print_legend([*map(Note.short, cost_notes)], whole=notes)
        if warning := job.untuned():
            print_error(warning)


def run_studies(
    jobs: Sequence[Job],
    publisher: Publisher,
    resume_command: str,
    *,
    processes: int | None = None,
    budget: float = math.inf,
    notes: bool = False,
) -> int:
    """Execute the remaining runs, publish completed seeds, and print the tables.

    `resume_command` is printed if runs are left. Returns 1 if data, a run or publishing failed.
    """
    until = time.monotonic() + budget
    for job in jobs:
        _print_progress(job)
    runnable = [job for job in jobs if not job.lacks_data]
    if any(job.counts for job in runnable) and (warning := studied.uncommitted()):
        print_error(warning)
    queue = StudyQueue(jobs, on_seeds=publisher.publish)
    for job in jobs:
        publisher.publish(job, queue.complete_seeds(job))
    ended = []
    if queue.left():
        ended = run_all_shown(queue, processes, resume_command=resume_command, deadline=until)
    print_study_tables(runnable, notes=notes)
    for folder in publisher.folders:
        print(f"written to {folder}")
    if runnable:
        print("\n".join(["", *queue.summary()]))
        if queue.left() or queue.failed:
            print(f"resume with: {resume_command}")
    lacking = len(runnable) < len(jobs)
    failed = queue.failed or any(done.status for done in ended)
    return 1 if lacking or publisher.problems or failed else 0


def _print_progress(job: Job) -> None:
    """Print how many runs a study has left, and warn about missing data and untuned rates."""
    left = job.left(print_error)
    print_prose(job.progress(left))
    if warning := job.untuned():
        print_error(warning)
    try:
        studied.check_data(job.study, job.scale, left)
    except UserError as error:
        print_error(str(error))
        job.lacks_data = True


def publisher_to(
    root: Path | None, jobs: Sequence[Job], *, replace: bool = False, making: bool
) -> Publisher:
    """Return the publisher for the jobs' seeds. If no folder is given, it publishes nothing."""
    from normlab.publishing.publish import check_publishable, publish_seeds

    on_line, publish = partial(print, flush=True), None
    if root is not None:
        check_publishable(root, jobs, replacing=replace, making=making)
        publish = partial(publish_seeds, root, on_line if replace else None)
    return Publisher(publish, on_line=on_line, on_problem=print_error)


def print_study_tables(jobs: Sequence[Job], *, notes: bool) -> None:
    """Print each study's table from the runs that have ended, with full notes if `notes` is set."""
    from normlab.publishing.study_arrangement import study_arrangement
    from normlab.reports.runs import Run
    from normlab.reports.table_formats.terminal_table import print_score_table
    from normlab.reports.tables.build_table import build_table

    for job in jobs:
        runs = [Run(run.planned.key, run.record()) for run in job.runs]
        print()
        table = build_table(study_arrangement(job.study, job.scale, runs)).filled
        print_score_table(table, job.study.baseline)
        print_legend(table.notes, whole=notes)
