"""`normlab study`: plan, tune, run, publish and verify the studies that fill comparison tables."""

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from normlab.commands._arguments import as_path, command_parser
from normlab.commands._study_queue import Judge, Night, check_publishing, untuned, visible_lines
from normlab.commands._study_tables import Item, Table, head, measured, print_tables
from normlab.commands._study_tune import tune
from normlab.commands._study_words import asked, deadline, read_time
from normlab.commands._terminal import complain, print_prose, print_table
from normlab.config.registry import CONFIG_DIR
from normlab.studies import runs as studied
from normlab.studies.clone import continue_in, uncommitted
from normlab.studies.costs import Costs, duration
from normlab.studies.local import each_once
from normlab.studies.queue import Job
from normlab.studies.runs import Run

_EXAMPLES = """examples:
  normlab study run iwslt_norms                    20 s per run: does it work?
  normlab study plan bert_norms scale=cpu data_dir=FOLDER  what it takes
  normlab study run bert_norms scale=cpu data_dir=FOLDER seeds=1-3 rows=ln,bn
  normlab study tune batching scale=cpu data_dir=FOLDER  learning rates
  normlab study publish batching scale=cpu data_dir=FOLDER  into results/
  normlab study verify                             all published studies

normlab study run --help, and so on; normlab list studies lists the studies and what they cost.
"""
_RUN = """examples:
  normlab study run iwslt_norms
  normlab study run iwslt_norms rows="[ln,'bn, padding counted']"
  normlab study run iwslt_norms scale=cpu placement=pre  a part of the grid
  normlab study run batching padding iwslt_norms scale=cpu data_dir=FOLDER \\
    iwslt_norms:placement=pre --budget 8h --until-decided --publish results \\
    --clone ../night

key=value are those of `normlab train`, for every run; STUDY:key=value is for one study. rows= takes
names, beginnings of names, and the numbers that `study plan` shows. Before it begins, it trains
each configuration for some seconds, and says so, to measure hours and memory; these are kept in
the folder of runs. Several studies share a queue, seed by seed, ordered by how many open parts of
claims they decide per hour; runs that they share are made once. When the budget is spent, running
runs save and stop, and the same command resumes. Only whole seeds are published, each as it ends.
--until-decided counts the published seeds, and makes the next ones.
"""
_PLAN = """examples:
  normlab study plan bert_norms scale=cpu data_dir=FOLDER
  normlab study plan bert_norms scale=cpu data_dir=FOLDER --commands
  normlab study plan bert_norms scale=cpu data_dir=FOLDER --so-far

No run of the study is made. What a run costs is measured by training each configuration for some
seconds, which is said and shown; it is kept in the folder of runs. --no-measure trains nothing.
"""
_TUNE = """examples:
  normlab study tune batching scale=cpu data_dir=FOLDER
  normlab study tune batching padding scale=cpu data_dir=FOLDER
  normlab study tune batching scale=cpu rows=NAME,NAME  these rows alone
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
  normlab study publish iwslt_norms scale=cpu data_dir=FOLDER  seeds in runs/
  normlab study publish iwslt_norms             its tables and pages again
  normlab study publish                         those of every published study
  normlab study publish --accept results/bench  a change of evidence is meant

With key=value, the words of `normlab study run`: its table is shown, and table, page, records and
curves of whole seeds are written to results/STUDY/SCALE.
"""
_RESULTS = CONFIG_DIR.parent / "results"
_MEASURING = 0.1  # of the budget, at most
_VERBS = {
    "run": ("make the runs of studies, then their tables", _RUN),
    "plan": ("say what studies take: runs, updates, data, memory, hours", _PLAN),
    "tune": ("choose learning rates by the same trials for every row", _TUNE),
    "publish": ("write tables, pages and records into results/", _PUBLISH),
    "verify": ("check that published tables and pages are what their records say", None),
}


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
        add("--budget", type=read_time, metavar="TIME", help=text)
    if verb in ("run", "plan"):
        text = (
            "judge the parts of claims after 5, 8 and 12 seeds, and make the next seeds while "
            "a part is undecided (default: the seeds of the study)"
        )
        add("--until-decided", action="store_true", help=text)
        text = "write table, page, records and curves of each whole seed to FOLDER/STUDY/SCALE"
        text = text if verb == "run" else "with --until-decided: where published seeds are"
        add("--publish", type=as_path, metavar="FOLDER", help=text)
    if verb == "run":
        text = "run from a clone of the current commit, made if missing: the checkout may change"
        add("--clone", type=as_path, metavar="FOLDER", help=text)
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

    0 if the budget was spent: the last line is the command that resumes. 1 if it was too small for
    any run to save its state.
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
            until=deadline(arguments.budget),
            results=None if arguments.no_write else arguments.results,
            again=again,
        )
    if verb == "run":
        return _run(arguments, argv, again)
    if verb == "plan":
        return _plan(arguments)
    if any("=" in word for word in arguments.words):
        jobs = asked(arguments.words)
        if verb == "verify":
            raise ValueError("name published studies alone: every scale of them is verified")
        check_publishing(arguments.results, jobs)
        return _show_so_far(jobs, Judge(jobs, arguments.results), arguments.results)
    from normlab.commands import report

    if verb == "publish" and arguments.accept:
        paths = map(str, arguments.accept)
        return report.main(["--from", str(arguments.results), "--accept", *paths])
    check = ["--check"] if verb == "verify" else []
    names = [[word] for word in arguments.words] or [[]]
    return max(report.main([*name, "--from", str(arguments.results), *check]) for name in names)


