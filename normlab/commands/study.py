"""`normlab study`: plan, tune, run, publish and verify the studies behind comparison tables."""

import argparse
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.commands._arguments import action_of
from normlab.commands._study_actions import ACTIONS, EXAMPLES, parser
from normlab.commands._study_runs import print_plan, print_study_tables, publisher_to, run_studies
from normlab.config.folders import PUBLISH_TO, include_words
from normlab.errors import UserError
from normlab.studies import study_runs as studied
from normlab.studies.job import jobs_of
from normlab.studies.process_pool import RunsInOrder, last_of_each_key
from normlab.studies.runs_display import run_all_shown
from normlab.terminal import print_error, print_prose

if TYPE_CHECKING:
    from normlab.studies.tuning_job import TuningJob


def main(argv: list[str]) -> int:
    """Execute an action. Return 1 if data is missing, or a run, a check or publishing failed.

    Returns 0 if the time budget ran out. The last line printed is then the command that resumes.
    """
    does = {name: each.does for name, each in ACTIONS.items()}
    action, rest = action_of("study", argv, does, EXAMPLES)
    action_parser = parser(action)
    action_parser.set_defaults(results=PUBLISH_TO)
    arguments = action_parser.parse_intermixed_args(rest)
    resume_command = shlex.join(["normlab", "study", *argv, *include_words()])
    match action:
        case "run":
            return _run(arguments, resume_command)
        case "tune":
            return _tune(arguments, resume_command)
        case "plan":
            return _plan(arguments)
        case "publish":
            return _publish(arguments)
        case _:
            return _verify(arguments)


def _verify(arguments: argparse.Namespace) -> int:
    """Verify some or all published studies. Return 1 if there is a problem."""
    if any("=" in word for word in arguments.words):
        raise UserError("pass only names of published studies; all their scales are verified")
    return _published(arguments.results, arguments.words, write=False)


def _publish(arguments: argparse.Namespace) -> int:
    """Publish seeds, accept changed evidence, or regenerate pages. Return 1 for a problem."""
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
    nothing = False
    for job in jobs:
        complete = job.complete_seeds
        publisher.publish(job, complete)
        nothing = nothing or not complete
        if open_seeds := [str(seed) for seed in job.by_seed if seed not in complete]:
            seeds = " ".join(open_seeds)
            print_error(f"{job.name}: not published, because not all runs have ended: seed {seeds}")
    return 1 if publisher.problems or nothing else 0


def _published(root: Path, studies: Sequence[str], *, write: bool) -> int:
    """Verify or regenerate the pages of some or all published studies. Return 1 for a problem."""
    from normlab.publishing.verification import verify

    wrong: list[str] = []
    for study in studies or [None]:
        up_to_date, problems = verify(root, study, write=write)
        wrong += problems
        print(*up_to_date, sep="\n", end="\n" if up_to_date else "")
    if not write and not studies:
        wrong += _verify_blocks(root)
    for line in wrong:
        print_error(line)
    if not write and not studies and not wrong and (root / "claims.md").is_file():
        where = "" if root == PUBLISH_TO else f" --results {root}"
        print(f"to verify the ledger: normlab claims --verify{where}")
    return 1 if wrong else 0


def _verify_blocks(root: Path) -> list[str]:
    """Print the pages whose generated blocks match the results, and return the problems."""
    from normlab.blocks import outdated_blocks, pages_with_blocks

    problems: list[str] = []
    for page in pages_with_blocks(root):
        try:
            outdated = outdated_blocks(page, root)
        except UserError as error:
            outdated = str(error).splitlines()
        problems += outdated
        if not outdated:
            print(f"{page}: up to date")
    return problems


def _run(arguments: argparse.Namespace, resume_command: str) -> int:
    """Execute the remaining runs, publish completed seeds, and print the tables."""
    jobs = jobs_of(arguments.words)
    publisher = publisher_to(arguments.publish, jobs, replace=arguments.replace, making=True)
    return run_studies(
        jobs,
        publisher,
        resume_command,
        processes=arguments.processes,
        budget=arguments.budget,
        notes=arguments.notes,
    )


def _plan(arguments: argparse.Namespace) -> int:
    """Print the cost of the remaining runs, or their commands."""
    jobs = jobs_of(arguments.words)
    if arguments.commands:
        left = [run for job in jobs for run in job.left(print_error)]
        for run in studied.each_folder_once(left).values():
            words = [*last_of_each_key(run.planned.overrides), *include_words()]
            print(f"normlab train {shlex.join(words)}")
        return 0
    print_plan(
        jobs,
        processes=arguments.processes,
        published=arguments.publish or PUBLISH_TO,
        notes=arguments.notes,
    )
    return 0


def _tune(arguments: argparse.Namespace, resume_command: str) -> int:
    """Tune the studies in order. Print and write the choices. Return 1 if a trial failed."""
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
            ended = run_all_shown(
                left, arguments.processes, resume_command=resume_command, deadline=until
            )
            failed = failed or any(done.status for done in ended)
        results = job.results()
        head = f"{job.study.name} at scale={job.scale}"
        print(f"\n{head}\n\n{table(results)}\n{''.join(notes(results))}")
        if write and not job.left:
            _write(job, results)
    if failed:
        print_error("a trial failed, so nothing is chosen; run the same command again")
    elif any(job.left for job in jobs):
        print(f"the budget is spent; resume with: {resume_command}")
    return 1 if failed else 0


def _write(job: "TuningJob", results: Mapping[str, Any]) -> None:
    """Write the choices and the trials of a tuning, and print where they are."""
    from normlab.studies.tuning_job import study_file

    page, removed = job.write(results)
    file = study_file(job.study.name)
    print(f"the chosen rates for scale={job.scale} are in {file}; all trials are in {page}")
    for name in removed:
        rate = " ".join(job.study.scale(job.scale).rates[name])
        print(f"no value trains {name}, so its old rate ({rate}) is removed")
