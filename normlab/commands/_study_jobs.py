"""The parts of `normlab study` that need reports: publishing, tables, tuning."""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from normlab.commands._terminal import print_error, print_legend
from normlab.config.registry import paths
from normlab.errors import UserError
from normlab.records.files import atomic_write, only_writer
from normlab.records.packed import Key
from normlab.studies import study_runs as studied
from normlab.studies.load import load_study, tuning_of, unchosen
from normlab.studies.process_pool import RunQueue, RunToStart
from normlab.studies.queue import Job, read_rows, taken_out
from normlab.studies.show import run_all_shown
from normlab.studies.study import SMOKE, Study, Tuning, points_of, rate_name
from normlab.studies.tuning import TuningCell, sign_of, with_rates

if TYPE_CHECKING:
    from normlab.reports.gather import Run as Made
    from normlab.studies.study_runs import StudyRun

_NO_PART = ("device=", "data_dir=", "runs_dir=", "observe.")  # not part of the experiment


class Publisher:
    """Publishes whole seeds below `root` (None: nowhere); problems are noted, and runs continue.

    Published runs never change, unless `replaces`.
    """

    def __init__(
        self, root: Path | None, jobs: Sequence[Job], *, replaces: bool, making: bool
    ) -> None:
        """Raise UserError, before anything runs, if the jobs' runs cannot be published there.

        With `making`, the jobs' runs that have not ended will be made.
        """
        from normlab.reports.published import check, check_unchanged

        self.root, self.problems, self.folders = root, dict[str, str](), dict[Path, None]()
        self._replacing = print if replaces else None
        if root is not None:
            for job in jobs:
                asked = {Key(*run.planned[:3]): run.folder.parent.name for run in job.runs}
                runs = check(root, job.study.name, job.scale, asked)
                if not replaces:
                    check_unchanged(runs, map(_made, job.runs), making=making)

    def publish(self, job: Job, seeds: Sequence[int]) -> None:
        """Publish the runs of a job with these seeds."""
        from normlab.reports.published import publish

        if self.root is None or not seeds:
            return
        runs = [_made(run) for seed in seeds for run in job.by_seed[seed]]
        try:
            folder = publish(self.root, job.study, job.scale, runs, replacing=self._replacing)
        except (OSError, UserError) as error:
            problem = f"{job.name} is not published: {error}; the next seed will try again"
            if self.problems.get(job.name) != problem:
                print_error(problem)
            self.problems[job.name] = problem
            return
        self.problems.pop(job.name, None)
        self.folders[folder] = None
        print(f"published {job.name}: seed {' '.join(map(str, seeds))}", flush=True)


def _made(run: "StudyRun") -> "Made":
    """Return a run of a study for publishing and tables, without a record until it has ended."""
    from normlab.reports.gather import Run as Made

    record = run.record()
    ended = record if run.has_ended(record) else None
    return Made(Key(*run.planned[:3]), ended, folder=run.folder)


def warn_if_untuned(job: Job) -> None:
    """Warn if rows of runs that may count lack the learning rate that their study tunes."""
    untuned = unchosen(job.study, job.scale) if job.counts else ()
    if names := [name for name in untuned if name in job.settings]:
        chooses = f"choose it with normlab study tune {job.study.name} scale={job.scale}"
        print_error(
            f"{job.name}: no learning rate has been chosen for {', '.join(names)}; {chooses}"
        )


def print_tables(jobs: Sequence[Job], *, notes: bool) -> None:
    """Print each study's table from the runs that have ended; `notes`: with all notes in full."""
    from normlab.commands.compare import show_table
    from normlab.reports.gather import Run as Made
    from normlab.reports.study_table import build

    for job in jobs:
        runs = [Made(Key(*run.planned[:3]), run.record()) for run in job.runs]
        print()
        table = build(job.study, job.scale, runs)
        show_table(table, job.study.baseline)
        print_legend(table.notes, whole=notes)


