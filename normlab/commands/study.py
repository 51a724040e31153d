"""`normlab study`: plan, tune, run, publish and verify the studies that fill comparison tables."""

import argparse
import math
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from normlab.commands._arguments import as_path, command_parser
from normlab.commands._study_queue import (
    Judge,
    Night,
    check_publishing,
    order,
    untuned,
    verdict_lines,
)
from normlab.commands._study_tables import Item, Table, head, measured, print_tables
from normlab.commands._study_tune import tune
from normlab.commands._study_words import asked
from normlab.commands._terminal import complain, print_prose, print_table
from normlab.config.registry import CONFIG_DIR
from normlab.records.store import without_collection
from normlab.studies import runs as studied
from normlab.studies.costs import Costs
from normlab.studies.local import each_once
from normlab.studies.queue import Job
from normlab.studies.runs import Run

_EXAMPLES = """examples:
  normlab study run translation_norms                    20 s per run: does it work?
  normlab study plan bert_norms scale=small data_dir=FOLDER  what it takes
  normlab study run bert_norms scale=small data_dir=FOLDER seeds=1-3 rows=ln,bn
  normlab study tune batching scale=small data_dir=FOLDER  learning rates
  normlab study publish batching scale=small data_dir=FOLDER  into results/
  normlab study verify                             all published studies

normlab study run --help, and so on; normlab list studies lists the studies and what they cost.
"""
_RUN = """examples:
  normlab study run translation_norms
  normlab study run translation_norms rows="[ln,'bn, padding counted']"
  normlab study run translation_norms scale=small placement=pre  a part of the grid
  normlab study run batching padding translation_norms scale=small data_dir=FOLDER \\
    translation_norms:placement=pre --budget 8h --until-decided --publish results

key=value are those of `normlab train`, for every run; STUDY:key=value is for one study. rows= takes
names, and the numbers that `study plan` shows. Hours are those that `study plan` measured, or the
estimates of the study's file. Several studies share a queue, seed by seed, ordered by how many open
parts of claims they decide per hour; runs that they share are made once. When the budget is spent,
running runs save and stop, and the same command resumes. Only whole seeds are published, each as it
ends. --until-decided counts the published seeds, and makes the next ones.
"""
_PLAN = """examples:
  normlab study plan bert_norms scale=small data_dir=FOLDER
  normlab study plan bert_norms scale=small data_dir=FOLDER --commands
  normlab study plan bert_norms scale=small data_dir=FOLDER --so-far

No run of the study is made. What a run costs is measured by training each configuration for some
seconds, and kept in the folder of runs. --no-measure trains nothing.
"""
_TUNE = """examples:
  normlab study tune batching scale=small data_dir=FOLDER
  normlab study tune batching padding scale=small data_dir=FOLDER
  normlab study tune batching scale=small rows=NAME,NAME  these rows alone
  normlab study tune batching --no-write          does it work? writes nothing

`tuning` of a scale in configs/study/STUDY.yaml says what is tried: key, three values or more (two
for scale=smoke and pilots), seeds, score and overrides; or it names the study whose tuning is used.
Each value is tried for each row at each point and judged by the validation score of the last
weights, averaged over seeds; a trial that diverged counts as the worst. From the third value of a
row on, a trial is pruned if halfway its best score is worse than the median of the finished ones.
Rows in `whole_runs` are tried without the overrides. The choice is written into `rates` of the
scale, every trial into results/STUDY/tuning.json; a row for which no value trains loses its rate.
Overrides that change the experiment need --no-write. The same command resumes. Commit the choice
before the runs that count.
"""
_PUBLISH = """examples:
  normlab study publish translation_norms scale=small data_dir=FOLDER  seeds in runs/
  normlab study publish translation_norms             regenerate its tables and pages
  normlab study publish                         those of every published study
  normlab study publish --accept results/bench  a change of evidence is meant

With key=value, as for `normlab study run`, its table is shown, and table, page, records and curves
of whole seeds are written to results/STUDY/SCALE.
"""
_RESULTS = CONFIG_DIR.parent / "results"
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_VERBS = {
    "run": ("make the runs of studies, then their tables", _RUN),
    "plan": ("say what studies take: runs, updates, data, memory, hours", _PLAN),
    "tune": ("choose learning rates by the same trials for every row", _TUNE),
    "publish": ("write tables, pages and records into results/", _PUBLISH),
    "verify": ("check that published tables and pages follow from their records", None),
}


