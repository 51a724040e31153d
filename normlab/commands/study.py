"""`normlab study`: plan, tune, run, publish and verify the studies behind comparison tables."""

import argparse
import math
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from normlab.commands._arguments import action_of, add_notes, as_path, command_parser
from normlab.commands._study_runs import print_plan, print_study_tables, publisher_to, run_studies
from normlab.config.folders import PUBLISH_TO, include_words
from normlab.errors import UserError
from normlab.studies import study_runs as studied
from normlab.studies.job import jobs_of
from normlab.studies.process_pool import RunsInOrder, each_once
from normlab.studies.runs_display import run_all_shown
from normlab.terminal import print_error, print_prose

if TYPE_CHECKING:
    from normlab.studies.tuning_job import TuningJob

_EXAMPLES = """examples:
  normlab study run translation_norms                    a trial, 20 s per run
  normlab study plan bert_norms scale=small data_dir=FOLDER  what it costs
  normlab study tune batching scale=small data_dir=FOLDER  learning rates
  normlab study publish batching scale=small data_dir=FOLDER  into results/
  normlab study verify                             all published studies

normlab study run --help describes an action; normlab list studies lists studies
and their cost.
"""
_RUN = """examples:
  normlab study run translation_norms rows="[ln,'bn, padding counted']"
  normlab study run translation_norms scale=small placement=pre  a part of it
  normlab study run batching padding scale=small data_dir=FOLDER \\
    batching:placement=pre --budget 8h --publish results

key=value is a setting of `normlab train` for all runs, STUDY:key=value for one
study. rows= is a list of names, or of the numbers in `study plan`. Several
studies run one after the other, seed by seed, and shared runs are executed
once. When the time budget is spent, running runs save and stop, and the same
command resumes. A seed is published once all its runs have finished. A
published run never changes, unless you add --replace.
"""
_PLAN = """examples:
  normlab study plan bert_norms scale=small data_dir=FOLDER
  normlab study plan bert_norms scale=small data_dir=FOLDER --commands

Nothing is trained. Times come from finished runs of the study on the same kind
of device, your own or published; a time from another kind is marked.
"""
_TUNE = """examples:
  normlab study tune batching padding scale=small data_dir=FOLDER
  normlab study tune batching scale=small rows=NAME,NAME  only these rows
  normlab study tune modern_block scale=small model=llama  only this block
  normlab study tune batching --no-write          a trial that writes nothing

`tuning` of a scale in configs/study/STUDY.yaml says what is tried: key, three
values or more (two for scale=smoke and pilots), seeds, score and overrides; or
it names another scale of this study, or another study, whose tuning is used.
Each value is tried for each row at each point and judged by the validation
score of the last weights, averaged over seeds; a diverged trial is the worst.
The choice is written into `rates` of the scale, every trial into
results/STUDY/tuning.json; a row for which no value trains loses its rate.
Commit the choice before the runs that count.
"""
_PUBLISH = """examples:
  normlab study publish batching scale=small data_dir=FOLDER  seeds in runs/
  normlab study publish batching                regenerate its tables and pages
  normlab study publish                         the same for all studies
  normlab study publish --accept results/bench  accept changed evidence

With key=value, as for `normlab study run`, it prints the table and writes
table, page, records and curves to results/STUDY/SCALE, for seeds all of whose
runs have finished.
"""
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def read_time(text: str) -> float:
    """Return the seconds in `90m`, `2.5h` or `45s`. Raise ArgumentTypeError for any other text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    if match is None or match[2] not in _UNITS or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text}: expected a time, such as 90m or 2.5h")
    return float(match[1]) * _UNITS[match[2]]


class Action(NamedTuple):
    """The description of an action, the examples in its help, and its flags."""

    does: str
    examples: str | None
    flags: str


ACTIONS = {
    "run": Action(
        "run studies and print their tables",
        _RUN,
        "--processes --budget --publish --replace --notes",
    ),
    "plan": Action(
        "show what studies cost: runs, updates, data, hours",
        _PLAN,
        "--processes --publish --notes --commands",
    ),
    "tune": Action(
        "choose learning rates with the same trials for every row",
        _TUNE,
        "--processes --budget --no-write --results",
    ),
    "publish": Action(
        "write tables, pages and records to results/",
        _PUBLISH,
        "--replace --notes --accept --results",
    ),
    "verify": Action(
        "check that published tables and pages follow from their records", None, "--results"
    ),
}
_REPLACE = "overwrite published runs that differ, and list them"
_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "--processes": dict(type=int, help="runs at a time (default: one per GPU or core)"),
    "--budget": dict(
        type=read_time,
        default=math.inf,
        metavar="TIME",
        help="stop after this time, such as 90m or 2.5h",
    ),
    "--publish": dict(type=as_path, metavar="FOLDER", help="write completed seeds here"),
    "--replace": dict(action="store_true", help=_REPLACE),
    "--commands": dict(action="store_true", help="print the command of each remaining run"),
    "--accept": dict(
        action="extend", nargs="+", type=as_path, metavar="PATH", help="accept changes in PATH"
    ),
    "--no-write": dict(action="store_true", help="show the choice without writing it"),
    "--results": dict(type=as_path, metavar="FOLDER", help="published studies; default: results"),
}


def parser(action: str) -> argparse.ArgumentParser:
    """Return the parser of an action."""
    does, examples, flags = ACTIONS[action]
    result = command_parser(f"study {action}", examples, does)
    add = result.add_argument
    if action == "verify":
        add("words", nargs="*", metavar="STUDY", help="published studies; default: all")
    else:
        text = "studies, scale=SCALE (default: smoke), rows=, seeds=, and settings for all runs"
        several = "*" if action == "publish" else "+"
        add("words", nargs=several, metavar="STUDY ... key=value ...", help=text)
    for flag in flags.split():
        if flag == "--notes":
            add_notes(result)
        else:
            add(flag, **_FLAGS[flag])
    result.set_defaults(results=PUBLISH_TO)
    return result


def main(argv: list[str]) -> int:
    """Execute an action; return 1 if data, a run, a check or publishing failed.

    Returns 0 if the time budget ran out; the last line printed is the command that resumes.
    """
    does = {name: each.does for name, each in ACTIONS.items()}
    action, rest = action_of("study", argv, does, _EXAMPLES)
    arguments = parser(action).parse_intermixed_args(rest)
    again = shlex.join(["normlab", "study", *argv, *include_words()])
    match action:
        case "run":
            return _run(arguments, again)
        case "tune":
            return _tune(arguments, again)
        case "plan":
            return _plan(arguments)
        case "publish":
            return _publish(arguments)
        case _:
            return _verify(arguments)


def _verify(arguments: argparse.Namespace) -> int:
    """Verify some or all published studies; return 1 for a problem."""
    if any("=" in word for word in arguments.words):
        raise UserError("pass only names of published studies; all their scales are verified")
    return _published(arguments.results, arguments.words, write=False)


def _publish(arguments: argparse.Namespace) -> int:
    """Publish seeds, accept changed evidence, or regenerate pages; return 1 for a problem."""
    of_runs = any("=" in word for word in arguments.words)
    if arguments.accept and arguments.words:
        raise UserError(f"--accept accepts everything in its paths; omit {arguments.words[0]}")
    if arguments.replace and not of_runs:
        raise UserError("--replace overwrites the published runs of a scale; add scale=SCALE")
    if arguments.accept:
        from normlab.records.manifest import accept

        print("\n".join(accept(arguments.results, arguments.accept) or ["nothing has changed"]))
        return 0
    if not of_runs:
        return _published(arguments.results, arguments.words, write=True)
    jobs = jobs_of(arguments.words)
    publisher = publisher_to(arguments.results, jobs, replace=arguments.replace, making=False)
    for job in jobs:
        print_prose(job.progress(job.left(print_error)))
    print_study_tables(jobs, notes=arguments.notes)
    for job in jobs:
        publisher.publish(job, job.complete_seeds)
    return 1 if publisher.problems else 0


def _published(root: Path, studies: Sequence[str], *, write: bool) -> int:
    """Verify or regenerate the pages of some or all published studies; return 1 for a problem."""
    from normlab.publishing.verification import verify

    wrong: list[str] = []
    for study in studies or [None]:
        lines, problems = verify(root, study, write=write)
        wrong += problems
        print(*lines, sep="\n", end="\n" if lines else "")
    for line in wrong:
        print_error(line)
    if not write and not studies and not wrong and (root / "claims.md").is_file():
        where = "" if root == PUBLISH_TO else f" --results {root}"
        print(
            f"to verify the ledger: normlab claims --verify{where}"
        )  # verdicts are not checked here
    return 1 if wrong else 0


def _run(arguments: argparse.Namespace, again: str) -> int:
    """Execute the remaining runs, publish completed seeds, and print the tables."""
    jobs = jobs_of(arguments.words)
    publisher = publisher_to(arguments.publish, jobs, replace=arguments.replace, making=True)
    return run_studies(
        jobs,
        publisher,
        again,
        processes=arguments.processes,
        budget=arguments.budget,
        notes=arguments.notes,
    )


def _plan(arguments: argparse.Namespace) -> int:
    """Print the cost of the remaining runs, or their commands."""
    jobs = jobs_of(arguments.words)
    if arguments.commands:
        left = {run.folder: run for job in jobs for run in job.left(print_error)}
        for run in left.values():
            words = [*each_once(run.planned.overrides), *include_words()]
            print(f"normlab train {shlex.join(words)}")
        return 0
    print_plan(
        jobs,
        processes=arguments.processes,
        published=arguments.publish or PUBLISH_TO,
        notes=arguments.notes,
    )
    return 0


def _tune(arguments: argparse.Namespace, again: str) -> int:
    """Tune the studies in order, print and write the choices; return 1 if a trial failed."""
    from normlab.studies.published_trials import notes, table
    from normlab.studies.tuning_job import tuning_jobs

    until, write = time.monotonic() + arguments.budget, not arguments.no_write
    jobs = tuning_jobs(arguments.words, arguments.results, write=write)
    for job in jobs:
        if write:
            job.check_writable()
        studied.check_data(job.study, job.scale, job.left)
    failed = False
    for job in jobs:
        left = RunsInOrder(job.to_start())
        grid = f"{len(job.by_place)} rows and points, {left.count} runs left"
        print(f"tuning {job.study.name} scale={job.scale}: {grid}")
        if left.count:
            ended = run_all_shown(left, arguments.processes, again=again, deadline=until)
            failed = failed or any(done.status for done in ended)
        results = job.results()
        head = f"{job.study.name} at scale={job.scale}"
        print(f"\n{head}\n\n{table(results)}\n{''.join(notes(results))}")
        if write and not job.left:
            _write(job, results)
    if failed:
        print_error("a trial failed, so nothing is chosen; run the same command again")
    elif any(job.left for job in jobs):
        print(f"the budget is spent; resume with: {again}")
    return 1 if failed else 0


def _write(job: "TuningJob", results: Mapping[str, Any]) -> None:
    """Write the choices and the trials of a tuning, and print where they are."""
    from normlab.studies.tuning_job import study_file

    page, removed = job.write(results)
    file = study_file(job.study.name)
    print(f"the chosen rates for scale={job.scale} are in {file}; all trials are in {page}")
    for name in removed:
        rate = " ".join(job.study.scale(job.scale).rates[name])
        print(f"{name} trains with no value, so its old rate ({rate}) is removed")
