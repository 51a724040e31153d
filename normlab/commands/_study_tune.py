"""`normlab study tune`: choose a value for each row with the same grid, seeds and budget."""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from normlab.commands._terminal import complain
from normlab.config.registry import CONFIG_DIR
from normlab.records.files import atomic_write, only_writer
from normlab.studies import SMOKE, Study, Tuning, load_study, rate_name, tuning_of
from normlab.studies import study_runs as studied
from normlab.studies.loop import Cell, Plan
from normlab.studies.queue import read_rows, taken_out
from normlab.studies.show import carry_out_shown
from normlab.studies.study import points_of
from normlab.studies.trials import Bout, sign_of, with_rates

if TYPE_CHECKING:
    from normlab.studies.study_runs import Run

_NO_PART = ("device=", "data_dir=", "runs_dir=", "observe.")  # not part of the experiment


@dataclass(frozen=True)
class Job:
    """A study at a scale, how it is tuned, and its bouts by row and point."""

    study: Study
    scale: str
    tuning: Tuning
    bouts: dict[tuple[str, str], Bout]
    results: Path

    @property
    def left(self) -> list["Run"]:
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
        from normlab.reports.tuning import read, with_others

        size, path = self.study.scale(self.scale), self.results / self.study.name / "tuning.json"
        at = [(row, point) for row in size.rows for point in points_of(size.grid)]
        return with_others(found, read(path).get(self.scale), at)

    def texts(self, choices: Mapping[tuple[str, str], str | None]) -> tuple[str, str]:
        """Return the text of the study's file, and the text with these choices."""
        rates = {
            rate_name(*place): [f"{self.tuning.key}={value}"] if value else None
            for place, value in choices.items()
        }
        before = (file := study_file(self.study.name)).read_text("utf-8")
        try:
            return before, with_rates(before, self.scale, rates)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None


def study_file(name: str) -> Path:
    """Return the path of a study's file."""
    return CONFIG_DIR / "study" / f"{name}.yaml"


def tune(arguments: argparse.Namespace, again: str) -> int:
    """Tune the studies in order, print and write the choices; return 1 if a trial failed."""
    from normlab.reports.tuning import notes, table

    until, write = time.monotonic() + arguments.budget, not arguments.no_write
    jobs = _jobs(arguments.words, arguments.results, write=write)
    for job in jobs:
        if write:  # fail before anything runs if the choice cannot be written
            job.texts(dict.fromkeys(job.bouts, job.tuning.values[0]))
            job.with_others(job.found())
        studied.check_data(job.study, job.scale, job.left)
    failed = False
    for job in jobs:
        cells = [_cell(job, run) for run in job.left]
        head = f"tuning {job.study.name} scale={job.scale}"
        print(f"{head}: {len(job.bouts)} rows and points, {len(cells)} runs to go")
        if cells:
            ended = carry_out_shown(Plan(cells), arguments.processes, again=again, deadline=until)
            failed = failed or any(done.status for done in ended)
        found = job.found()
        print(f"\n{job.study.name} at scale={job.scale}\n\n{table(found)}\n{''.join(notes(found))}")
        if write and not job.left:
            _write(job, found)
    if failed:
        complain("a trial failed, so nothing is chosen; run the same command again")
    elif any(job.left for job in jobs):
        print(f"the budget is spent; resume with: {again}")
    return 1 if failed else 0


def _cell(job: Job, run: "Run") -> Cell:
    planned, key = run.planned, f"{job.tuning.key}="
    value = next(text for text in reversed(planned.overrides) if text.startswith(key))
    words = (planned.row, planned.point, value, f"seed={planned.seed}")
    return run.cell(" ".join(filter(None, words)))


def _jobs(words: Sequence[str], results: Path, *, write: bool) -> list[Job]:
    """Return the tuning jobs; ValueError for overrides with which no choice may be written."""
    given, extra = taken_out([word for word in words if "=" in word])
    scale = given.get("scale", SMOKE)
    if write and (more := [each for each in extra if not each.startswith(_NO_PART)]):
        only = "a choice is written only for the trials that the study plans"
        raise ValueError(f"{more[0]}: {only}: add --no-write, or put it into the study's tuning")
    jobs: list[Job] = []
    for study in [load_study(word) for word in words if "=" not in word]:
        tuning = tuning_of(study, scale, load_study)
        sign_of(tuning.score)  # raises for a score without a direction
        rows = read_rows(given["rows"], study, scale) if "rows" in given else None
        tried: dict[tuple[str, str], dict[str, list[Run]]] = {}
        trials = study.trials(scale, tuning, extra, rows=rows)
        values = [value for value in tuning.values for _ in tuning.seeds]
        for number, run in enumerate(studied.runs_of(trials)):
            bout = tried.setdefault(run.planned[:2], {})
            bout.setdefault(values[number % len(values)], []).append(run)
        bouts = {place: Bout(tuning, own) for place, own in tried.items()}
        jobs.append(Job(study, scale, tuning, bouts, results))
    if not jobs:
        raise ValueError("name a study, such as normlab study tune batching scale=small")
    return jobs


def _write(job: Job, found: dict[str, Any]) -> None:
    """Write the choice to the study's file, and every trial to the results."""
    from normlab.reports.tuning import publish

    choices = {(row["row"], row["point"]): row["chosen"] for row in found["rows"]}
    file = study_file(job.study.name)
    # Two tunings may write to the same file; the lock keeps the rates of both.
    with only_writer(job.results / job.study.name / file.name):
        before, after = job.texts(choices)
        page = publish(job.results, job.study.name, {job.scale: job.with_others(found)})
        if after != before:
            with atomic_write(file) as opened:
                opened.write(after)
    print(f"chosen: rates of scale={job.scale} in {file}; all trials: {page}")
    former = job.study.scale(job.scale).rates
    for place, chosen in choices.items():
        if chosen in (job.tuning.values[0], job.tuning.values[-1]):
            print(f"{rate_name(*place)}: {chosen} is at the edge of the values; try a wider range")
        if chosen is None and (name := rate_name(*place)) in former:
            rate = " ".join(former[name])
            print(f"no value trains for {name}: its former rate, {rate}, is removed")