def read_time(text: str) -> float:
    """Return the seconds of `90m`, `2.5h` or `45s`; ArgumentTypeError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    if found is None or found[2] not in _UNITS or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text}: expected a time, such as 90m or 2.5h")
    return float(found[1]) * _UNITS[found[2]]


def parser(verb: str) -> argparse.ArgumentParser:
    """Describe the command line of a subcommand."""
    does, epilog = _VERBS[verb]
    result = command_parser(f"study {verb}", f"{does.capitalize()}.", epilog)
    add = result.add_argument
    add(
        "words",
        nargs="+" if verb in ("run", "plan", "tune") else "*",
        metavar="STUDY ... key=value ..." if verb != "verify" else "STUDY",
        help="studies, scale=SCALE (default: smoke), rows=, seeds=, and values of every run",
    )
    if verb in ("run", "plan", "tune"):
        add("--processes", type=int, help="runs at a time (default: one per GPU or core)")
    if verb in ("run", "tune"):
        text = "stop after a time, such as 90m or 2.5h"
        add("--budget", type=read_time, default=math.inf, metavar="TIME", help=text)
    if verb in ("run", "plan"):
        text = (
            "judge the parts of claims after 5, 8 and 12 seeds, and make the next seeds while "
            "a part is undecided (default: the seeds of the study)"
        )
        add("--until-decided", action="store_true", help=text)
        text = "write table, page, records and curves of each whole seed to FOLDER/STUDY/SCALE"
        text = text if verb == "run" else "with --until-decided: where published seeds are"
        add("--publish", type=as_path, metavar="FOLDER", help=text)
    if verb == "plan":
        instead = result.add_mutually_exclusive_group()
        for name, text in (
            ("--commands", "print the `normlab train` of each run to go"),
            ("--so-far", "show the table of what has ended"),
            ("--no-measure", "train nothing: stored costs and the estimates of the study's file"),
        ):
            instead.add_argument(name, action="store_true", help=text)
    if verb == "publish":
        text = "list changed evidence there in the manifest, as meant, and say what it was"
        add("--accept", nargs="+", type=as_path, metavar="PATH", help=text)
    if verb == "tune":
        add("--no-write", action="store_true", help="show the choice, and write it nowhere")
    if verb in ("tune", "publish", "verify"):
        text = "where studies are published; default: results"
        default = _RESULTS if verb == "tune" else Path("results")
        add("--results", type=as_path, default=default, metavar="FOLDER", help=text)
    return result


def main(argv: list[str]) -> int:
    """Carry out a subcommand; 1 if data, a run, a check or publishing failed.

    0 if the budget was spent: the last line is the command that resumes.
    """
    verb, *rest = argv or ["--help"]
    if verb not in _VERBS:
        does = "Plan, tune, run, publish and verify studies: the runs of comparison tables."
        every = command_parser("study", does, _EXAMPLES)
        verbs = every.add_subparsers(metavar="|".join(_VERBS))
        for name, (text, _) in _VERBS.items():
            verbs.add_parser(name, help=text)
        every.parse_args([verb])
    arguments = parser(verb).parse_intermixed_args(rest)
    again = f"normlab study {shlex.join(argv)}"
    if verb == "tune":
        return tune(
            arguments.words,
            processes=arguments.processes,
            until=time.monotonic() + arguments.budget,
            results=arguments.results,
            write=not arguments.no_write,
            again=again,
        )
    if verb in ("run", "plan"):
        published = _RESULTS if arguments.publish is None else arguments.publish
        jobs = asked(arguments.words, published=published if arguments.until_decided else None)
        carry = _run if verb == "run" else _plan
        return carry(jobs, Judge(jobs, published), arguments, again)
    if any("=" in word for word in arguments.words):
        if verb == "verify":
            raise ValueError("name published studies alone: every scale of them is verified")
        jobs = asked(arguments.words)
        check_publishing(arguments.results, jobs)
        _show_so_far(jobs, arguments.results)
        return _publish(jobs, Judge(jobs, arguments.results), arguments.results)
    if verb == "publish" and arguments.accept:
        from normlab.reports.manifest import accept

        print("\n".join(accept(arguments.results, arguments.accept) or ["nothing has changed"]))
        return 0
    return _published(arguments.results, arguments.words, write=verb == "publish")


@without_collection()
def _published(root: Path, studies: Sequence[str], *, write: bool) -> int:
    """Verify what is published of some studies, or of all, or make it again; 1 if it is wrong."""
    from normlab.reports.published import verify

    wrong: list[str] = []
    for study in studies or [None]:
        said, own = verify(root, study, write=write)
        wrong += own
        for line in said:
            print(line)
    for line in wrong:
        complain(line)
    if not write and not studies and not wrong and (root / "claims.md").is_file():
        where = "" if root == Path("results") else f" --results {root}"
        print(f"the ledger: normlab claims --verify{where}")  # its verdicts are not looked at here
    return 1 if wrong else 0


def _run(jobs: list[Job], judge: Judge, arguments: argparse.Namespace, again: str) -> int:
    """Run what has not ended, publish whole seeds, and print tables."""
    until = time.monotonic() + arguments.budget
    if arguments.publish is not None:
        check_publishing(arguments.publish, jobs)
    several = len(jobs) > 1 or arguments.until_decided
    if several:
        judge.count_undecided(analyses=arguments.until_decided)
    ended, jobs = _without_those_to_make(jobs)
    status = _publish(ended, judge, arguments.publish)
    if not jobs:
        return status
    tables, lacking = _tables(jobs, arguments, measure=False)
    night = Night(
        [job for job in jobs if job.name not in lacking],
        judge,
        seconds=lambda job, run: tables[job.name].seconds_of(run),
        publish=arguments.publish,
        until_decided=arguments.until_decided,
    )
    if not night.jobs:
        return 1
    if several:
        _show_order(night)
    if (said := studied.uncommitted()) is not None and any(job.undecided for job in jobs):
        complain(said)
    try:
        failed = night.run(arguments.processes, until)
    except KeyboardInterrupt:
        print("\n".join(["stopped", *night.summary(again)]), file=sys.stderr)
        raise
    print_tables(jobs, judge.results)
    for folder in dict.fromkeys(night.published):
        print(f"written to {folder}")
    if several or night.queue.left():
        print("\n".join(["", *night.summary(again)]))
    return 1 if failed or lacking or status else 0


def _plan(jobs: list[Job], judge: Judge, arguments: argparse.Namespace, again: str) -> int:
    """Say what the runs to go take, or print their commands, or the table so far."""
    judge.count_undecided(analyses=arguments.until_decided)
    if arguments.so_far:
        return _show_so_far(jobs, judge.results)
    _, jobs = _without_those_to_make(jobs, quiet=arguments.commands)
    if arguments.commands:
        left = {run.folder: run for job in jobs for run in _left(job, "it is made again")}
        for run in left.values():
            print(f"normlab train {shlex.join(each_once(run.planned.overrides))}")
        return 0
    if not jobs:
        return 0
    tables, _ = _tables(jobs, arguments, measure=not arguments.no_measure)
    if len(jobs) > 1 or arguments.until_decided:
        seconds = lambda job, run: tables[job.name].seconds_of(run)  # noqa: E731
        _show_order(Night(jobs, judge, seconds=seconds, publish=None))
    for job in jobs:
        print(f"the parts that {job.name} decides:")
        for line in verdict_lines(judge.standings(job)):
            print_prose(line, indent="  ", hang=2)
    return 0


def _without_those_to_make(
    jobs: Sequence[Job], *, quiet: bool = False
) -> tuple[list[Job], list[Job]]:
    """Split jobs into those of which nothing is left to make, saying so, and the others."""
    ended = [job for job in jobs if job.needs_none]
    for job in ended:
        why = "no planned analysis comes after them"
        if job.seeds:
            why = "every part of a claim that they decide is decided"
        said = f"{job.name}: nothing to make, {len(job.published)} seeds are published, and {why}"
        (complain if quiet else print_prose)(said)
    return ended, [job for job in jobs if not job.needs_none]


def _left(job: Job, then: str) -> list[Run]:
    """Return the runs asked for that have not ended; `then` is done about a damaged record."""
    found = [(run, run.record(complain, then)) for run in job.asked()]
    return [run for run, record in found if not run.has_ended(record)]


def _show_so_far(jobs: Sequence[Job], results: Path) -> int:
    """Print the tables of what has ended."""
    for job in (job for job in jobs if not job.needs_none):
        left = _left(job, "the table goes without it")
        print_prose(head(job.study, job.scale, [run.planned for run in job.asked()], left))
    print_tables(jobs, results)
    return 0


def _publish(jobs: Sequence[Job], judge: Judge, publish: Path | None) -> int:
    """Publish whole seeds of jobs that need no run; 1 if that fails."""
    night = Night(jobs, judge, publish=publish)
    night.publish_whole()
    return 1 if night.unpublished else 0


def _tables(
    jobs: Sequence[Job], arguments: argparse.Namespace, *, measure: bool
) -> tuple[dict[str, Table], set[str]]:
    """Show what each job takes; return the tables, and the names of jobs whose data are missing."""
    tables: dict[str, Table] = {}
    lacking: set[str] = set()
    for job in jobs:
        left = _left(job, "it is made again")
        folders = {run.folder for run in left}
        costs = Costs(
            job.asked()[0].folder.parents[1],
            processes=arguments.processes,
            minutes=job.study.scale(job.scale).minutes,
        )
        items = [Item(run, run.folder not in folders) for run in job.asked()]
        # A plan needs data only to measure; a run always does.
        needed = "budget" in arguments or (measure and bool(costs.missing(left)))
        problem = studied.data_problems(left) if left and needed else None
        table = Table(job.study, job.scale, items, len(costs.places))
        tables[job.name] = table = measured(table, costs, measure=measure and problem is None)
        table.show()
        if (said := untuned(job, arguments.words)) is not None:
            complain(said)
        if problem is not None:
            lacking.add(job.name)
            complain(studied.what_instead(job.study, job.scale, problem))
    return tables, lacking


def _show_order(night: Night) -> None:
    """Print the queue in the order in which it is begun."""
    numeric = ("undecided parts", "runs to go", "to its analysis", "parts per hour")
    print_table(["queue", *numeric], order(night), numeric=numeric)
