"""Carrying out a queue of studies: whole seeds are published as they end, and it ends in time."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from normlab.commands._study_judge import Judge
from normlab.commands._terminal import complain
from normlab.config.files import START_FILE
from normlab.studies.costs import duration, makespan
from normlab.studies.local import Local, places
from normlab.studies.loop import Cell, carry_out, summary_lines
from normlab.studies.queue import Job, Queue
from normlab.studies.runs import Run
from normlab.studies.show import A_MINUTE, Runs

_LONGER = 0.1  # of the time that a run took, if it is over its estimate


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
        self.jobs, self.judge, self.publish = jobs, judge, publish
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
        saved = self._saved()
        at_a_time = len(places(self.processes))
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
        for line in summary_lines(ended):
            print(line)
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
        left = queue.left()
        names = [f"{cell.name} ({duration(past)})" for cell, past in running.items()]
        past = {cell.folder: seconds for cell, seconds in running.items()}
        parts = [
            f"running {'; '.join(names) or 'nothing yet'}",
            f"{len(queue.done)} done",
            f"{len(left)} left, {duration(self.seconds_left(past, at_a_time))} to the end",
        ]
        if queue.failed:
            parts.append(f"{len(queue.failed)} failed")
        if self.deadline < math.inf:
            parts.append(f"budget {duration(max(0.0, self.deadline - time.monotonic()))}")
        return f"{datetime.now():%H:%M} {' | '.join(parts)}"

    def seconds_left(self, past: Mapping[Path, float], at_a_time: int) -> float:
        """Estimate how long the rest takes, corrected by what ended runs took."""
        took, estimates = self.queue.took, self.queue.estimates
        expected = sum(estimates[folder] for folder in took)
        factor = sum(took.values()) / expected if expected else 1.0
        folders = [run.folder for run in self.queue.left()]
        folders.sort(key=lambda folder: folder not in past)
        left = [
            max(factor * estimates[folder] - past.get(folder, 0.0), _LONGER * past.get(folder, 0.0))
            for folder in folders
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
            seeds = self.queue.whole_seeds(job)
            whole = f"whole seeds {' '.join(map(str, seeds))}" if seeds else "no whole seed"
            lines.append(f"  {job.name}: {whole}")
        if (left or self.queue.failed) and not self.stood_still:
            lines.append(f"resume with: {again}")
        return lines

    def too_small(self, before: float) -> str:
        """Say that the budget brought no run forward, and which would.

        `before` are the seconds that went before the first run could begin.
        """
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
        try:
            folder = publish(
                self.publish,
                job.study,
                job.scale,
                [(run.planned, run.record()) for run in runs],
                folders=[run.folder for run in runs],
                add=True,
            )
        except (OSError, ValueError) as error:
            self._unpublished[job.name] = f"{job.name} is not published: {error}"
            return
        self._unpublished.pop(job.name, None)
        self.published.append(folder)
        print(f"published {job.name}: seed {' '.join(map(str, whole))}", flush=True)


def check_publishing(root: Path, jobs: Sequence[Job]) -> None:
    """Raise ValueError, before anything runs, if the runs of jobs cannot be published to a folder.

    It says what to do.
    """
    from normlab.reports.published import check

    for job in jobs:
        asked = {
            (run.planned.row, run.planned.point, run.planned.seed): run.folder.parent.name
            for run in job.asked()
        }
        check(root, job.study.name, job.scale, asked)
