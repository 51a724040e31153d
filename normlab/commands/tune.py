"""`normlab tune STUDY`: choose a value for every row by the same grid, seeds and budget."""

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from normlab.commands import _grid
from normlab.commands._budget import deadline, read_budget
from normlab.commands._cells import Cells, Row
from normlab.commands._cut import read_rows
from normlab.commands._help import HelpFormatter
from normlab.commands._paths import as_path
from normlab.commands._terminal import complain
from normlab.commands._trials import PRUNED_FILE, Bout, Trials, check_optuna
from normlab.records.atomic import atomic_write, only_writer
from normlab.records.fingerprint import diff
from normlab.registry import CONFIG_DIR
from normlab.studies import SMOKE, Study, load_study, rate_name, tuning_of
from normlab.studies.study import points_of
from normlab.studies.tuning import Tuning, with_rates
from normlab.sweep import Sweep, places, summary_lines

HELP = "choose the rates of a study: the same values, seeds and budget for every row"

_EXAMPLES = """examples:
  normlab tune batching scale=cpu data_dir=FOLDER
  normlab tune batching padding scale=cpu data_dir=FOLDER    what they share is tried once
  normlab tune batching scale=cpu rows=NAME,NAME     these rows alone, by the same values
  normlab tune batching --no-write                   does it work? seconds; writes nothing

`tuning` of a scale in configs/study/STUDY.yaml says what is tried: key, three values or more (two
for scale=smoke and pilots), seeds, score and overrides; or it names the study by whose grid, so
that both choose alike. Each value is tried for each row at each point, by the validation score of
the last weights, mean over seeds. From the third value of a row on, one that is worse after half of
its run than the median of those before is pruned (Optuna's median pruner), which is not diverged; a
run that diverged counts as the worst. Rows named in `whole_runs` are tried without those overrides,
as a short trial can choose too large a rate. The choice is written into `rates` of the scale, every
trial into results/STUDY/tuning.json; a row for which no value trains loses its rate. Rows that
rows= leaves out keep rate and trials. Values that change the experiment need --no-write. Start the
same command again to go on where it was stopped. Commit the choice before the runs that count.
"""
_RESULTS = CONFIG_DIR.parent / "results"
_NO_PART = ("device=", "data_dir=", "runs_dir=", "observe.")  # of the experiment
_NAMED = 3  # values that differ from the plan


@dataclass(frozen=True)
class _Job:
    """A study at a scale, how it is tuned, and its bouts by row and point."""

    study: Study
    scale: str
    tuning: Tuning
    bouts: dict[tuple[str, str], Bout]


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab tune",
        description=HELP.capitalize() + ".",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument(
        "words",
        nargs="+",
        metavar="STUDY ... key=value ...",
        help="studies, scale=SCALE[,SCALE] (default: smoke), rows=, and values of every run",
    )
    result.add_argument("--processes", type=int, help="runs at a time (default: one a GPU or core)")
    result.add_argument(
        "--budget", type=read_budget, metavar="TIME", help="stop after a time, such as 90m or 2.5h"
    )
    result.add_argument(
        "--no-write", action="store_true", help="show the choice, and write it nowhere"
    )
    result.add_argument(
        "--results", type=as_path, default=_RESULTS, metavar="FOLDER", help="where tuning.json goes"
    )
    return result


def main(argv: list[str]) -> int:
    """Carry out the trials that are left, show and write the choice; 1 where a trial failed.

    Raises ValueError for a study that is not tuned, and where Optuna is missing.
    """
    arguments = parser().parse_intermixed_args(argv)
    check_optuna()
    names = [word for word in arguments.words if "=" not in word]
    scales, rows, extra = [SMOKE], None, list[str]()
    for word in (word for word in arguments.words if "=" in word):
        if word.startswith("scale="):
            scales = word.removeprefix("scale=").split(",")
        elif word.startswith(("rows=", "row=")):
            rows = word.partition("=")[2]
        else:
            extra.append(word)
    if not names:
        raise ValueError("name a study, such as normlab tune batching scale=cpu")
    until = deadline(arguments.budget)
    jobs, runs = _jobs([load_study(name) for name in names], scales, rows, extra)
    again = f"normlab tune {shlex.join(argv)}"
    if not arguments.no_write:
        for job in jobs:
            _check_writing(job, extra, arguments.results)
    sweep = _carry_out(jobs, runs, arguments.processes, until, again)
    for job in jobs:
        _show(job)
        if not arguments.no_write and all(bout.over for bout in job.bouts.values()):
            _write(job, arguments.results)
    if sweep is not None and sweep.out_of_time:
        print(f"the budget is spent; it goes on with: {again}")
    return 1 if any(bout.failed for job in jobs for bout in job.bouts.values()) else 0


