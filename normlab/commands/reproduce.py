"""`normlab reproduce STUDY ...`: carry out the grids that fill the tables of the documents."""

import argparse
import math
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands import _grid
from normlab.commands._budget import deadline, read_budget
from normlab.commands._clone import go_on_in
from normlab.commands._cut import read_rows, read_seeds
from normlab.commands._estimate import duration
from normlab.commands._grid import Run
from normlab.commands._help import HelpFormatter
from normlab.commands._looks import Judge, uncommitted, untuned, visible_lines
from normlab.commands._night import Night, check_publishing
from normlab.commands._paths import as_path
from normlab.commands._plan import Item, Plan, head, measured, subjects
from normlab.commands._probes import Probes
from normlab.commands._queue import Job, make_job
from normlab.commands._tables import print_tables
from normlab.commands._terminal import complain, print_prose, print_table
from normlab.registry import CONFIG_DIR
from normlab.studies import SMOKE, Planned, Study, load_study

if TYPE_CHECKING:
    from normlab.claims.runs import Runs

HELP = "carry out studies: the runs of comparison tables, then the tables"

_EXAMPLES = """examples:
  normlab reproduce iwslt_norms                          seconds a run: does everything work?
  normlab reproduce bert_norms scale=cpu data_dir=FOLDER
  normlab reproduce bert_norms scale=cpu data_dir=FOLDER --plan    what it would take here
  normlab reproduce bert_norms scale=cpu data_dir=FOLDER --commands    for a queue of your own
  normlab reproduce bert_norms scale=cpu data_dir=FOLDER seeds=1-3 rows=ln,bn
  normlab reproduce iwslt_norms rows="[ln,'bn, padding counted']"
  normlab reproduce iwslt_norms scale=cpu data_dir=FOLDER --publish results
  normlab reproduce iwslt_norms scale=cpu placement=pre  a part of the grid
  normlab ls study                                       the studies, and what they cost

a night:
  normlab reproduce batching padding iwslt_norms scale=cpu data_dir=FOLDER \\
    iwslt_norms:placement=pre --budget 8h --until-decided --publish results \\
    --clone ../night

key=value are those of `normlab train`, for every run; STUDY:key=value is for one study. rows= takes
names, beginnings of names, and the numbers that --plan shows. Before it begins, each configuration
is tried for some seconds, which gives the hours and the memory; what was measured is kept in the
folder of runs. Several studies are one queue, seed by seed of all rows, by the open parts of claims
that a study decides over the hours to its next look; runs that they share are made once. When the
budget is spent, the runs at work save and stop. Start the same command again to go on where it was
stopped: runs that have ended are not made again. Only whole seeds are published, as they come.
--until-decided counts the seeds that are published, and goes on with the next.
"""
_RESULTS = CONFIG_DIR.parent / "results"
_MEASURING = 0.1  # of the budget, at most


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab reproduce",
        description=HELP.capitalize() + ".",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    result.add_argument(
        "words",
        nargs="+",
        metavar="STUDY ... key=value ...",
        help="studies (normlab ls study lists them); scale=smoke|cpu|gpu (default: smoke), rows=, "
        "seeds=, and values of every run",
    )
    result.add_argument("--processes", type=int, help="runs at a time (default: one a GPU or core)")
    result.add_argument(
        "--budget", type=read_budget, metavar="TIME", help="stop after a time, such as 90m or 2.5h"
    )
    result.add_argument(
        "--until-decided",
        action="store_true",
        help="judge the parts of claims after 5, 8 and 12 seeds: a study of which a part is open "
        "goes on to the next look (without it: the seeds of the study, and no more)",
    )
    instead = result.add_mutually_exclusive_group()
    instead.add_argument(
        "--plan",
        action="store_true",
        help="run nothing: updates, data, memory and hours by row, the order of the queue, the "
        "smallest difference that each part could show",
    )
    instead.add_argument(
        "--commands",
        action="store_true",
        help="run nothing: the `normlab train` of each run that has not ended, a line each",
    )
    instead.add_argument(
        "--so-far", action="store_true", help="run nothing: the table of what has ended"
    )
    result.add_argument(
        "--clone",
        type=as_path,
        metavar="FOLDER",
        help="run by the code of a clone, made at the commit of now if it is not there: the code "
        "stays as it is whatever becomes of the checkout",
    )
    result.add_argument(
        "--publish",
        type=as_path,
        metavar="FOLDER",
        help="write table, page, records and curves of whole seeds to FOLDER/STUDY/SCALE, each "
        "seed as it ends; with --plan the costs alone, to FOLDER/STUDY/pilot.json",
    )
    return result


