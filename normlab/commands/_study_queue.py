"""Carrying out a queue of studies: what they decide, whole seeds published, an end in time."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._terminal import complain
from normlab.config.files import START_FILE
from normlab.config.registry import CONFIG_DIR
from normlab.studies import SMOKE, rate_name, tuning_of, unchosen
from normlab.studies.costs import duration, makespan
from normlab.studies.local import Local, places
from normlab.studies.loop import Cell, carry_out, summary_lines
from normlab.studies.queue import Job, Queue
from normlab.studies.runs import Run
from normlab.studies.show import A_MINUTE, Runs

if TYPE_CHECKING:
    from normlab.claims.claim import Claim
    from normlab.claims.endpoint import StudyEndpoint
    from normlab.claims.ledger import Standing
    from normlab.claims.runs import Runs as Evidence

_LONGER = 0.1  # of the time that a run took, if it is over its estimate


class Judge:
    """Judges the parts of claims that jobs decide, by `results` and the runs of the jobs.

    `results` is the folder of published studies.
    """

    def __init__(self, jobs: Sequence[Job], results: Path) -> None:
        self.jobs, self.results, self.configs = jobs, results, CONFIG_DIR

    def standings(self, job: Job, runs: "Evidence | None" = None) -> "list[Standing]":
        """Return the verdicts so far on the parts that a job can decide.

        Such a part has one side among the job's rows and points, and each side there or published.
        """
        from normlab.claims.ledger import standings

        runs = runs or self.runs()
        place = job.study.name, job.scale
        plan, made = runs.plan(*place), job.names
        there = made | plan.names_of(runs.of_study(*place).records)

        def may(endpoint: "StudyEndpoint") -> bool:
            sides = [plan.may_choose({**endpoint.where, **side}) for side in endpoint.sides]
            return any(names & made for names in sides) and all(names & there for names in sides)

        return [each for each in standings(self._claims, runs, *place) if may(each.endpoint)]

    def count_undecided(self, jobs: Sequence[Job], runs: "Evidence", *, analyses: bool) -> None:
        """Count the undecided parts of each job.

        With planned `analyses`, a job that decides none makes only its own seeds; if fewer seeds
        count for an undecided part than are published, the analyses are planned by these.
        """
        for job in jobs:
            found = self.standings(job, runs)
            job.undecided = sum(each.open for each in found)
            counted = [each.seeds for each in found if each.open and each.seeds is not None]
            if analyses and counted and min(counted) < len(job.published):
                job.recount(min(counted))
            if analyses and job.seeds and not found:
                job.without_analyses()

    def analyze(self, job: Job) -> int:
        """Judge a job at a planned analysis and say so; return its undecided parts."""
        found = self.standings(job)
        print(f"planned analysis at {job.counted + len(job.seeds)} seeds of {job.name}:")
        by: dict[str, list[str]] = {}
        for each in found:
            verdict = f"{each.verdict}, whatever the seeds" if each.stuck else each.verdict
            why = f" ({each.reason})" if each.reason and each.verdict == "not measured" else ""
            by.setdefault(verdict, []).append(f"{each.name}{why}")
        for verdict, names in by.items():
            print(f"  {verdict}: {', '.join(names)}")
        if not by:
            print("  it decides no part of a claim")
        return sum(each.open for each in found)

    def runs(self) -> "Evidence":
        """Read all runs there are; a run that jobs share belongs to each of them."""
        from normlab.claims.runs import Runs

        made_for: dict[Path, set[tuple[str, str]]] = {}
        for job in self.jobs:
            for run in (run for runs in job.runs.values() for run in runs):
                made_for.setdefault(run.folder, set()).add((job.study.name, job.scale))
        folders = dict.fromkeys(folder.parents[1] for folder in made_for)
        there = [place for place in (self.results, *folders) if place.is_dir()]
        return Runs.read(there, root=self.configs.parent, configs=self.configs, made_for=made_for)

    @cached_property
    def _claims(self) -> "Sequence[Claim]":
        from normlab.claims.claim import load_all

        return load_all(self.configs / "claim")


def visible_lines(judge: Judge, job: Job, runs: "Evidence") -> list[str]:
    """Say of each part that a job decides the smallest difference that its analyses would show."""
    from normlab.claims.contrast import Contrast
    from normlab.claims.judge import figures
    from normlab.claims.ledger import visible

    scales = [job.scale, *(scale for scale in job.study.scales if scale != job.scale)]
    lines: list[str] = []
    for each in judge.standings(job, runs):
        endpoint = each.endpoint
        start = f"part {each.name} ({each.verdict}): "
        if not isinstance(endpoint, Contrast):
            lines.append(f"{start}decided by {endpoint.kind}, not by a difference")
            continue
        found = visible(endpoint, runs, scales)
        if found is None:
            lines.append(f"{start}spread unknown before two seeds of both sides that differ")
            continue
        write = math.exp if endpoint.ratio else float
        shown = ", ".join(
            f"{figures(write(value))[0]} with {seeds} seeds"
            for seeds, value in found.by_look.items()
        )
        kind = "a factor of " if endpoint.ratio else ""
        lines.append(
            f"{start}{kind}{shown} would show at 80 % power (margin {endpoint.margin:g}; by the "
            f"spread of {found.seeds} seeds at scale={found.scale})"
        )
    return lines


def untuned(job: Job, words: Sequence[str]) -> str | None:
    """Say which rows have no learning rate of their own though their study tunes them, else None.

    None for a smoke test and a pilot, which decide nothing, and if the command gives a rate.
    """
    study, scale = job.study, job.scale
    if scale == SMOKE or study.scale(scale).pilot or not (missing := unchosen(study, scale)):
        return None
    asked = {rate_name(run.planned.row, run.planned.point) for run in job.asked()}
    given = {word.partition("=")[0].removeprefix(f"{study.name}:") for word in words}
    found = [name for name in missing if name in asked]
    if not found or tuning_of(study, scale).key in given:
        return None
    from normlab.claims.pages import no_rate

    return (
        f"{job.name}: {no_rate(found)}; its sides are not tuned alike; "
        f"normlab study tune {study.name} scale={scale} chooses"
    )


class Night:
    """The jobs of a queue, carried out until all have ended or the deadline.

    Args:
        seconds: what a run takes.
        publish: the folder to which whole seeds go, None for none.
        until_decided: a job ends at the planned analysis that decides its parts.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        judge: Judge,
        *,
        seconds: Callable[[Job, Run], float] = lambda job, run: 0.0,
        publish: Path | None,
        until_decided: bool = False,
        deadline: float = math.inf,
        processes: int | None = None,
    ) -> None:
        self.jobs, self.publish = jobs, publish
        self.deadline, self.processes = deadline, processes
        self._unpublished: dict[str, str] = {}
        self.published: list[Path] = []
        self.out_of_time = self.stood_still = False
        self.queue = Queue(
            jobs,
            ended=lambda run: run.has_ended(run.record()),
            seconds=seconds,
            analyze=judge.analyze if until_decided else None,
            whole=self._publish_or_say,
        )

    def run(self) -> bool:
        """Carry out what has not ended; tell whether a run failed or was not published."""
        for job in self._with_whole():  # of an earlier night that was killed before it could
            self._publish_or_say(job)
        failed = self._carry_out()
        for job in self.jobs:
            if job.name in self._unpublished:
                self._publish(job)
        for problem in self._unpublished.values():
            complain(f"{problem}; fix this, and start the same command again")
        return failed or bool(self._unpublished)

    def _carry_out(self) -> bool:
        """Carry out what has not ended; tell whether any run failed."""
        queue = self.queue
        if not queue.left():
            return False
        if time.monotonic() >= self.deadline:
            self.out_of_time = self.stood_still = True
            return False
        saved, at_a_time = self._saved(), len(places(self.processes))
        asked = {run.folder for run in queue.left()}
        logs = queue.cells[0].folder.parents[1] / ".sweeps" / queue.name
        with Local(self.processes, logs) as runner:
            shown = Runs(
                queue.cells,
                at_a_time=at_a_time,
                logs=runner.logs,
                headline=lambda running: self.line(running, at_a_time),
                every=A_MINUTE,
            )
            print(shown.begin(later=len(queue.cells) - len(queue.done | asked)), flush=True)
            with shown:
                found = carry_out(queue, runner, deadline=self.deadline, show=shown)
        self.out_of_time = bool(queue.left()) and time.monotonic() >= self.deadline
        moved = queue.made or queue.failed or self._saved() != saved
        self.stood_still = self.out_of_time and not moved
        ended = [done for done in found if not done.interrupted]
        print("\n".join(summary_lines(ended)))
        return any(done.status for done in ended)

    def publish_whole(self) -> None:
        """Publish what there is of whole seeds; ValueError says of which studies it fails."""
        for job in self._with_whole():
            self._publish(job)
        if self._unpublished:
            raise ValueError("\n".join(self._unpublished.values()))

    def line(self, running: Mapping[Cell, float], at_a_time: int) -> str:
        """Return the line of a minute: what is running, done and left, and how long it takes."""
        queue = self.queue
        names = [f"{cell.name} ({duration(past)})" for cell, past in running.items()]
        past = {cell.folder: seconds for cell, seconds in running.items()}
        parts = [
            f"running {'; '.join(names) or 'nothing yet'}",
            f"{len(queue.done)} done",
            f"{len(queue.left())} left, {duration(self._seconds_left(past, at_a_time))} to the end",
        ]
        if queue.failed:
            parts.append(f"{len(queue.failed)} failed")
        if self.deadline < math.inf:
            parts.append(f"budget {duration(max(0.0, self.deadline - time.monotonic()))}")
        return f"{datetime.now():%H:%M} {' | '.join(parts)}"

    def _seconds_left(self, past: Mapping[Path, float], at_a_time: int) -> float:
        """Estimate how long the rest takes, corrected by what ended runs took."""
        took, estimates = self.queue.took, self.queue.estimates
        expected = sum(estimates[folder] for folder in took)
        factor = sum(took.values()) / expected if expected else 1.0
        folders = [run.folder for run in self.queue.left()]
        folders.sort(key=lambda folder: folder not in past)
        so_far = [past.get(folder, 0.0) for folder in folders]
        left = [
            max(factor * estimates[folder] - seconds, _LONGER * seconds)
            for folder, seconds in zip(folders, so_far, strict=True)
        ]
        return makespan(left, at_a_time)

    def summary(self, again: str) -> list[str]:
        """Say what is done and left, and the command that resumes."""
        left = self.queue.left()
        hours = sum(self.queue.estimates[run.folder] for run in left)
        lines = [
            f"{len(self.queue.done)} runs done, {self.queue.made} of them now; "
            f"{len(left)} left" + (f", about {duration(hours)} of runs" if left else "")
        ]
        for job in self.jobs:
            seeds = " ".join(map(str, self.queue.whole_seeds(job)))
            lines.append(f"  {job.name}: " + (f"whole seeds {seeds}" if seeds else "no whole seed"))
        if (left or self.queue.failed) and not self.stood_still:
            lines.append(f"resume with: {again}")
        return lines

    def too_small(self, before: float) -> str:
        """Say which budget would bring a run forward; `before` the first run went some seconds."""
        shortest = min(self.queue.estimates[run.folder] for run in self.queue.left())
        return (
            f"--budget is too small: no run ended or saved its state. {duration(before)} went "
            "before the first could begin, and the shortest takes about "
            f"{duration(shortest)}: give --budget {math.ceil((before + shortest) / 60)}m or more"
        )

    def _saved(self) -> dict[Path, int]:
        """Return when each run that has begun saved its state, in nanoseconds."""
        files = [run.folder / START_FILE for run in self.queue.left()]
        return {path: path.stat().st_mtime_ns for path in files if path.is_file()}

    def _with_whole(self) -> list[Job]:
        return [job for job in self.jobs if self.queue.whole_seeds(job)]

    def _publish_or_say(self, job: Job) -> None:
        """Publish while runs go on: a problem is said once, and ends nothing."""
        known = job.name in self._unpublished
        self._publish(job)
        if job.name in self._unpublished and not known:
            complain(
                f"{self._unpublished[job.name]}; the runs continue, and it is tried again with the "
                "next whole seed and at the end"
            )

    def _publish(self, job: Job) -> None:
        """Write the whole seeds of a job, and no other; a problem is kept."""
        if self.publish is None:
            return
        from normlab.reports.published import publish

        whole = self.queue.whole_seeds(job)
        runs = [run for seed in whole for run in job.runs[seed]]
        records = [(run.planned, run.record()) for run in runs]
        folders = [run.folder for run in runs]
        try:
            folder = publish(self.publish, job.study, job.scale, records, folders=folders, add=True)
        except (OSError, ValueError) as error:
            self._unpublished[job.name] = f"{job.name} is not published: {error}"
            return
        self._unpublished.pop(job.name, None)
        self.published.append(folder)
        print(f"published {job.name}: seed {' '.join(map(str, whole))}", flush=True)


def check_publishing(root: Path, jobs: Sequence[Job]) -> None:
    """Raise ValueError, before anything runs, if the runs of jobs cannot be published there."""
    from normlab.reports.published import check

    for job in jobs:
        asked = {
            (run.planned.row, run.planned.point, run.planned.seed): run.folder.parent.name
            for run in job.asked()
        }
        check(root, job.study.name, job.scale, asked)
