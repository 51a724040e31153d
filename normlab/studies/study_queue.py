"""The order of runs across several studies: one seed at a time.

Studies run in the order in which they are listed. All rows and points of a seed run before the next
seed, because an incomplete seed decides nothing. Runs shared by studies are made once, with the
tests of all of them.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from normlab.studies.job import Job
from normlab.studies.process_pool import EndedRun, RunQueue, RunToStart
from normlab.studies.study_runs import StudyRun, each_folder_once

if TYPE_CHECKING:
    from pathlib import Path


class StudyQueue(RunQueue):
    """The runs of several studies, in the order in which they start.

    Args:
        jobs: the studies in the order to run them. A job without data starts no runs, but its
            complete seeds are known.
        on_seeds: called with a job and its complete seeds whenever another seed is complete.
    """

    def __init__(
        self, jobs: Sequence[Job], *, on_seeds: Callable[[Job, list[int]], object]
    ) -> None:
        self.jobs, self._on_seeds = jobs, on_seeds
        self._runs = each_folder_once(run for job in jobs for run in job.runs)
        self._to_start: dict[Path, RunToStart] = {}
        for job in (job for job in jobs if not job.lacks_data):
            for run in job.runs:
                name = f"{job.study.name} {run.planned.name}"
                self._to_start.setdefault(run.folder, self._runs[run.folder].to_start(name))
        self.done = {folder for folder, run in self._runs.items() if run.has_ended(run.record())}
        self.before = len(self.done)
        self.failed: set[Path] = set()
        self._running: set[Path] = set()

    def next(self) -> RunToStart | None:
        started = self.done | self.failed | self._running
        for job in (job for job in self.jobs if not job.lacks_data):
            for seed in sorted(job.by_seed, key=lambda seed: not self._begun(job, seed)):
                for run in job.by_seed[seed]:
                    if run.folder not in started:
                        self._running.add(run.folder)
                        return self._to_start[run.folder]
        return None

    def ended(self, done: EndedRun) -> None:
        folder = done.run.folder
        self._running.discard(folder)
        run = self._runs[folder]
        if done.status or not run.has_ended(run.record()):
            self.failed.add(folder)
            return
        self.done.add(folder)
        for job in self.jobs:
            for seed, runs in job.by_seed.items():
                if any(run.folder == folder for run in runs) and self._is_complete(job, seed):
                    self._on_seeds(job, self.complete_seeds(job))

    @property
    def count(self) -> int:
        return len(self.done) - self.before + len(self.failed) + len(self.left())

    def complete_seeds(self, job: Job) -> list[int]:
        """Return the seeds of a job whose runs have all ended."""
        return [seed for seed in job.by_seed if self._is_complete(job, seed)]

    def left(self) -> list[StudyRun]:
        """Return the runs still to be done, without duplicates and without failed runs."""
        runs = {run.folder: run for job in self.jobs if not job.lacks_data for run in job.runs}
        return [run for folder, run in runs.items() if folder not in self.done | self.failed]

    def summary(self) -> list[str]:
        """Return lines that count the runs done, failed and left, and list the complete seeds."""
        now, left = len(self.done) - self.before, len(self.left())
        failed = f"{len(self.failed)} failed, " if self.failed else ""
        lines = [f"{len(self.done)} runs done ({now} of them now), {failed}{left} left"]
        for job in self.jobs:
            seeds = " ".join(map(str, self.complete_seeds(job))) or "none"
            lines.append(f"  {job.name}: complete seeds: {seeds}")
        return lines

    def _is_complete(self, job: Job, seed: int) -> bool:
        return all(run.folder in self.done for run in job.by_seed[seed])

    def _begun(self, job: Job, seed: int) -> bool:
        folders = {run.folder for run in job.by_seed[seed]}
        return bool(folders & (self.done | self._running)) and not folders <= self.done