def _run(arguments: argparse.Namespace, argv: list[str], again: str) -> int:
    """Run what has not ended, publish whole seeds, and print tables."""
    results = _RESULTS if arguments.publish is None else arguments.publish
    published = results if arguments.until_decided else None
    if arguments.clone is not None:
        if not arguments.clone.exists():
            asked(arguments.words, published=published)  # nothing is cloned for wrong words
        continue_in(arguments.clone, ["study", *argv])
    until, begun = deadline(arguments.budget), time.monotonic()
    jobs = asked(arguments.words, published=published)
    judge = Judge(jobs, results)
    if arguments.publish is not None:
        check_publishing(arguments.publish, jobs)
    several = len(jobs) > 1 or arguments.until_decided
    if several:
        judge.count_undecided(jobs, judge.runs(), analyses=arguments.until_decided)
    if ended := _without_those_to_make(jobs):
        Night(ended, judge, publish=arguments.publish).publish_whole()
    if not (jobs := [job for job in jobs if job not in ended]):
        return 0
    measured_by = begun + _MEASURING * (until - begun)
    tables, problems = _tables(jobs, arguments, measured_by)
    night = Night(
        [job for job in jobs if job.name not in problems],
        judge,
        seconds=lambda job, run: tables[job.name].seconds_of(run),
        publish=arguments.publish,
        until_decided=arguments.until_decided,
        deadline=until,
        processes=arguments.processes,
    )
    if several and night.jobs:
        _show_order(night)
    if not night.jobs:
        return 1
    if (said := uncommitted()) is not None and any(job.undecided for job in jobs):
        complain(said)
    before = time.monotonic() - begun
    try:
        failed = night.run()
    except KeyboardInterrupt:
        print("\n".join(["stopped", *night.summary(again)]), file=sys.stderr)
        raise
    print_tables(jobs, judge.results)
    for folder in dict.fromkeys(night.published):
        print(f"written to {folder}")
    if several or night.out_of_time:
        print("\n".join(["", *night.summary(again)]))
    if night.stood_still:
        complain(night.too_small(before))
    return 1 if failed or night.stood_still or problems else 0


