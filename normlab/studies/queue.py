"""The order of runs across several studies: one seed at a time.

Studies run in the order in which they are named. All rows and points of a seed run before the next
seed, because part of a seed decides nothing. Runs shared by studies are made once.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import yaml

from normlab.config.experiments import EXPERIMENT
from normlab.config.overrides import in_full, written_out
from normlab.errors import UserError
from normlab.studies.load import load_study
from normlab.studies.process_pool import EndedRun, RunQueue, RunToStart
from normlab.studies.study import SMOKE, Study, rate_name
from normlab.studies.study_runs import StudyRun, runs_of

if TYPE_CHECKING:
    from pathlib import Path

_KEYS = {"scale": "scale", "seeds": "seeds", "seed": "seeds", "rows": "rows", "row": "rows"}
_WHOLE = (EXPERIMENT, "debug")  # short keys that only apply to a single run
_MOST_SEEDS = 1000  # at most this many seeds in one range


class Job:
    """A study at a scale in a queue: its runs by seed, in the study's order.

    `rows` selects rows; `extra` are overrides for every run.
    """

    def __init__(
        self,
        study: Study,
        scale: str = SMOKE,
        *,
        seeds: Sequence[int] | None = None,
        rows: Collection[str] | None = None,
        extra: Sequence[str] = (),
    ) -> None:
        self.study, self.scale = study, scale
        self.lacks_data = False
        """Whether to start none of its runs, because their data are missing."""
        self.by_seed: dict[int, list[StudyRun]] = {}
        for run in runs_of(study.planned(scale, seeds=seeds, rows=rows, extra=extra)):
            self.by_seed.setdefault(run.planned.seed, []).append(run)

    @property
    def name(self) -> str:
        return f"{self.study.name} scale={self.scale}"

    @property
    def runs(self) -> list[StudyRun]:
        return [*chain.from_iterable(self.by_seed.values())]

    @property
    def settings(self) -> set[str]:
        """Return the rows with their points, as keys of the study's `rates`."""
        return {rate_name(run.planned.row, run.planned.point) for run in self.runs}

    @property
    def counts(self) -> bool:
        """Whether its runs may count as evidence; runs of a smoke test or a pilot never do."""
        return self.scale != SMOKE and not self.study.scale(self.scale).pilot


class Queue(RunQueue):
    """The order in which the runs of several jobs are started.

    Args:
        jobs: in the order to run them; a job without data starts no runs, but its complete seeds
            are known.
        on_seeds: called with a job and its complete seeds, at the start and whenever another seed
        is complete.
    """

    def __init__(
        self, jobs: Sequence[Job], *, on_seeds: Callable[[Job, list[int]], object]
    ) -> None:
        self.jobs, self._on_seeds = jobs, on_seeds
        self._runs: dict[Path, StudyRun] = {}
        self._cells: dict[Path, RunToStart] = {}
        for job in jobs:
            for run in job.runs:
                self._runs.setdefault(run.folder, run)
                if not job.lacks_data:
                    cell = run.cell(f"{job.study.name} {run.planned.name}")
                    self._cells.setdefault(run.folder, cell)
        self.done = {folder for folder, run in self._runs.items() if run.has_ended(run.record())}
        self.before = len(self.done)
        self.failed: set[Path] = set()
        self._running: set[Path] = set()
        for job in jobs:
            self._on_seeds(job, self.complete_seeds(job))

    def next(self) -> RunToStart | None:
        started = self.done | self.failed | self._running
        for job in (job for job in self.jobs if not job.lacks_data):
            for seed in sorted(job.by_seed, key=lambda seed: not self._begun(job, seed)):
                for run in job.by_seed[seed]:
                    if run.folder not in started:
                        self._running.add(run.folder)
                        return self._cells[run.folder]
        return None

    def ended(self, done: EndedRun) -> None:
        folder = done.cell.folder
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
        """Return the runs still to be made, each once, except those that failed."""
        runs = {run.folder: run for job in self.jobs if not job.lacks_data for run in job.runs}
        return [run for folder, run in runs.items() if folder not in self.done | self.failed]

    def _is_complete(self, job: Job, seed: int) -> bool:
        return all(run.folder in self.done for run in job.by_seed[seed])

    def _begun(self, job: Job, seed: int) -> bool:
        folders = {run.folder for run in job.by_seed[seed]}
        return bool(folders & (self.done | self._running)) and not folders <= self.done


def jobs_of(words: Sequence[str]) -> list[Job]:
    """Return a job for each named study; an override that begins with `STUDY:` is for it alone."""
    studies = [word for word in words if "=" not in word]
    words_of: dict[str, list[str]] = {name: [] for name in studies}
    if not studies or len(words_of) < len(studies):
        raise UserError("name each study once, such as normlab study run translation_norms")
    for override in (word for word in words if "=" in word):
        study, colon, _ = override.partition("=")[0].partition(":")
        if colon and study not in words_of:
            raise UserError(
                f"{override}: {study} is not among the named studies: {' '.join(words_of)}"
            )
        for name in [study] if colon else studies:
            words_of[name].append(override.removeprefix(f"{study}:") if colon else override)
    jobs: list[Job] = []
    for name in studies:
        study, (selection, extra) = load_study(name), taken_out(words_of[name])
        scale = selection.get("scale", SMOKE)
        seeds = read_seeds(selection["seeds"]) if "seeds" in selection else None
        rows = read_rows(selection["rows"], study, scale) if "rows" in selection else None
        jobs.append(Job(study, scale, seeds=seeds, rows=rows, extra=extra))
    return jobs


def taken_out(overrides: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split overrides into the values of `scale=`, `seeds=` and `rows=`, and the others."""
    pairs = [(each, each.partition("=")) for each in overrides]
    chosen = {_KEYS[key]: value for _, (key, _, value) in pairs if key in _KEYS}
    if whole := [key for _, (key, _, _) in pairs if key in _WHOLE]:
        raise UserError(f"{whole[0]}= is for normlab train; a study's settings are in its file")
    return chosen, written_out(in_full([each for each, (key, _, _) in pairs if key not in _KEYS]))


def read_rows(text: str, study: Study, scale: str) -> list[str]:
    """Return the rows of a scale selected by `rows=`, in the scale's order.

    A row is selected by name or number; a list is `ln,bn` or, if names contain commas, `[ln,'bn,
    padding counted']`. For an unknown row, UserError lists all.
    """
    names = study.scale(scale).rows
    try:
        parts = yaml.load(text if text.startswith("[") else f"[{text}]", Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        parts = [text]
    numbers = {str(number): name for number, name in enumerate(names, 1)}
    for part in parts or [""]:
        if part not in names and str(part) not in numbers:
            known = "; ".join(f"{number} {name}" for number, name in numbers.items())
            raise UserError(f"rows: {part!r} is not a row of scale={scale}; choose from {known}")
    chosen = {part if part in names else numbers[part] for part in parts}
    return [name for name in names if name in chosen]


def read_seeds(text: str) -> list[int]:
    """Parse the value of `seeds=`, such as `1,2,3`, `1-5` or a mix, into a list of seeds."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        whole = first.isdecimal() and last.isdecimal()
        if not whole or not int(first) <= int(last) < int(first) + _MOST_SEEDS:
            raise UserError(f"seeds={text}: expected numbers, such as seeds=1,2,3 or seeds=1-5")
        seeds += range(int(first), int(last) + 1)
    return seeds