def main(argv: list[str]) -> int:
    """Plan, run what has not ended, print tables; 1 where data, a run or publishing failed.

    0 where the budget was spent: the last line is the command that goes on. 1 where it was too
    small for any run to save its state.
    """
    arguments = parser().parse_intermixed_args(argv)
    results = _RESULTS if arguments.publish is None else arguments.publish
    looks = results if arguments.until_decided else None
    if arguments.clone is not None:
        if not arguments.clone.exists():
            _asked(arguments.words, looks=looks)  # nothing is cloned for words that are wrong
        go_on_in(arguments.clone, ["reproduce", *argv])
    until, begun = deadline(arguments.budget), time.monotonic()
    measured_by = begun + _MEASURING * (until - begun)
    jobs = _asked(arguments.words, looks=looks)
    judge = Judge(jobs, results)
    if arguments.publish is not None and not arguments.plan:
        check_publishing(arguments.publish, jobs)
    several = len(jobs) > 1 or arguments.until_decided
    runs = judge.runs() if several or arguments.plan else None
    if runs is not None:
        _count_open(jobs, judge, runs, looks=arguments.until_decided)
    for job in (ended := [job for job in jobs if job.needs_none]):
        (complain if arguments.commands else print_prose)(f"{job.name}: {_why_none(job)}")
    if arguments.so_far:
        return _show_so_far(jobs, judge, arguments)
    if ended and not (arguments.plan or arguments.commands):
        _publish_whole(ended, judge, arguments)
    if not (jobs := [job for job in jobs if job not in ended]):
        return 0
    if arguments.commands:
        left = {run.place: run for job in jobs for run in _open(job, "it is made again")}
        for run in left.values():
            print(f"normlab train {shlex.join(run.planned.overrides)}")
        return 0
    plans = [_plan(job, arguments, measured_by) for job in jobs]
    problems = [problem for _, problem in plans if problem is not None]
    shown = {id(job): plan for job, (plan, _) in zip(jobs, plans, strict=True)}
    night = Night(
        [job for job, (_, problem) in zip(jobs, plans, strict=True) if problem is None],
        judge,
        seconds=lambda job, run: _seconds(shown[id(job)], run),
        publish=None if arguments.plan else arguments.publish,
        until_decided=arguments.until_decided and not arguments.plan,
        deadline=until,
        processes=arguments.processes,
    )
    if several and night.jobs:
        _show_order(night)
    if arguments.plan and runs is not None:
        for job in jobs:
            could = _show_could(judge, job, runs)
            if arguments.publish is not None:
                _keep_pilot(arguments.publish, job, shown[id(job)], could)
        return 0
    if len(problems) == len(jobs):
        return 1
    if (said := uncommitted()) is not None and any(job.open_parts for job in jobs):
        complain(said)
    again = f"normlab reproduce {shlex.join(argv)}"
    whole = _carry_out(night, jobs, again, several=several, before=time.monotonic() - begun)
    return 0 if whole and not problems else 1


def _count_open(jobs: Sequence[Job], judge: Judge, runs: "Runs", *, looks: bool) -> None:
    """Count the open parts of each job; by `looks` one that decides none makes its own seeds.

    Where fewer seeds count for an open part than are published, its looks are planned by these.
    """
    for job in jobs:
        found = judge.standings(job, runs)
        job.open_parts = sum(each.open for each in found)
        counted = [each.seeds for each in found if each.open and each.seeds is not None]
        if looks and counted and min(counted) < len(job.published):
            job.recount(min(counted))
        if looks and job.seeds and not found:
            job.leave_looks()