def _jobs(
    studies: Sequence[Study], scales: Sequence[str], rows: str | None, extra: Sequence[str]
) -> tuple[list[_Job], list[_grid.Run]]:
    """Return what is to be tuned, and the runs of all trials; what is shared is there once."""
    runs: dict[Path, _grid.Run] = {}
    bouts: dict[tuple[object, ...], Bout] = {}
    jobs: list[_Job] = []
    for study, scale in [(study, scale) for study in studies for scale in scales]:
        tuning = tuning_of(study, scale, load_study)
        if tuning.key in [word.partition("=")[0] for word in extra]:
            raise ValueError(f"{tuning.key}= is what {study.name} tunes: leave it out")
        kept = None if rows is None else read_rows(rows, study, scale)
        planned = study.trials(scale, tuning, extra, rows=kept)
        job = _Job(study, scale, tuning, {})
        by_cell: dict[tuple[str, str], list[_grid.Run]] = {}
        for run in _grid.runs_of(planned):
            once = runs.setdefault(run.place, run)
            by_cell.setdefault((run.planned.row, run.planned.point), []).append(once)
        for cell, own in by_cell.items():
            key = (tuning.key, tuning.values, tuning.score, *(run.place for run in own))
            if key not in bouts:
                each = len(tuning.seeds)
                of = {v: own[n * each : (n + 1) * each] for n, v in enumerate(tuning.values)}
                bouts[key] = Bout(tuning, of)
            job.bouts[cell] = bouts[key]
        jobs.append(job)
    return jobs, list(runs.values())


def _check_writing(job: _Job, extra: Sequence[str], results: Path) -> None:
    """Raise ValueError, before anything runs, where no choice can be written into the study's file.

    One by other trials than the study plans would stand there as if it were planned.
    """
    every = {rate_name(*cell): [f"{job.tuning.key}={job.tuning.values[0]}"] for cell in job.bouts}
    _chosen_text(job, every)
    _with_others(job, results)
    beside = [override for override in extra if override.startswith(_NO_PART)]
    if len(beside) == len(extra):
        return
    planned = job.study.trials(job.scale, job.tuning, beside)
    first = {cell: run for run in reversed(planned) if (cell := (run.row, run.point)) in job.bouts}
    for cell, run in zip(first, _grid.runs_of(list(first.values())), strict=True):
        tried = job.bouts[cell].runs[job.tuning.values[0]][0]
        if changed := diff(run.config, tried.config):
            named = [f"{key}={now}, planned {before}" for key, (before, now) in changed.items()]
            more = f"; and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            raise ValueError(
                f"{job.study.name} scale={job.scale} is not tuned as planned "
                f"({'; '.join(named[:_NAMED])}{more}), and the choice would be written as if it "
                "were: add --no-write for a try, or write the values into `overrides` of its tuning"
            )


