"""The order of runs across several studies: one seed at a time, until every claim is decided.

Studies run in the order in which they are named, and all rows and points of a seed before the next
seed, because part of a seed decides nothing. Runs shared by studies are made once.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import yaml

from normlab.config.experiments import EXPERIMENT
from normlab.config.overrides import in_full, written_out
from normlab.errors import UserError
from normlab.records.packed import pack
from normlab.studies.load import load_study
from normlab.studies.loop import Cell, Ended, Plan
from normlab.studies.study import ANALYSES, SMOKE, Study, rate_name
from normlab.studies.study_runs import Run, runs_of

_KEYS = {"scale": "scale", "seeds": "seeds", "seed": "seeds", "rows": "rows", "row": "rows"}
_WHOLE = (EXPERIMENT, "debug")  # short keys that are about a single command
_MOST_SEEDS = 1000  # in one range


class Job:
    """A study at a scale in a queue.

    `own` are its seeds, `rows` the rows to run, `extra` overrides for every run. With a folder of
    published `results`, seeds follow the planned analyses, and `published` seeds need no run.
    `seeds` are run now, and each group in `later` only if a part of a claim is undecided at the
    analysis before it. `counted` is the number of published seeds that count for the parts,
    `undecided` the number of primary parts of the study that are undecided.
    """

    def __init__(
        self,
        study: Study,
        scale: str = SMOKE,
        *,
        own: Sequence[int] | None = None,
        rows: Collection[str] | None = None,
        extra: Sequence[str] = (),
        results: Path | None = None,
    ) -> None:
        self.study, self.scale, self._rows, self._extra = study, scale, rows, extra
        self.own = study.scale(scale).seeds if own is None else own
        self.runs: dict[int, list[Run]] = {}
        self._known: dict[tuple[str, ...], dict[str, Any]] = {}
        first = self._compose(self.own)[self.own[0]]
        self.names = {rate_name(run.planned.row, run.planned.point) for run in first}
        self.published = [] if results is None else _published(results, study.name, scale, first)
        self.seeds, self.later = list[int](), list[list[int]]()
        self.counted = self.undecided = 0
        self.over = False
        self.plan(None if results is None else len(self.published))

    @property
    def name(self) -> str:
        return f"{self.study.name} scale={self.scale}"

    @property
    def needs_none(self) -> bool:
        """Whether the published seeds decide all parts, or no analysis is left."""
        enough = len(self.published) >= len(self.own)
        return not self.seeds or (enough and not self.undecided)

    def plan(self, counted: int | None) -> None:
        """Plan seeds for the analyses, given `counted` published ones, or the study's (None)."""
        if counted is None:
            self.seeds, self.later = [s for s in self.own if s not in self.published], []
        else:
            self.counted = counted
            self.seeds, self.later = seeds_by_analyses(self.own, self.published, counted=counted)
        self.runs = self._compose([*self.seeds, *chain.from_iterable(self.later)])

    def asked(self) -> list[Run]:
        return [run for seed in self.seeds for run in self.runs[seed]]

    def _compose(self, seeds: Sequence[int]) -> dict[int, list[Run]]:
        runs: dict[int, list[Run]] = {}
        planned = self.study.planned(self.scale, seeds=seeds, rows=self._rows, extra=self._extra)
        for run in runs_of(planned, self._known):
            runs.setdefault(run.planned.seed, []).append(run)
        return runs


def _published(results: Path, study: str, scale: str, runs: Sequence[Run]) -> list[int]:
    """Return the seeds with all runs published; `runs` are the runs of one seed."""
    seeds = {run.folder.parent.name: set[int]() for run in runs}
    for record in filter(None, pack(results / study / scale).records.values()):
        label = record.run_id.removesuffix(f"-seed{record.seed}")
        seeds.get(label, set()).add(record.seed)
    return sorted(set.intersection(*seeds.values()))