# Tuning -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tuned:
    """A study at a scale, how it is tuned, and its bouts by row and point."""

    study: Study
    scale: str
    tuning: Tuning
    bouts: dict[tuple[str, str], TuningCell]
    results: Path

    @property
    def left(self) -> list["StudyRun"]:
        """Return the runs that have not ended."""
        runs = [run for bout in self.bouts.values() for own in bout.runs.values() for run in own]
        return [run for run in runs if not run.has_ended(run.record())]

    def found(self) -> dict[str, Any]:
        """Return the ended trials and the choices in the form in which they are published."""
        rows: list[dict[str, Any]] = []
        for (row, point), bout in self.bouts.items():
            trials = bout.trials()
            chosen = bout.chosen(trials)
            said = [asdict(trial) for trial in trials]
            rows.append({"row": row, "point": point, "chosen": chosen, "trials": said})
        return {"tuning": structs.asdict(self.tuning), "rows": rows}

    def with_others(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return the trials, plus the published trials of rows that are not tuned now."""
        from normlab.reports.trials import read, with_others

        size, path = self.study.scale(self.scale), self.results / self.study.name / "tuning.json"
        at = [(row, point) for row in size.rows for point in points_of(size.grid)]
        return with_others(found, read(path).get(self.scale), at)

    def text(self, choices: Mapping[tuple[str, str], str | None]) -> str:
        """Return the text of the study's file with these choices."""
        rates = {
            rate_name(*place): [f"{self.tuning.key}={value}"] if value else None
            for place, value in choices.items()
        }
        file = study_file(self.study.name)
        try:
            return with_rates(file.read_text("utf-8"), self.scale, rates)
        except UserError as error:
            raise UserError(f"{file}: {error}") from None


def study_file(name: str) -> Path:
    """Return the path of a study's file."""
    return paths("study")[name]


def tune(arguments: argparse.Namespace, again: str) -> int:
    """Tune the studies in order, print and write the choices; return 1 if a trial failed."""
    from normlab.reports.trials import notes, table

    until, write = time.monotonic() + arguments.budget, not arguments.no_write
    jobs = _tuned(arguments.words, arguments.results, write=write)
    for job in jobs:
        if write:  # fail before anything runs if the choice cannot be written
            job.text(dict.fromkeys(job.bouts, job.tuning.values[0]))
            job.with_others(job.found())
        studied.check_data(job.study, job.scale, job.left)
    failed = False
    for job in jobs:
        cells = [_cell(job, run) for run in job.left]
        grid = f"{len(job.bouts)} rows and points, {len(cells)} runs to go"
        print(f"tuning {job.study.name} scale={job.scale}: {grid}")
        if cells:
            ended = run_all_shown(RunQueue(cells), arguments.processes, again=again, deadline=until)
            failed = failed or any(done.status for done in ended)
        found = job.found()
        print(f"\n{job.study.name} at scale={job.scale}\n\n{table(found)}\n{''.join(notes(found))}")
        if write and not job.left:
            _write(job, found)
    if failed:
        print_error("a trial failed, so nothing is chosen; run the same command again")
    elif any(job.left for job in jobs):
        print(f"the budget is spent; resume with: {again}")
    return 1 if failed else 0


def _cell(job: Tuned, run: "StudyRun") -> RunToStart:
    planned = run.planned
    value = f"{job.tuning.key}={planned.tuned}"
    words = (planned.row, planned.point, value, f"seed={planned.seed}")
    return run.cell(" ".join(filter(None, words)))


def _tuned(words: Sequence[str], results: Path, *, write: bool) -> list[Tuned]:
    """Return the tuning jobs; UserError for overrides that forbid writing the choice."""
    given, extra = taken_out([word for word in words if "=" in word])
    scale = given.get("scale", SMOKE)
    more = [each for each in extra if not each.startswith(_NO_PART)]
    jobs: list[Tuned] = []
    for study in [load_study(word) for word in words if "=" not in word]:
        if write and (odd := [each for each in more if each.partition("=")[0] not in study.grid]):
            only = "a choice is written only for the trials that the study plans"
            raise UserError(f"{odd[0]}: {only}; add --no-write, or put it into the study's tuning")
        tuning = tuning_of(study, scale, load_study)
        sign_of(tuning.score)  # raises for a score without a direction
        rows = read_rows(given["rows"], study, scale) if "rows" in given else None
        tried: dict[tuple[str, str], dict[str, list[StudyRun]]] = {}
        trials = study.trials(scale, tuning, extra, rows=rows)
        for run in studied.runs_of(trials):
            bout = tried.setdefault(run.planned[:2], {})
            bout.setdefault(run.planned.tuned, []).append(run)
        bouts = {place: TuningCell(tuning, own) for place, own in tried.items()}
        jobs.append(Tuned(study, scale, tuning, bouts, results))
    if not jobs:
        raise UserError("name a study, such as normlab study tune batching scale=small")
    return jobs


def _write(job: Tuned, found: dict[str, Any]) -> None:
    """Write the choice to the study's file, and every trial to the results."""
    from normlab.reports.trials import publish

    choices = {(row["row"], row["point"]): row["chosen"] for row in found["rows"]}
    file = study_file(job.study.name)
    # Two tunings may write to the same file; the lock keeps the rates of both.
    with only_writer(job.results / job.study.name / file.name):
        text = job.text(choices)
        page = publish(job.results, job.study.name, {job.scale: job.with_others(found)})
        with atomic_write(file) as opened:
            opened.write(text)
    print(f"chosen: rates of scale={job.scale} in {file}; all trials: {page}")
    former = job.study.scale(job.scale).rates
    for name in (rate_name(*place) for place, chosen in choices.items() if chosen is None):
        if name in former:
            rate = " ".join(former[name])
            print(f"no value trains for {name}: its old rate, {rate}, is removed")