def _carry_out(
    night: Night, jobs: Sequence[Job], again: str, *, several: bool, before: float
) -> bool:
    """Run what has not ended, print tables and what is left; tell whether nothing went wrong.

    Args:
        night: the jobs whose data can be had.
        jobs: all of them.
        again: the command that goes on.
        several: what is done and left is said even when all is done.
        before: the seconds that went before the first run could begin.
    """
    try:
        failed = night.run()
    except KeyboardInterrupt:
        print("\n".join(["stopped", *night.summary(again)]), file=sys.stderr)
        raise
    print_tables(jobs, night.judge.results)
    for folder in dict.fromkeys(night.published):
        print(f"written to {folder}")
    if several or night.out_of_time:
        print("\n".join(["", *night.summary(again)]))
    if night.stood_still:
        complain(_too_small(night, before))
    return not (failed or night.stood_still)


def _why_none(job: Job) -> str:
    have = f"nothing to make, {len(job.published)} seeds are published"
    if not job.looked_at:
        return f"{have}, and no part of a claim is decided by these runs"
    if not job.seeds:
        return f"{have}, and no look comes after them"
    return f"{have}, and the parts of claims that they are for are decided"


def _asked(words: Sequence[str], *, looks: Path | None) -> list[Job]:
    """Return what is asked for of each study.

    `looks` is the folder of published seeds, from which planned looks go on; None plans none.
    """
    named = [word for word in words if "=" not in word]
    overrides = [word for word in words if "=" in word]
    own: dict[str, list[str]] = {}
    common: list[str] = []
    for override in overrides:
        study, colon, _ = override.partition("=")[0].partition(":")
        if colon and study not in named:
            raise ValueError(f"{override}: {study} is none of the studies named: {' '.join(named)}")
        (own.setdefault(study, []) if colon else common).append(override.removeprefix(f"{study}:"))
    if not named:
        raise ValueError("name a study, such as normlab reproduce iwslt_norms")
    if len(set(named)) < len(named):
        raise ValueError(f"{' '.join(named)}: name a study once; STUDY:key=value cuts its grid")
    studies = [load_study(name) for name in named]
    return [_job(study, [*common, *own.get(study.name, [])], looks=looks) for study in studies]


def _job(study: Study, overrides: Sequence[str], *, looks: Path | None) -> Job:
    scale, seeds, rows, extra = SMOKE, None, None, list[str]()
    for override in overrides:
        key, _, value = override.partition("=")
        if key == "scale":
            scale = value
        elif key in ("seeds", "seed"):
            seeds = read_seeds(value)
        elif key in ("rows", "row"):
            rows = value
        else:
            extra.append(override)
    if looks is not None and seeds is not None:
        raise ValueError("seeds=: --until-decided plans the seeds of each look by itself")
    kept = None if rows is None else read_rows(rows, study, scale)

    def plan(of: Sequence[int] | None) -> list[Planned]:
        return study.planned(scale, seeds=seeds if of is None else of, rows=kept, extra=extra)

    return make_job(study, scale, plan, looks=looks)


def _open(job: Job, then: str) -> list[Run]:
    """Return the runs asked for that have not ended; of a damaged record it says what is done."""
    found = [(run, run.record(then)) for run in job.asked()]
    return [run for run, record in found if not run.has_ended(record)]


def _show_so_far(jobs: Sequence[Job], judge: Judge, arguments: argparse.Namespace) -> int:
    """Print the tables of what has ended, and publish whole seeds if asked to."""
    for job in jobs:
        if job.needs_none:
            continue
        left = _open(job, "the table goes without it")
        print_prose(head(job.study, job.scale, [run.planned for run in job.asked()], left))
    print_tables(jobs, judge.results)
    _publish_whole(jobs, judge, arguments)
    return 0