def _plan(arguments: argparse.Namespace) -> int:
    """Say what the runs to go take, or print their commands, or the table so far."""
    results = _RESULTS if arguments.publish is None else arguments.publish
    jobs = asked(arguments.words, published=results if arguments.until_decided else None)
    judge = Judge(jobs, results)
    runs = judge.runs()
    judge.count_undecided(jobs, runs, analyses=arguments.until_decided)
    ended = _without_those_to_make(jobs, complain if arguments.commands else print_prose)
    if arguments.so_far:
        return _show_so_far(jobs, judge, None)
    if not (jobs := [job for job in jobs if job not in ended]):
        return 0
    if arguments.commands:
        left = {run.folder: run for job in jobs for run in _left(job, "it is made again")}
        for run in left.values():
            print(f"normlab train {shlex.join(each_once(run.planned.overrides))}")
        return 0
    until = None if arguments.no_measure else deadline(None)
    tables, _ = _tables(jobs, arguments, until)
    if len(jobs) > 1 or arguments.until_decided:
        seconds = lambda job, run: tables[job.name].seconds_of(run)  # noqa: E731
        _show_order(Night(jobs, judge, seconds=seconds, publish=None))
    for job in jobs:
        print(f"what {job.name} could show of the parts that it decides:")
        could = visible_lines(judge, job, runs) or ["it decides none"]
        for line in could:
            print_prose(line, indent="  ", hang=2)
    return 0


def _without_those_to_make(
    jobs: Sequence[Job], say: Callable[[str], object] = print_prose
) -> list[Job]:
    """Return the jobs of which nothing is left to make, and say why."""
    found = [job for job in jobs if job.needs_none]
    for job in found:
        why = "the parts of claims that they are for are decided"
        if not job.analyzed:
            why = "no part of a claim is decided by these runs"
        elif not job.seeds:
            why = "no planned analysis comes after them"
        say(f"{job.name}: nothing to make, {len(job.published)} seeds are published, and {why}")
    return found


def _left(job: Job, then: str) -> list[Run]:
    """Return the runs asked for that have not ended; `then` is done about a damaged record."""
    found = [(run, run.record(complain, then)) for run in job.asked()]
    return [run for run, record in found if not run.has_ended(record)]


def _show_so_far(jobs: Sequence[Job], judge: Judge, publish: Path | None) -> int:
    """Print the tables of what has ended, and publish whole seeds if asked to."""
    for job in (job for job in jobs if not job.needs_none):
        left = _left(job, "the table goes without it")
        print_prose(head(job.study, job.scale, [run.planned for run in job.asked()], left))
    print_tables(jobs, judge.results)
    Night(jobs, judge, publish=publish).publish_whole()
    return 0


def _tables(
    jobs: Sequence[Job], arguments: argparse.Namespace, until: float | None
) -> tuple[dict[str, Table], dict[str, str]]:
    """Show what each job takes; return the tables, and why data are missing, by name of the job.

    Costs are measured if that ends by `until`; None measures nothing.
    """
    tables: dict[str, Table] = {}
    problems: dict[str, str] = {}
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
        needed = "budget" in arguments or (until is not None and bool(costs.missing(left)))
        problem = studied.data_problems(left) if left and needed else None
        table = Table(job.study, job.scale, items, len(costs.places))
        tables[job.name] = table = measured(table, costs, problem, until)
        table.show()
        if (said := untuned(job, arguments.words)) is not None:
            complain(said)
        if problem is not None:
            problems[job.name] = problem
            complain(studied.what_instead(job.study, job.scale, problem))
    return tables, problems


def _show_order(night: Night) -> None:
    """Print the queue: what each study decides, its hours, in the order in which it is begun."""
    queue = night.queue
    rows = [
        [
            job.name,
            str(job.undecided),
            str(sum(run.folder not in queue.done for run in job.asked())),
            duration(3600 * queue.hours_to_analysis(job)),
            f"{queue.worth(job):.2g}" if queue.hours_to_analysis(job) else "-",
        ]
        for job in sorted(queue.jobs, key=queue.worth, reverse=True)
    ]
    numeric = ("undecided parts", "runs to go", "to its analysis", "parts per hour")
    print_table(["queue", *numeric], rows, numeric=numeric)
