"""A study at a scale, with its runs by seed."""

from collections.abc import Callable, Collection, Sequence
from itertools import chain

from normlab.formats import counted
from normlab.records.point import place_text
from normlab.studies.load import load_study, unchosen
from normlab.studies.study import SMOKE, Study
from normlab.studies.study_part import StudyPart, words_by_study
from normlab.studies.study_runs import StudyRun, each_folder_once, runs_of


class Job:
    """A study at a scale, with its runs by seed in the study's order.

    `rows` selects rows, and `extra` are overrides for every run.
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
        """Whether none of its runs are started, because their data are missing."""
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
        return {place_text(run.planned.row, run.planned.point) for run in self.runs}

    @property
    def complete_seeds(self) -> list[int]:
        """Return the seeds whose runs have all ended according to their records."""
        return [
            seed
            for seed, runs in self.by_seed.items()
            if all(run.has_ended(run.record()) for run in runs)
        ]

    def left(self, complain: Callable[[str], object]) -> list[StudyRun]:
        """Return the runs that have not ended. Pass a line per damaged record to `complain`."""
        records = [(run, run.record(complain)) for run in self.runs]
        return [run for run, record in records if not run.has_ended(record)]

    def progress(self, left: Sequence[StudyRun]) -> str:
        """Return a line with the number of runs, the grid they fill, and how many are `left`."""
        keys = [run.planned.key for run in self.runs]
        rows, points, seeds = (len(set(each)) for each in zip(*keys, strict=True))
        shape = ", ".join([counted(rows, "row"), counted(points, "point"), counted(seeds, "seed")])
        grid = f"{counted(len(keys), 'run')} ({shape})"
        went = f"{len(keys) - len(left)} ended, {len(left)} to go"
        return f"{self.study.name} at scale={self.scale}: {grid}, {went}"

    def untuned(self) -> str | None:
        """Return a warning if runs that may count have no rate although their study tunes it."""
        unchosen_rates = unchosen(self.study, self.scale) if self.counts else ()
        names = ", ".join(name for name in unchosen_rates if name in self.settings)
        chooses = f"choose it with normlab study tune {self.study.name} scale={self.scale}"
        missing = f"{self.name}: no learning rate has been chosen for {names}; {chooses}"
        return missing if names else None

    @property
    def counts(self) -> bool:
        """Whether its runs may count as evidence. Runs of a smoke test or a pilot never count."""
        return self.scale != SMOKE and not self.study.scale(self.scale).pilot


def jobs_of(words: Sequence[str]) -> list[Job]:
    """Return a job for each study in `words`, whose overrides select its part (`StudyPart`).

    Raises UserError if a run has ended without tests that its study asks for.
    """
    jobs: list[Job] = []
    for name, overrides in words_by_study(words).items():
        study = load_study(name)
        scale, rows, seeds, extra = StudyPart.of(study, overrides)
        jobs.append(Job(study, scale, seeds=seeds, rows=rows, extra=extra))
    for run in each_folder_once(run for job in jobs for run in job.runs).values():
        run.check_tests()
    return jobs