def _publish_whole(jobs: Sequence[Job], judge: Judge, arguments: argparse.Namespace) -> None:
    """Publish the whole seeds there are, if asked to."""
    Night(
        jobs,
        judge,
        seconds=lambda job, run: 0.0,
        publish=arguments.publish,
        until_decided=False,
        deadline=deadline(None),
        processes=arguments.processes,
    ).publish_whole()


def _plan(job: Job, arguments: argparse.Namespace, measured_by: float) -> tuple[Plan, str | None]:
    """Show what a job takes; return its plan, and why its data cannot be had if so."""
    left = _open(job, "it is made again")
    places = {run.place for run in left}
    items = [Item(run.planned, run.config, run.place not in places, None) for run in job.asked()]
    probes = Probes(
        job.asked()[0].place.parents[1],
        processes=arguments.processes,
        minutes=job.study.scale(job.scale).minutes,
    )
    # A plan whose costs are known already needs no data.
    needs = left and not (arguments.plan and not probes.missing(subjects(items)))
    problem = _grid.data_problems(left) if needs else None
    plan = measured(job.study, job.scale, items, probes, problem, measured_by)
    plan.show()
    if (said := untuned(job, arguments.words)) is not None:
        complain(said)
    if problem is not None:
        complain(_grid.what_instead(job.study, job.scale, problem))
    return plan, problem


def _show_could(judge: Judge, job: Job, runs: "Runs") -> list[str]:
    """Print the smallest difference that a job could show of each part, and return the lines."""
    print(f"what {job.name} could show of the parts that it decides:")
    lines = visible_lines(judge, job, runs) or ["it decides none"]
    for line in lines:
        print_prose(line, indent="  ", hang=2)
    return lines


def _keep_pilot(root: Path, job: Job, plan: Plan, could: Sequence[str]) -> None:
    """Write what runs cost and could show to `ROOT/STUDY/pilot.json`, apart from any record."""
    from normlab.reports.pilots import costs, keep, read

    items = [(i.run.row, i.run.point, i.cost, plan.seconds(i)) for i in plan.items]
    if not any(cost is not None for _, _, cost, _ in items):
        complain(f"{job.name}: nothing is written, as no run to go was measured")
        return
    before = read(root / job.study.name / "pilot.json").get(job.scale, {}).get("runs", ())
    found = {**costs(items, before), "parts": list(could)}
    print(f"written to {keep(root, job.study.name, 'pilot', {job.scale: found})}")


def _seconds(plan: Plan, run: Run) -> float:
    """Return what a run takes, by the plan: as others of its row and point do."""
    same = [
        item
        for item in plan.items
        if (item.run.row, item.run.point) == (run.planned.row, run.planned.point)
    ]
    return plan.seconds(next((item for item in same if item.cost is not None), same[0]))


def _too_small(night: Night, before: float) -> str:
    """Say that a budget brought no run forward, and which would; `before` it began, in seconds."""
    shortest = min(night.queue.estimates[run.place] for run in night.queue.left())
    return (
        f"--budget is too small: no run ended or saved its state. {duration(before)} went before "
        f"the first could begin, and the shortest takes about {duration(shortest)}: give --budget "
        f"{math.ceil((before + shortest) / 60)}m or more"
    )


def _show_order(night: Night) -> None:
    """Print the queue: what each study decides, its hours, in the order in which it is begun."""
    queue = night.queue
    rows = [
        [
            job.name,
            str(job.open_parts),
            str(sum(run.place not in queue.done for run in job.asked())),
            duration(3600 * queue.hours_to_look(job)),
            f"{queue.worth(job):.2g}" if queue.hours_to_look(job) else "-",
        ]
        for job in sorted(queue.jobs, key=lambda job: -queue.worth(job))
    ]
    numeric = ("open parts", "runs to go", "to its look", "parts an hour")
    print_table(["queue", *numeric], rows, numeric=numeric)
