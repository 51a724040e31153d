"""`normlab study tune`: choose a value for every row by the same grid, seeds and budget."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from normlab.commands._study_words import read_rows, taken_out
from normlab.commands._terminal import complain
from normlab.config.registry import CONFIG_DIR
from normlab.records.files import atomic_write, only_writer
from normlab.records.pairs import diff
from normlab.studies import SMOKE, Study, Tuning, load_study, rate_name, runs, tuning_of
from normlab.studies.local import Local, places
from normlab.studies.loop import carry_out, summary_lines
from normlab.studies.show import Runs
from normlab.studies.study import points_of
from normlab.studies.tuning import PRUNED_FILE, Bout, Trials, with_rates

if TYPE_CHECKING:
    from normlab.studies.runs import Run

_NO_PART = ("device=", "data_dir=", "runs_dir=", "observe.")  # of the experiment


@dataclass(frozen=True)
class Job:
    """A study at a scale, how it is tuned, and its bouts by row and point."""

    study: Study
    scale: str
    tuning: Tuning
    bouts: dict[tuple[str, str], Bout]
    results: Path

    @property
    def name(self) -> str:
        """Name study and scale."""
        return f"{self.study.name} scale={self.scale}"

    @property
    def file(self) -> Path:
        """Return the file of the study."""
        return study_file(self.study.name)

    def found(self) -> dict[str, Any]:
        """Return what is kept of the tuning."""
        rows = [
            {
                "row": row,
                "point": point,
                "chosen": bout.chosen,
                "trials": [asdict(trial) for trial in bout.trials if trial.status],
            }
            for (row, point), bout in self.bouts.items()
        ]
        return {"tuning": structs.asdict(self.tuning), "rows": rows}

    def with_others(self) -> dict[str, Any]:
        """Return what was found, with the rows of the scale that are not tuned now."""
        from normlab.reports.tuning import read, with_others

        path = self.results / self.study.name / "tuning.json"
        size = self.study.scale(self.scale)
        at = [(row, point) for row in size.rows for point in points_of(size.grid)]
        try:
            return with_others(self.found(), read(path).get(self.scale), at)
        except ValueError as error:
            raise ValueError(f"{path}: scale={self.scale}: {error}") from None

    def texts(self) -> tuple[str, str]:
        """Return the text of the study's file, and the one with the choice (now: any value)."""
        rates = {
            rate_name(*place): [f"{self.tuning.key}={value}"] if value else None
            for place, bout in self.bouts.items()
            for value in [bout.chosen if bout.over else self.tuning.values[0]]
        }
        before = self.file.read_text("utf-8")
        try:
            return before, with_rates(before, self.scale, rates)
        except ValueError as error:
            raise ValueError(f"{self.file}: {error}") from None


def study_file(name: str) -> Path:
    """Return the file of a study."""
    return CONFIG_DIR / "study" / f"{name}.yaml"


def tune(
    words: Sequence[str],
    *,
    processes: int | None,
    until: float,
    results: Path,
    write: bool,
    again: str,
) -> int:
    """Tune study after study, show and write the choice; 1 if a trial failed.

    `results` is the folder of tuning.json, `again` the command that resumes.
    """
    from normlab.reports.tuning import notes, table

    jobs, extra = _jobs(words, results)
    for job in jobs:
        if write:
            _check_writing(job, extra)
        tried = [run for bout in job.bouts.values() for own in bout.runs.values() for run in own]
        if problem := runs.data_problems(run for run in tried if run.record() is None):
            raise ValueError(runs.what_instead(job.study, job.scale, problem))
    for job in jobs:
        _carry_out(job, processes, until, again)
        found = job.found()
        print(f"\n{job.study.name} at scale={job.scale}\n\n{table(found)}\n{''.join(notes(found))}")
        if write and all(bout.over for bout in job.bouts.values()):
            _write(job)
    bouts = [bout for job in jobs for bout in job.bouts.values()]
    if not all(bout.over for bout in bouts):
        print(f"the budget is spent; resume with: {again}")
    return 1 if any(bout.failed for bout in bouts) else 0


