"""The queue of a night: studies at their scales, what each decides, and which run is next.

A seed of all rows and points of a study is one unit, since half a seed decides nothing. Units go by
what they decide: the open primary parts of their study, over the hours to its next planned look.
Runs that studies share are made once.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape
from itertools import chain, count, islice
from pathlib import Path

from normlab.claims.looks import LOOKS
from normlab.commands._grid import Run, runs_of
from normlab.studies import Planned, Study, rate_name
from normlab.sweep import Cell, Order

_LEAST_HOURS = 1e-6
_LONGEST_NAME = 100


@dataclass
class Job:
    """A study at a scale in a queue.

    `names` are those of its rows at their points, `runs` by seed. `seeds` are to be made now, each
    list of `later` if, at the look before it, a part is still open; seeds that are `published`
    stand beside them, of which so many as `counted` count, and those that are `taken` cannot be
    made. `more` composes the runs of other seeds. `open_parts` are the primary parts that it
    decides and that are open; one that decides none is not `looked_at`.
    """

    study: Study
    scale: str
    names: set[str]
    runs: dict[int, Sequence[Run]]
    seeds: list[int]
    later: list[list[int]] = field(default_factory=list)
    published: Sequence[int] = ()
    counted: int = 0
    taken: Collection[int] = ()
    more: Callable[[Sequence[int]], Mapping[int, Sequence[Run]]] = lambda seeds: {}
    open_parts: int = 0
    looked_at: bool = True
    over: bool = False

    @property
    def name(self) -> str:
        """Name study and scale."""
        return f"{self.study.name} scale={self.scale}"

    @property
    def needs_none(self) -> bool:
        """Tell whether what is published decides its parts, or leaves no look to come."""
        enough = len(self.published) >= len(self.study.scale(self.scale).seeds)
        return not self.seeds or (enough and not self.open_parts)

    def recount(self, counted: int) -> None:
        """Plan the seeds of its looks anew, as only so many of those published count for a part."""
        self.counted = counted
        own = self.study.scale(self.scale).seeds
        self.seeds, self.later = seeds_by_looks(own, self.published, self.taken, counted=counted)
        wanted = [seed for part in (self.seeds, *self.later) for seed in part]
        self.runs |= self.more([seed for seed in wanted if seed not in self.runs])

    def leave_looks(self) -> None:
        """Make the seeds of the study alone, as it decides no part that looks would judge."""
        own = set(self.study.scale(self.scale).seeds)
        self.seeds, self.later = [seed for seed in self.seeds if seed in own], []
        self.looked_at = False

    def asked(self) -> list[Run]:
        """Return the runs of the seeds to be made now."""
        return [run for seed in self.seeds for run in self.runs[seed]]


def seeds_by_looks(
    seeds: Sequence[int],
    published: Collection[int] = (),
    taken: Collection[int] = (),
    *,
    counted: int | None = None,
) -> tuple[list[int], list[list[int]]]:
    """Return the seeds to be made for the next look, and for each of those after it.

    Args:
        seeds: of the study, which come first.
        published: seeds that need not be made; a look counts them too.
        taken: seeds that cannot be made, since somebody else made a part of their runs.
        counted: how many of the published ones count; None is all.
    """
    most = max(LOOKS[-1].seeds, len(seeds))
    have = len(published) if counted is None else counted
    wanted = chain(seeds, (seed for seed in count(1) if seed not in seeds))
    free = (seed for seed in wanted if seed not in published and seed not in taken)
    new = list(islice(free, max(0, most - have)))
    ends = [look.seeds - have for look in LOOKS if look.seeds > have and look.seeds >= len(seeds)]
    ends = ends or [len(new)]
    parts = [new[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return parts[0], parts[1:]


class Queue(Order):
    """The order in which the runs of some jobs are begun.

    Args:
        jobs: in the order in which they were named, which holds where nothing else decides.
        ended: tells whether a run has ended.
        seconds: what a run takes.
        look: at a planned look of a job, returns its open parts; None adds no seeds.
        whole: called with a job whenever one of its seeds is whole.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        ended: Callable[[Run], bool],
        seconds: Callable[[Job, Run], float],
        look: Callable[[Job], int] | None,
        whole: Callable[[Job], object],
    ) -> None:
        self.jobs = jobs
        self._is_ended, self._look, self._whole = ended, look, whole
        every = [(job, run) for job in jobs for runs in job.runs.values() for run in runs]
        self.numbers: dict[Path, int] = {}
        self.cells: list[Run] = []
        self.estimates: dict[Path, float] = {}
        for job, run in every:
            if run.place not in self.numbers:
                self.numbers[run.place] = len(self.cells)
                self.cells.append(run)
                self.estimates[run.place] = seconds(job, run)
        self.done = {run.place for run in self.cells if ended(run)}
        self.took: dict[Path, float] = {}
        self._at_start = len(self.done)
        # What was begun before takes less than a whole run.
        self._begun_before = {run.place for run in self.cells if run.place.exists()}
        self.failed: set[Path] = set()
        self.at_work: set[Path] = set()
        for job in jobs:
            self._reach_looks(job)

    def take(self) -> int | None:
        """Return the number of the run to begin."""
        for job in sorted(self.jobs, key=self._rank):
            for run in self._in_order(job):
                if run.place not in self.done | self.failed | self.at_work:
                    self.at_work.add(run.place)
                    return self.numbers[run.place]
        return None

    def ended(self, number: int, cell: Cell) -> None:
        """Learn that a run has ended: a seed may be whole now, and a look reached."""
        run = self.cells[number]
        place = run.place
        self.at_work.discard(place)
        if cell.status or not self._is_ended(run):
            self.failed.add(place)
            return
        self.done.add(place)
        if place not in self._begun_before:
            self.took[place] = cell.seconds
        for job in self.jobs:
            for seed in job.seeds:
                if any(each.place == place for each in job.runs[seed]) and self.is_whole(job, seed):
                    self._whole(job)
                    self._reach_looks(job)

    @property
    def name(self) -> str:
        """Name it by its studies; beyond what a file system takes by some and their number."""
        studies = [job.study.name for job in self.jobs]
        whole = "+".join(dict.fromkeys(studies))
        if len(whole) <= _LONGEST_NAME:
            return whole
        digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
        return f"{'+'.join(studies[:2])}+{len(studies) - 2}-more-{digest}"

    @property
    def count(self) -> int:
        """Return how many runs are to be made, those made now among them."""
        return self.made + len(self.failed) + len(self.left())

    @property
    def made(self) -> int:
        """Return how many runs have ended since the start."""
        return len(self.done) - self._at_start

    def is_whole(self, job: Job, seed: int) -> bool:
        """Tell whether all runs of a seed have ended."""
        return all(run.place in self.done for run in job.runs[seed])

    def left(self) -> list[Run]:
        """Return the runs to be made that have not ended, each once."""
        asked = {run.place: run for job in self.jobs if not job.over for run in job.asked()}
        return [run for place, run in asked.items() if place not in self.done | self.failed]

    def hours_to_look(self, job: Job) -> float:
        """Return the hours of the runs that a job lacks for its next look."""
        lacks = {run.place for run in job.asked()} - self.done
        return sum(self.estimates[place] for place in lacks) / 3600

    def worth(self, job: Job) -> float:
        """Return the open parts that an hour decides."""
        return job.open_parts / max(self.hours_to_look(job), _LEAST_HOURS)

    def _in_order(self, job: Job) -> list[Run]:
        """Return the runs asked for: those of a seed that is begun before those of another."""
        seeds = [] if job.over else sorted(job.seeds, key=lambda seed: not self._begun(job, seed))
        return [run for seed in seeds for run in job.runs[seed]]

    def _rank(self, job: Job) -> float:
        return -self.worth(job)

    def _begun(self, job: Job, seed: int) -> bool:
        places = {run.place for run in job.runs[seed]}
        return bool(places & (self.done | self.at_work)) and not places <= self.done

    def _reach_looks(self, job: Job) -> None:
        """At a planned look, end a job whose parts are decided, or plan the seeds of the next."""
        while not job.over and all(self.is_whole(job, seed) for seed in job.seeds):
            if self._look is not None:
                job.open_parts = self._look(job)
            if self._look is None or not job.open_parts or not job.later:
                job.over = True
            else:
                job.seeds += job.later.pop(0)


