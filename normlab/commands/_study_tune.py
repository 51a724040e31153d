"""`normlab study tune`: choose a value for every row by the same grid, seeds and budget."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from normlab.commands._study_words import read_rows, taken_out
from normlab.commands._terminal import complain
from normlab.config.registry import CONFIG_DIR
from normlab.records.files import atomic_write, only_writer
from normlab.records.pairs import diff
from normlab.studies import SMOKE, Study, Tuning, load_study, rate_name, runs, tuning_of
from normlab.studies.local import Local, places
from normlab.studies.loop import carry_out, summary_lines
from normlab.studies.runs import Run
from normlab.studies.show import Runs
from normlab.studies.study import points_of
from normlab.studies.tuning import PRUNED_FILE, Bout, Trials, with_rates

_NO_PART = ("device=", "data_dir=", "runs_dir=", "observe.")  # of the experiment
_NAMED = 3  # values that differ from the plan


@dataclass(frozen=True)
class Job:
    """A study at a scale, how it is tuned, and its bouts by row and point."""

    study: Study
    scale: str
    tuning: Tuning
    bouts: dict[tuple[str, str], Bout]

    @property
    def name(self) -> str:
        """Name study and scale."""
        return f"{self.study.name} scale={self.scale}"

    def found(self) -> dict[str, Any]:
        """Return what is kept of the tuning."""
        return {
            "tuning": structs.asdict(self.tuning),
            "rows": [
                {
                    "row": row,
                    "point": point,
                    "chosen": bout.chosen,
                    "trials": [asdict(trial) for trial in bout.trials if trial.status],
                }
                for (row, point), bout in self.bouts.items()
            ],
        }


def study_file(name: str) -> Path:
    """Return the file of a study."""
    return CONFIG_DIR / "study" / f"{name}.yaml"


def tune(
    words: Sequence[str],
    *,
    processes: int | None,
    until: float,
    results: Path | None,
    again: str,
) -> int:
    """Carry out the trials that are left, show and write the choice; 1 if a trial failed.

    `results` is the folder of tuning.json, None writes nothing. `again` is the command that
    resumes.
    """
    jobs, trials, extra = _jobs(words)
    if results is not None:
        for job in jobs:
            _check_writing(job, extra, results)
    _carry_out(jobs, trials, processes, until, again)
    for job in jobs:
        from normlab.reports.tuning import notes, table

        found = job.found()
        title = f"{job.study.name} at scale={job.scale}"
        print(f"\n{title}\n\n{table(found)}\n{''.join(notes(found))}")
        if results is not None and all(bout.over for bout in job.bouts.values()):
            _write(job, results)
    bouts = [bout for job in jobs for bout in job.bouts.values()]
    if not all(bout.over for bout in bouts):
        print(f"the budget is spent; resume with: {again}")
    return 1 if any(bout.failed for bout in bouts) else 0


def _jobs(words: Sequence[str]) -> tuple[list[Job], list[Run], list[str]]:
    """Return what is to be tuned, the runs of all trials, each once, and the extra overrides."""
    names = [word for word in words if "=" not in word]
    given, extra = taken_out([w for w in words if "=" in w], scale="scale", rows="row")
    if not names:
        raise ValueError("name a study, such as normlab study tune batching scale=cpu")
    trials: dict[Path, Run] = {}
    bouts: dict[tuple[object, ...], Bout] = {}
    jobs: list[Job] = []
    for study in [load_study(name) for name in names]:
        for scale in given.get("scale", SMOKE).split(","):
            tuning = tuning_of(study, scale, load_study)
            if tuning.key in [word.partition("=")[0] for word in extra]:
                raise ValueError(f"{tuning.key}= is what {study.name} tunes: leave it out")
            kept = read_rows(given["rows"], study, scale) if "rows" in given else None
            by_place: dict[tuple[str, str], list[Run]] = {}
            for run in runs.runs_of(study.trials(scale, tuning, extra, rows=kept)):
                once = trials.setdefault(run.folder, run)
                by_place.setdefault((run.planned.row, run.planned.point), []).append(once)
            job = Job(study, scale, tuning, {})
            for place, own in by_place.items():
                key = (tuning.key, tuning.values, tuning.score, *(run.folder for run in own))
                if key not in bouts:
                    each = len(tuning.seeds)
                    parts = [own[n : n + each] for n in range(0, len(own), each)]
                    bouts[key] = Bout(tuning, dict(zip(tuning.values, parts, strict=True)))
                job.bouts[place] = bouts[key]
            jobs.append(job)
    return jobs, list(trials.values()), extra


def _check_writing(job: Job, extra: Sequence[str], results: Path) -> None:
    """Raise ValueError, before anything runs, if no choice can be written into the study's file.

    A choice by other trials than the study plans would stand there as if it were planned.
    """
    every = {rate_name(*place): [f"{job.tuning.key}={job.tuning.values[0]}"] for place in job.bouts}
    _chosen_text(job, every)
    _with_others(job, results)
    free = [override for override in extra if override.startswith(_NO_PART)]
    if len(free) == len(extra):
        return
    planned = job.study.trials(job.scale, job.tuning, free)
    first = {at: run for run in reversed(planned) if (at := (run.row, run.point)) in job.bouts}
    for at, run in zip(first, runs.runs_of(list(first.values())), strict=True):
        tried = job.bouts[at].runs[job.tuning.values[0]][0]
        if changed := diff(run.config, tried.config):
            named = [f"{key}={now}, planned {before}" for key, (before, now) in changed.items()]
            more = f"; and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            raise ValueError(
                f"{job.name} is not tuned as planned ({'; '.join(named[:_NAMED])}{more}), and the "
                "choice would be written as if it were: add --no-write for a try, or write the "
                "values into `overrides` of its tuning"
            )


def _carry_out(
    jobs: Sequence[Job], trials: Sequence[Run], processes: int | None, until: float, again: str
) -> None:
    """Carry out the trials that are left; ValueError if the data of one are not available."""
    bouts = list({id(bout): bout for job in jobs for bout in job.bouts.values()}.values())
    left = [run for run in trials if run.record() is None]
    print(
        f"tuning {', '.join(job.name for job in jobs)}: {len(bouts)} row(s) and points, "
        f"at most {len(trials)} runs, {len(left)} not begun",
        flush=True,
    )
    for job in jobs:
        own = (run for bout in job.bouts.values() for tried in bout.runs.values() for run in tried)
        if (problem := runs.data_problems(run for run in own if run.record() is None)) is not None:
            raise ValueError(runs.what_instead(job.study, job.scale, problem))

    def name(run: Run) -> str:
        at = run.planned
        tried = next(text for text in reversed(at.overrides[:-2]) if "=" in text)
        return " ".join(filter(None, (at.row, at.point, tried, f"seed={at.seed}")))

    plan = Trials(bouts, [(run, name(run)) for run in trials])
    with Local(processes, trials[0].folder.parents[1] / ".sweeps" / "tuning") as runner:
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


def _with_others(job: Job, results: Path) -> dict[str, Any]:
    """Return what is kept of a scale: what was found, and the rows that are not tuned now."""
    from normlab.reports.tuning import read, with_others

    path = results / job.study.name / "tuning.json"
    before = read(path).get(job.scale)
    size = job.study.scale(job.scale)
    places = [(row, point) for row in size.rows for point in points_of(size.grid)]
    try:
        return with_others(job.found(), before, places)
    except ValueError as error:
        raise ValueError(f"{path}: scale={job.scale}: {error}") from None


def _write(job: Job, results: Path) -> None:
    """Write the choice into the study's file, and every trial beside its results."""
    from normlab.reports.tuning import publish

    if any(bout.failed for bout in job.bouts.values()):
        complain(f"{job.study.name}: a trial failed, so nothing is chosen; start it again")
        return
    rates = {
        rate_name(*place): None if bout.chosen is None else [f"{job.tuning.key}={bout.chosen}"]
        for place, bout in job.bouts.items()
    }
    # Two tunings may write into one file, and neither loses the rates of the other.
    with only_writer(results / job.study.name / study_file(job.study.name).name):
        before, after = _chosen_text(job, rates)
        page = publish(results, job.study.name, {job.scale: _with_others(job, results)})
        if after != before:
            with atomic_write(study_file(job.study.name)) as file:
                file.write(after)
    print(f"chosen: rates of scale={job.scale} in {study_file(job.study.name)}; all trials: {page}")
    former = job.study.scale(job.scale).rates
    for name in [name for name, chosen in rates.items() if chosen is None and name in former]:
        print(f"no value trains for {name}: its former rate, {' '.join(former[name])}, is removed")


def _chosen_text(job: Job, rates: Mapping[str, Sequence[str] | None]) -> tuple[str, str]:
    """Return the text of the study's file, and the one with these rates."""
    before = study_file(job.study.name).read_text("utf-8")
    try:
        return before, with_rates(before, job.scale, rates)
    except ValueError as error:
        raise ValueError(f"{study_file(job.study.name)}: {error}") from None