def _carry_out(
    jobs: Sequence[_Job], runs: Sequence[_grid.Run], processes: int | None, until: float, again: str
) -> Sweep | None:
    """Make the trials that are left; None where there are none, or no data.

    `again` is the command that goes on where it is stopped.
    """
    bouts = list({id(bout): bout for job in jobs for bout in job.bouts.values()}.values())
    left = [run for run in runs if run.record() is None]
    print(
        f"tuning {', '.join(f'{job.study.name} scale={job.scale}' for job in jobs)}: "
        f"{len(bouts)} row(s) and points, {len(runs)} runs at most, {len(left)} not begun",
        flush=True,
    )
    for job in jobs:
        own = (run for bout in job.bouts.values() for tried in bout.runs.values() for run in tried)
        if (problem := _grid.data_problems(run for run in own if run.record() is None)) is not None:
            raise ValueError(_grid.what_instead(job.study, job.scale, problem))
    logs = runs[0].place.parents[1] / ".sweeps" / "tuning"
    cells = Cells(
        [
            Row(_name(run), run.place, f"cell{number}.log", over=(run.place / PRUNED_FILE).is_file)
            for number, run in enumerate(runs)
        ],
        at_a_time=len(places(processes)),
        logs=logs,
    )
    try:
        with cells:
            sweep = Sweep(
                [run.planned.overrides for run in runs],
                processes=processes,
                logs=logs,
                tell=cells.tell,
                order=Trials(bouts, runs),
                deadline=until,
                beat=cells.beat,
                every=cells.beat_every,
            )
            found = sweep.run()
    except KeyboardInterrupt:
        print("\n".join(cells.stopped(again)), file=sys.stderr)
        raise
    for line in summary_lines([cell for cell in found if not cell.interrupted], sweep.logs)[1:]:
        print(line)
    return sweep


def _name(run: _grid.Run) -> str:
    """Name a trial by its row, its point, the value that is tried and the seed."""
    tried = next(text for text in reversed(run.planned.overrides[:-2]) if "=" in text)
    return " ".join(
        filter(None, (run.planned.row, run.planned.point, tried, f"seed={run.planned.seed}"))
    )


def _found(job: _Job) -> dict[str, Any]:
    """Return what is kept of a tuning."""
    return {
        "tuning": asdict(job.tuning),
        "rows": [
            {
                "row": row,
                "point": point,
                "chosen": bout.chosen,
                "trials": [asdict(trial) for trial in bout.trials if trial.status],
            }
            for (row, point), bout in job.bouts.items()
        ],
    }


def _with_others(job: _Job, results: Path) -> dict[str, Any]:
    """Return what is kept of a scale: what was found, and the rows that are not tuned now."""
    from normlab.reports.pilots import read
    from normlab.reports.tuning import with_others

    path = results / job.study.name / "tuning.json"
    before = read(path).get(job.scale)
    size = job.study.scale(job.scale)
    cells = [(row, point) for row in size.rows for point in points_of(size.grid)]
    try:
        return with_others(_found(job), before, cells)
    except ValueError as error:
        raise ValueError(f"{path}: scale={job.scale}: {error}") from None


def _show(job: _Job) -> None:
    from normlab.reports.tuning import notes, table

    found = _found(job)
    print(f"\n{job.study.name} at scale={job.scale}\n\n{table(found)}\n{''.join(notes(found))}")


def _write(job: _Job, results: Path) -> None:
    """Write the choice into the study's file, and every trial beside its results."""
    from normlab.reports.tuning import publish

    if any(bout.failed for bout in job.bouts.values()):
        complain(f"{job.study.name}: a trial failed, so nothing is chosen; start it again")
        return
    rates = {
        rate_name(*cell): None if bout.chosen is None else [f"{job.tuning.key}={bout.chosen}"]
        for cell, bout in job.bouts.items()
    }
    path = study_file(job.study.name)
    # Two tunings write into one file, and neither loses the rates of the other.
    with only_writer(results / job.study.name / path.name):
        before, after = _chosen_text(job, rates)
        page = publish(results, job.study.name, {job.scale: _with_others(job, results)})
        if after != before:
            with atomic_write(path) as file:
                file.write(after)
    print(f"chosen: rates of scale={job.scale} in {path}; all trials: {page}")
    former = job.study.scale(job.scale).rates
    for name in [name for name, chosen in rates.items() if chosen is None and name in former]:
        print(f"no value trains for {name}: its rate of before, {' '.join(former[name])}, is out")


def _chosen_text(job: _Job, rates: Mapping[str, Sequence[str] | None]) -> tuple[str, str]:
    """Return the text of the study's file, and the one with these rates."""
    path = study_file(job.study.name)
    before = path.read_text("utf-8")
    try:
        return before, with_rates(before, job.scale, rates)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def study_file(name: str) -> Path:
    """Return the file of a study."""
    return CONFIG_DIR / "study" / f"{name}.yaml"