def make_job(
    study: Study,
    scale: str,
    plan: Callable[[Sequence[int] | None], Sequence[Planned]],
    *,
    looks: Path | None,
) -> Job:
    """Compose the runs of a job; `plan` returns those of some seeds, None for the study's own.

    With `looks`, the folder of what is published, seeds are planned by looks, those there first.
    """
    first = list(plan(None))
    seeds = list(dict.fromkeys(run.seed for run in first))
    names = {rate_name(run.row, run.point) for run in first}
    later: list[list[int]] = []
    published: list[int] = []
    taken: set[int] = set()
    if looks is not None:
        one = [run.place for run in runs_of([run for run in first if run.seed == seeds[0]])]
        published, taken = _published(looks / study.name / scale, one)
        seeds, later = seeds_by_looks(seeds, published, taken)
        first = list(plan([*seeds, *(seed for part in later for seed in part)]))

    def more(of: Sequence[int]) -> Mapping[int, Sequence[Run]]:
        return _by_seed(plan(of))

    runs, have = _by_seed(first), len(published)
    return Job(study, scale, names, runs, seeds, later, published, have, taken, more)


def _by_seed(planned: Sequence[Planned]) -> dict[int, Sequence[Run]]:
    runs: dict[int, list[Run]] = {}
    for run in runs_of(planned):
        runs.setdefault(run.planned.seed, []).append(run)
    return {**runs}


def _published(folder: Path, places: Sequence[Path]) -> tuple[list[int], set[int]]:
    """Return the seeds that are published whole, and others of which some run is, elsewhere too.

    `folder` is that of a study and scale, `places` those of the runs of one seed. Runs that are
    made here do not take their seed. Raises ValueError for what is published and damaged.
    """
    from normlab.records.store import RUNS_FILE
    from normlab.reports.published import read

    listed = read(folder)[1] if (folder / RUNS_FILE).is_file() else []
    by_run: dict[str, set[int]] = {}
    for _, record in listed:
        if record is not None:
            label = record.run_id.removesuffix(f"-seed{record.seed}")
            by_run.setdefault(label, set()).add(record.seed)
    whole = set.intersection(*(by_run.get(place.parent.name, set()) for place in places))
    taken: set[int] = set()
    for place in places:
        for run in folder.parents[1].glob(f"*/*/records/{escape(place.parent.name)}/seed*"):
            number = run.name.removeprefix("seed")
            if number.isdecimal() and not (place.parent / run.name).exists():
                taken.add(int(number))
    return sorted(whole), taken - whole
