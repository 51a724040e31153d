"""The plan of several studies: seed by seed, by what decides most per hour, until decided.

One seed of all rows and points of a study is a unit, since half a seed decides nothing. Units are
ordered by the undecided parts of claims of their study over the hours to its next planned analysis.
Runs that studies share are made once.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice
from typing import TYPE_CHECKING

from normlab.studies.local import Cell, Ended
from normlab.studies.runs import Run
from normlab.studies.study import ANALYSES, Study

if TYPE_CHECKING:
    from pathlib import Path

_LEAST_HOURS = 1e-6
_LONGEST_NAME = 100


@dataclass
class Job:
    """A study at a scale in a queue.

    `names` are its rows at their points, `own` its seeds, and `compose` returns the runs of seeds.
    `published` seeds need not be made, and `taken` ones cannot be, since some of their runs were
    made elsewhere. `plan` sets the `seeds` to be made now and those of `later` analyses, each added
    if a part is undecided at the analysis before it; `counted` published seeds count for the parts.
    `undecided` is how many primary parts the study decides and are undecided.
    """

    study: Study
    scale: str
    names: set[str]
    own: Sequence[int]
    compose: Callable[[Sequence[int]], dict[int, list[Run]]]
    published: Sequence[int] = ()
    taken: Collection[int] = ()
    runs: dict[int, list[Run]] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)
    later: list[list[int]] = field(default_factory=list)
    counted: int = 0
    undecided: int = 0
    over: bool = False

    @property
    def name(self) -> str:
        """Name study and scale."""
        return f"{self.study.name} scale={self.scale}"

    @property
    def needs_none(self) -> bool:
        """Tell whether the published seeds decide its parts, or leave no analysis to come."""
        enough = len(self.published) >= len(self.own)
        return not self.seeds or (enough and not self.undecided)

    def plan(self, counted: int | None) -> None:
        """Plan the seeds of its analyses, with `counted` published ones; None: its own seeds."""
        if counted is None:
            there = {*self.published, *self.taken}
            self.seeds, self.later = [seed for seed in self.own if seed not in there], []
        else:
            self.counted = counted
            self.seeds, self.later = seeds_by_analyses(
                self.own, self.published, self.taken, counted=counted
            )
        wanted = [*self.seeds, *chain.from_iterable(self.later)]
        self.runs |= self.compose([seed for seed in wanted if seed not in self.runs])

    def asked(self) -> list[Run]:
        """Return the runs of the seeds to be made now."""
        return [run for seed in self.seeds for run in self.runs[seed]]


def seeds_by_analyses(
    seeds: Sequence[int],
    published: Collection[int] = (),
    taken: Collection[int] = (),
    *,
    counted: int | None = None,
) -> tuple[list[int], list[list[int]]]:
    """Return the seeds to be made for the next planned analysis, and for each later one.

    The study's own `seeds` come first. `counted` of the published ones count, by default all.
    """
    most = max(ANALYSES[-1], len(seeds))
    have = len(published) if counted is None else counted
    wanted = chain(seeds, (seed for seed in count(1) if seed not in seeds))
    free = (seed for seed in wanted if seed not in published and seed not in taken)
    new = list(islice(free, max(0, most - have)))
    ends = [number - have for number in ANALYSES if number > have and number >= len(seeds)]
    ends = ends or [len(new)]
    parts = [new[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return parts[0], parts[1:]


class Queue:
    """The order in which the runs of some jobs are begun.

    Args:
        jobs: in the order in which they were named, which decides between equals.
        ended: tells whether a run has ended.
        seconds: what a run takes.
        analyze: at a planned analysis of a job, returns its undecided parts; None adds no seeds.
        whole: called with a job whenever one of its seeds is whole.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        ended: Callable[[Run], bool],
        seconds: Callable[[Job, Run], float],
        analyze: Callable[[Job], int] | None,
        whole: Callable[[Job], object],
    ) -> None:
        self.jobs = jobs
        self._is_ended, self._analyze, self._whole = ended, analyze, whole
        self._runs: dict[Path, Run] = {}
        self._cells: dict[Path, Cell] = {}
        self._seconds: dict[Path, float] = {}
        for job in jobs:
            for run in chain.from_iterable(job.runs.values()):
                if run.folder not in self._runs:
                    self._runs[run.folder] = run
                    self._cells[run.folder] = run.cell(f"{job.study.name} {run.name}")
                    self._seconds[run.folder] = seconds(job, run)
        self.cells = list(self._cells.values())
        self.done = {folder for folder, run in self._runs.items() if ended(run)}
        self._at_start = len(self.done)
        self.failed: set[Path] = set()
        self._running: set[Path] = set()
        for job in jobs:
            self._reach_analyses(job)

    def next(self) -> Cell | None:
        for job in sorted(self.jobs, key=self.worth, reverse=True):
            seeds = sorted(job.seeds, key=lambda seed: not self._begun(job, seed))
            for run in (run for seed in seeds for run in job.runs[seed] if not job.over):
                if run.folder not in self.done | self.failed | self._running:
                    self._running.add(run.folder)
                    return self._cells[run.folder]
        return None

    def ended(self, done: Ended) -> None:
        folder = done.cell.folder
        self._running.discard(folder)
        if done.status or not self._is_ended(self._runs[folder]):
            self.failed.add(folder)
            return
        self.done.add(folder)
        for job in self.jobs:
            for seed in list(job.seeds):
                own = any(run.folder == folder for run in job.runs[seed])
                if own and self.is_whole(job, seed):
                    self._whole(job)
                    self._reach_analyses(job)

    def hopeless(self, cell: Cell) -> bool:
        return False

    @property
    def name(self) -> str:
        """Name it by its studies."""
        return "+".join(dict.fromkeys(job.study.name for job in self.jobs))[:_LONGEST_NAME]

    @property
    def count(self) -> int:
        return self.made + len(self.failed) + len(self.left())

    @property
    def made(self) -> int:
        """Return how many runs have ended since the start."""
        return len(self.done) - self._at_start

    def is_whole(self, job: Job, seed: int) -> bool:
        """Tell whether all runs of a seed have ended."""
        return all(run.folder in self.done for run in job.runs[seed])

    def whole_seeds(self, job: Job) -> list[int]:
        """Return the seeds of a job whose runs have all ended."""
        return [seed for seed in job.runs if self.is_whole(job, seed)]

    def left(self) -> list[Run]:
        """Return the runs to be made that have not ended, each once."""
        asked = {run.folder: run for job in self.jobs if not job.over for run in job.asked()}
        return [run for folder, run in asked.items() if folder not in self.done | self.failed]

    def hours_to_analysis(self, job: Job) -> float:
        """Return the hours of the runs that a job lacks for its next planned analysis."""
        lacks = {run.folder for run in job.asked()} - self.done
        return sum(self._seconds[folder] for folder in lacks) / 3600

    def worth(self, job: Job) -> float:
        """Return the undecided parts per hour to the next analysis."""
        return job.undecided / max(self.hours_to_analysis(job), _LEAST_HOURS)

    def _begun(self, job: Job, seed: int) -> bool:
        folders = {run.folder for run in job.runs[seed]}
        return bool(folders & (self.done | self._running)) and not folders <= self.done

    def _reach_analyses(self, job: Job) -> None:
        """At a planned analysis, end a job whose parts are decided, or plan its next seeds."""
        while not job.over and all(self.is_whole(job, seed) for seed in job.seeds):
            if self._analyze is not None:
                job.undecided = self._analyze(job)
            if self._analyze is None or not job.undecided or not job.later:
                job.over = True
            else:
                job.seeds += job.later.pop(0)