def _jobs(words: Sequence[str], results: Path) -> tuple[list[Job], list[str]]:
    """Return what is to be tuned, and the extra overrides of its trials."""
    names = [word for word in words if "=" not in word]
    given, extra = taken_out([word for word in words if "=" in word])
    if not names:
        raise ValueError("name a study, such as normlab study tune batching scale=small")
    jobs: list[Job] = []
    for study in [load_study(name) for name in names]:
        for scale in given.get("scale", SMOKE).split(","):
            tuning = tuning_of(study, scale, load_study)
            if tuning.key in [word.partition("=")[0] for word in extra]:
                raise ValueError(f"{tuning.key}= is what {study.name} tunes: leave it out")
            kept = read_rows(given["rows"], study, scale) if "rows" in given else None
            tried: dict[tuple[str, str], list[Run]] = {}
            for run in runs.runs_of(study.trials(scale, tuning, extra, rows=kept)):
                tried.setdefault((run.planned.row, run.planned.point), []).append(run)
            each = len(tuning.seeds)
            bouts = {
                place: Bout(
                    tuning,
                    {v: own[n * each : (n + 1) * each] for n, v in enumerate(tuning.values)},
                )
                for place, own in tried.items()
            }
            jobs.append(Job(study, scale, tuning, bouts, results))
    return jobs, extra


def _check_writing(job: Job, extra: Sequence[str]) -> None:
    """Raise ValueError, before anything runs, if no choice can be written into the study's file.

    The choice of other trials than the study plans would be written as if it were planned.
    """
    job.texts()
    job.with_others()
    free = [override for override in extra if override.startswith(_NO_PART)]
    if len(free) == len(extra):
        return
    planned = job.study.trials(job.scale, job.tuning, free)
    first = {at: run for run in reversed(planned) if (at := (run.row, run.point)) in job.bouts}
    for at, run in zip(first, runs.runs_of(list(first.values())), strict=True):
        changed = diff(run.config, job.bouts[at].runs[job.tuning.values[0]][0].config)
        if changed:
            named = [f"{key}={now}, planned {before}" for key, (before, now) in changed.items()]
            raise ValueError(
                f"{job.name} is not tuned as planned ({'; '.join(named)}), and its choice would be "
                "written as if it were: add --no-write, or write the values into its tuning"
            )


def _carry_out(job: Job, processes: int | None, until: float, again: str) -> None:
    """Carry out the trials of a job that are left."""
    plan = Trials(list(job.bouts.values()))
    print(f"tuning {job.name}: {len(plan.bouts)} rows and points, at most {plan.count} runs")
    with Local(processes, plan.cells[0].folder.parents[1] / ".sweeps" / "tuning") as runner:
        shown = Runs(
            plan.cells,
            at_a_time=len(places(processes)),
            logs=runner.logs,
            pruned=lambda folder: (folder / PRUNED_FILE).is_file(),
        )
        try:
            with shown:
                found = carry_out(plan, runner, deadline=until, show=shown)
        except KeyboardInterrupt:
            print("\n".join(shown.stopped(again)), file=sys.stderr)
            raise
    for line in summary_lines([done for done in found if not done.interrupted])[1:]:
        print(line)


def _write(job: Job) -> None:
    """Write the choice into the study's file, and every trial into the results."""
    from normlab.reports.tuning import publish

    if any(bout.failed for bout in job.bouts.values()):
        complain(f"{job.study.name}: a trial failed, so nothing is chosen; start it again")
        return
    # Two tunings may write into one file, and neither loses the rates of the other.
    with only_writer(job.results / job.study.name / job.file.name):
        before, after = job.texts()
        page = publish(job.results, job.study.name, {job.scale: job.with_others()})
        if after != before:
            with atomic_write(job.file) as file:
                file.write(after)
    print(f"chosen: rates of scale={job.scale} in {job.file}; all trials: {page}")
    former = job.study.scale(job.scale).rates
    for place, bout in job.bouts.items():
        if bout.chosen is None and (name := rate_name(*place)) in former:
            rate = " ".join(former[name])
            print(f"no value trains for {name}: its former rate, {rate}, is removed")