def seeds_by_analyses(
    seeds: Sequence[int], published: Collection[int] = (), *, counted: int | None = None
) -> tuple[list[int], list[list[int]]]:
    """Return the seeds to run for the next planned analysis, and for each later analysis.

    The study's own `seeds` come first. `counted` published seeds count, by default all.
    """
    have = len(published) if counted is None else counted
    wanted = chain(seeds, (seed for seed in count(1) if seed not in seeds))
    free = (seed for seed in wanted if seed not in published)
    new = list(islice(free, max(0, max(ANALYSES[-1], len(seeds)) - have)))
    ends = [number - have for number in ANALYSES if number > have and number >= len(seeds)]
    ends = ends or [len(new)]
    parts = [new[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return parts[0], parts[1:]


class Queue(Plan):
    """The order in which the runs of several jobs are started.

    Args:
        jobs: in the order to run them; a job that is `over` starts no runs, but its complete seeds
            are known.
        analyze: returns the number of a job's undecided parts; None adds no seeds.
        whole: called with a job and its complete seeds, at once and when another is complete.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        analyze: Callable[[Job], int] | None,
        whole: Callable[[Job, list[int]], object],
    ) -> None:
        self.jobs, self._analyze, self._whole = jobs, analyze, whole
        self._runs: dict[Path, Run] = {}
        self._cells: dict[Path, Cell] = {}
        for job in jobs:
            for run in chain.from_iterable(job.runs.values()):
                self._runs.setdefault(run.folder, run)
                if not job.over:
                    cell = run.cell(f"{job.study.name} {run.planned.name}")
                    self._cells.setdefault(run.folder, cell)
        self.done = {folder for folder, run in self._runs.items() if run.has_ended(run.record())}
        self.before = len(self.done)
        self.failed: set[Path] = set()
        self._running: set[Path] = set()
        for job in jobs:
            self._whole(job, self.whole_seeds(job))
            self._reach_analyses(job)

    def next(self) -> Cell | None:
        for job in self.jobs:
            seeds = sorted(job.seeds, key=lambda seed: not self._begun(job, seed))
            for run in (run for seed in seeds for run in job.runs[seed] if not job.over):
                if run.folder not in self.done | self.failed | self._running:
                    self._running.add(run.folder)
                    return self._cells[run.folder]
        return None

    def ended(self, done: Ended) -> None:
        folder = done.cell.folder
        self._running.discard(folder)
        run = self._runs[folder]
        if done.status or not run.has_ended(run.record()):
            self.failed.add(folder)
            return
        self.done.add(folder)
        for job in self.jobs:
            for seed in list(job.seeds):
                own = any(run.folder == folder for run in job.runs[seed])
                if own and self._is_whole(job, seed):
                    self._whole(job, self.whole_seeds(job))
                    self._reach_analyses(job)

    @property
    def count(self) -> int:
        return len(self.done) - self.before + len(self.failed) + len(self.left())

    def whole_seeds(self, job: Job) -> list[int]:
        """Return the seeds of a job whose runs have all ended."""
        return [seed for seed in job.runs if self._is_whole(job, seed)]

    def left(self) -> list[Run]:
        """Return the runs still to be made, each once, except those that failed."""
        asked = {run.folder: run for job in self.jobs if not job.over for run in job.asked()}
        return [run for folder, run in asked.items() if folder not in self.done | self.failed]

    def _is_whole(self, job: Job, seed: int) -> bool:
        return all(run.folder in self.done for run in job.runs[seed])

    def _begun(self, job: Job, seed: int) -> bool:
        folders = {run.folder for run in job.runs[seed]}
        return bool(folders & (self.done | self._running)) and not folders <= self.done

    def _reach_analyses(self, job: Job) -> None:
        """At a planned analysis, end a job whose parts are decided, or add its next seeds."""
        while not job.over and all(self._is_whole(job, seed) for seed in job.seeds):
            if self._analyze is not None:
                job.undecided = self._analyze(job)
            if self._analyze is None or not job.undecided or not job.later:
                job.over = True
            else:
                job.seeds += job.later.pop(0)


def asked(words: Sequence[str], *, published: Path | None = None) -> list[Job]:
    """Return a job for each named study; an override with the prefix `STUDY:` applies only to it.

    With `published`, the folder of published studies, seeds follow the planned analyses and come
    after the published ones.
    """
    named = [word for word in words if "=" not in word]
    own: dict[str, list[str]] = {name: [] for name in named}
    if not named or len(own) < len(named):
        raise UserError("name each study once, such as normlab study run translation_norms")
    for override in (word for word in words if "=" in word):
        study, colon, _ = override.partition("=")[0].partition(":")
        if colon and study not in own:
            raise UserError(f"{override}: {study} is not among the named studies: {' '.join(own)}")
        for name in [study] if colon else named:
            own[name].append(override.removeprefix(f"{study}:") if colon else override)
    jobs: list[Job] = []
    for name in named:
        study, (given, extra) = load_study(name), taken_out(own[name])
        scale = given.get("scale", SMOKE)
        if published is not None and "seeds" in given:
            raise UserError("leave out seeds=: --until-decided plans the seeds of each analysis")
        seeds = read_seeds(given["seeds"]) if "seeds" in given else None
        rows = read_rows(given["rows"], study, scale) if "rows" in given else None
        jobs.append(Job(study, scale, own=seeds, rows=rows, extra=extra, results=published))
    return jobs


def taken_out(overrides: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split overrides into the values of `scale=`, `seeds=` and `rows=`, and the others."""
    pairs = [(each, each.partition("=")) for each in overrides]
    found = {_KEYS[key]: value for _, (key, _, value) in pairs if key in _KEYS}
    if whole := [key for _, (key, _, _) in pairs if key in _WHOLE]:
        raise UserError(f"{whole[0]}= is for normlab train; a study's settings are in its file")
    return found, written_out(in_full([each for each, (key, _, _) in pairs if key not in _KEYS]))


def read_rows(text: str, study: Study, scale: str) -> list[str]:
    """Return the rows of a scale selected by `rows=`, in the scale's order.

    A row is given by name or number; a list is `ln,bn` or, if names contain commas, `[ln,'bn,
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
            there = "; ".join(f"{number} {name}" for number, name in numbers.items())
            raise UserError(f"rows: {part!r} is not a row of scale={scale}; choose from {there}")
    found = {part if part in names else numbers[part] for part in parts}
    return [name for name in names if name in found]


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
