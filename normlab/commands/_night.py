"""Carrying out a queue: a line a minute, whole seeds published as they come, an end in time."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from normlab import start_file
from normlab.commands import _grid
from normlab.commands._cells import Cells, Row
from normlab.commands._estimate import duration
from normlab.commands._grid import Run
from normlab.commands._looks import Judge, standing_lines
from normlab.commands._plan import makespan
from normlab.commands._queue import Job, Queue
from normlab.commands._terminal import complain
from normlab.sweep import Sweep, places, summary_lines

_LONGER = 0.1  # of the time that a run took, if it is over its estimate


class Night:
    """The jobs of a queue, carried out until all have ended or the deadline.

    Args:
        seconds: what a run takes.
        publish: the folder to which whole seeds go, None for none.
        until_decided: at each planned look a job ends whose parts are decided.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        judge: Judge,
        *,
        seconds: Callable[[Job, Run], float],
        publish: Path | None,
        until_decided: bool,
        deadline: float,
        processes: int | None,
    ) -> None:
        self.jobs, self.judge, self.publish = jobs, judge, publish
        self.deadline, self.processes = deadline, processes
        self.queue = Queue(
            jobs,
            ended=lambda run: run.has_ended(run.record()),
            seconds=seconds,
            look=self._look if until_decided else None,
            whole=self._publish_or_say,
        )
        self.out_of_time = self.stood_still = False
        self.published: list[Path] = []
        self._unpublished: dict[str, str] = {}

    def run(self) -> bool:
        """Carry out what has not ended; tell whether a run failed or was not published."""
        for job in self._with_whole():  # of an earlier night that was killed before it could
            self._publish_or_say(job)
        failed = self._carry_out()
        for job in self.jobs:
            if job.name in self._unpublished:
                self._publish(job)
        for problem in self._unpublished.values():
            complain(f"{problem}; mend this, and start the same command again")
        return failed or bool(self._unpublished)

    def _carry_out(self) -> bool:
        """Carry out what has not ended; tell whether any run failed."""
        if not self.queue.left():
            return False
        if time.monotonic() >= self.deadline:
            self.out_of_time = self.stood_still = True
            return False
        saved = self._saved()
        at_a_time = len(places(self.processes))
        asked = {run.place for run in self.queue.left()}
        logs = self.queue.cells[0].place.parents[1] / ".sweeps" / self.queue.name
        cells = Cells(
            [
                Row(
                    f"{self._job_of(run.place)} {_grid.name_of(run.planned)}",
                    run.place,
                    f"cell{number}.log",
                )
                for number, run in enumerate(self.queue.cells)
            ],
            at_a_time=at_a_time,
            logs=logs,
            headline=lambda at_work: self.line(at_work, at_a_time),
            every=Sweep.BEAT,
        )
        _say(cells.begin(later=len(self.queue.cells) - len(self.queue.done | asked)))
        with cells:
            sweep = Sweep(
                [run.planned.overrides for run in self.queue.cells],
                processes=self.processes,
                logs=logs,
                tell=cells.tell,
                order=self.queue,
                deadline=self.deadline,
                beat=cells.beat,
                every=cells.beat_every,
            )
            found = sweep.run()
        self.out_of_time = sweep.out_of_time
        moved = self.queue.made or self.queue.failed or self._saved() != saved
        self.stood_still = self.out_of_time and not moved
        ended = [cell for cell in found if not cell.interrupted]
        for line in summary_lines(ended, sweep.logs):
            print(line)
        return any(cell.status for cell in ended)

    def publish_whole(self) -> None:
        """Publish what there is of whole seeds; ValueError says of which studies it cannot be."""
        for job in self._with_whole():
            self._publish(job)
        if self._unpublished:
            raise ValueError("\n".join(self._unpublished.values()))

    def line(self, at_work: Mapping[int, float], at_a_time: int) -> str:
        """Return the line of a minute: what is running, done and left, and how long it takes."""
        running = {self.queue.cells[number].place: past for number, past in at_work.items()}
        left = self.queue.left()
        names = [
            f"{self._job_of(place)} {_grid.name_of(self.queue.cells[number].planned)} "
            f"({duration(past)})"
            for number, (place, past) in zip(at_work, running.items(), strict=True)
        ]
        parts = [
            f"running {'; '.join(names) or 'nothing yet'}",
            f"{len(self.queue.done)} done",
            f"{len(left)} left, {duration(self.seconds_left(running, at_a_time))} to the end",
        ]
        if self.queue.failed:
            parts.append(f"{len(self.queue.failed)} failed")
        if self.deadline < float("inf"):
            parts.append(f"budget {duration(max(0.0, self.deadline - time.monotonic()))}")
        return f"{datetime.now():%H:%M} {' | '.join(parts)}"

    def seconds_left(self, at_work: Mapping[Path, float], at_a_time: int) -> float:
        """Estimate how long the rest takes, corrected by what ended runs took."""
        took = self.queue.took
        expected = sum(self.queue.estimates[place] for place in took)
        factor = sum(took.values()) / expected if expected else 1.0
        places = [run.place for run in self.queue.left()]
        places.sort(key=lambda place: place not in at_work)
        left = [
            max(
                factor * self.queue.estimates[place] - at_work.get(place, 0.0),
                _LONGER * at_work.get(place, 0.0),
            )
            for place in places
        ]
        return makespan(left, at_a_time)

    def summary(self, again: str) -> list[str]:
        """Say what is done and left, and the command that goes on."""
        left = self.queue.left()
        hours = sum(self.queue.estimates[run.place] for run in left)
        lines = [
            f"{len(self.queue.done)} runs done, {self.queue.made} of them now; "
            f"{len(left)} left" + (f", about {duration(hours)} of runs" if left else "")
        ]
        for job in self.jobs:
            seeds = [seed for seed in job.runs if self.queue.is_whole(job, seed)]
            whole = f"whole seeds {' '.join(map(str, seeds))}" if seeds else "no whole seed"
            lines.append(f"  {job.name}: {whole}")
        if (left or self.queue.failed) and not self.stood_still:
            lines.append(f"it goes on with: {again}")
        return lines

    def _saved(self) -> dict[Path, int]:
        """Return when each run that has begun saved its state, in nanoseconds."""
        files = [run.place / start_file.FILE for run in self.queue.left()]
        return {path: path.stat().st_mtime_ns for path in files if path.is_file()}

    def _job_of(self, place: Path) -> str:
        names = (j.study.name for j in self.jobs if any(r.place == place for r in j.asked()))
        return next(names, "")

    def _look(self, job: Job) -> int:
        """Judge the parts of a job at a planned look; return how many are open."""
        found = self.judge.standings(job)
        _say(f"look at {job.counted + len(job.seeds)} seeds of {job.name}:")
        for line in standing_lines(found) or ["it decides no part of a claim"]:
            _say(f"  {line}")
        return sum(each.open for each in found)

    def _with_whole(self) -> list[Job]:
        return [job for job in self.jobs if any(self.queue.is_whole(job, s) for s in job.runs)]

    def _publish_or_say(self, job: Job) -> None:
        """Publish while runs go on: a problem is said once, and ends nothing."""
        known = job.name in self._unpublished
        self._publish(job)
        if job.name in self._unpublished and not known:
            complain(
                f"{self._unpublished[job.name]}; the runs go on, and it is tried again with the "
                "next whole seed and at the end"
            )

    def _publish(self, job: Job) -> None:
        """Write the whole seeds of a job, and no other; a problem is kept."""
        if self.publish is None:
            return
        from normlab.reports.published import publish

        whole = [seed for seed in job.runs if self.queue.is_whole(job, seed)]
        runs = [run for seed in whole for run in job.runs[seed]]
        try:
            folder = publish(
                self.publish,
                job.study,
                job.scale,
                [(run.planned, run.record()) for run in runs],
                folders=[run.place for run in runs],
                add=True,
            )
        except (OSError, ValueError) as error:
            self._unpublished[job.name] = f"{job.name} is not published: {error}"
            return
        self._unpublished.pop(job.name, None)
        self.published.append(folder)
        _say(f"published {job.name}: seed {' '.join(map(str, whole))}")


def check_publishing(root: Path, jobs: Sequence[Job]) -> None:
    """Raise ValueError where the runs of jobs cannot be published to a folder, and say what to do.

    So that it is known before anything is run.
    """
    from normlab.reports.published import check

    for job in jobs:
        asked = {
            (run.planned.row, run.planned.point, run.planned.seed): run.place.parent.name
            for run in job.asked()
        }
        check(root, job.study.name, job.scale, asked)


def _say(line: str) -> None:
    print(line, flush=True)
