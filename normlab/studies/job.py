"""A study at a scale whose runs are to be made, and the arguments that name such jobs."""

from collections.abc import Callable, Collection, Sequence
from itertools import chain

import yaml

from normlab.config.experiments import EXPERIMENT
from normlab.config.overrides import in_full, written_out
from normlab.errors import UserError
from normlab.formats import counted
from normlab.studies.load import load_study, unchosen
from normlab.studies.study import SMOKE, Study, rate_name
from normlab.studies.study_runs import StudyRun, runs_of

_KEYS = {"scale": "scale", "seeds": "seeds", "seed": "seeds", "rows": "rows", "row": "rows"}
_WHOLE = (EXPERIMENT, "debug")  # short keys that only apply to a single run
_MOST_SEEDS = 1000  # at most this many seeds in one range


class Job:
    """A study at a scale: its runs by seed, in the study's order.

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
    def complete_seeds(self) -> list[int]:
        """Return the seeds whose runs have all ended, as their records show."""
        return [
            seed
            for seed, runs in self.by_seed.items()
            if all(run.has_ended(run.record()) for run in runs)
        ]

    def left(self, complain: Callable[[str], object]) -> list[StudyRun]:
        """Return the runs that have not ended; `complain` gets a line for each damaged record."""
        records = [(run, run.record(complain)) for run in self.runs]
        return [run for run, record in records if not run.has_ended(record)]

    def progress(self, left: Sequence[StudyRun]) -> str:
        """Return one line: the number of runs, the grid they fill, and how many are `left`."""
        planned = [run.planned for run in self.runs]
        rows, points, seeds = (len(set(of)) for of in list(zip(*planned, strict=True))[:3])
        shape = ", ".join([counted(rows, "row"), counted(points, "point"), counted(seeds, "seed")])
        grid = f"{counted(len(planned), 'run')} ({shape})"
        went = f"{len(planned) - len(left)} ended, {len(left)} to go"
        return f"{self.study.name} at scale={self.scale}: {grid}, {went}"

    def untuned(self) -> str | None:
        """Return a warning if runs that may count lack a learning rate that their study tunes."""
        unchosen_rates = unchosen(self.study, self.scale) if self.counts else ()
        names = ", ".join(name for name in unchosen_rates if name in self.settings)
        chooses = f"choose it with normlab study tune {self.study.name} scale={self.scale}"
        missing = f"{self.name}: no learning rate has been chosen for {names}; {chooses}"
        return missing if names else None

    @property
    def counts(self) -> bool:
        """Whether its runs may count as evidence; runs of a smoke test or a pilot never do."""
        return self.scale != SMOKE and not self.study.scale(self.scale).pilot


def jobs_of(words: Sequence[str]) -> list[Job]:
    """Return a job for each named study; `STUDY:key=value` is only for that study."""
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
