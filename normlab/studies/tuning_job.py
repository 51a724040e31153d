"""The tuning of a study at a scale: its trials, the choice, and the files with both."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from normlab.config.registry import paths
from normlab.errors import UserError
from normlab.records.files import atomic_write, only_writer
from normlab.records.point import place_text
from normlab.studies import published_trials
from normlab.studies.load import load_study, tuning_of
from normlab.studies.process_pool import RunToStart
from normlab.studies.rates_file import with_rates
from normlab.studies.study import Study, Tuning, points_of
from normlab.studies.study_part import StudyPart, words_by_study
from normlab.studies.study_runs import StudyRun, runs_of
from normlab.studies.trials import ValueTrials, sign_of

_ABOUT_MACHINE = ("device=", "data_dir=", "runs_dir=", "observe.")
"""Settings of a tuning that may differ from the study's plan, because they change no experiment."""


@dataclass(frozen=True)
class TuningJob:
    """A study at a scale, its tuning, and the trials of each row and point.

    `folder` has the published results of all studies.
    """

    study: Study
    scale: str
    tuning: Tuning
    by_place: dict[tuple[str, str], ValueTrials]
    folder: Path

    @property
    def left(self) -> list[StudyRun]:
        """Return the runs that have not ended."""
        by_value = [runs for trials in self.by_place.values() for runs in trials.runs.values()]
        runs = [run for runs_of_value in by_value for run in runs_of_value]
        return [run for run in runs if not run.has_ended(run.record())]

    def to_start(self) -> list[RunToStart]:
        """Return the runs that have not ended, each with the name to show."""
        runs: list[RunToStart] = []
        for run in self.left:
            planned = run.planned
            value = f"{self.tuning.key}={planned.tuned}"
            words = (planned.row, planned.point, value, f"seed={planned.seed}")
            runs.append(run.to_start(" ".join(filter(None, words))))
        return runs

    def results(self) -> dict[str, Any]:
        """Return the ended trials and the choices as they are published."""
        rows: list[dict[str, Any]] = []
        for (row, point), of_place in self.by_place.items():
            trials = of_place.trials()
            chosen = of_place.chosen(trials)
            plain = [asdict(trial) for trial in trials]
            rows.append({"row": row, "point": point, "chosen": chosen, "trials": plain})
        return {"tuning": structs.asdict(self.tuning), "rows": rows}

    def check_writable(self) -> None:
        """Raise UserError, before anything runs, if a choice could not be written."""
        self._study_text(dict.fromkeys(self.by_place, self.tuning.values[0]))
        self._with_published(self.results())

    def write(self, results: Mapping[str, Any]) -> tuple[Path, list[str]]:
        """Write the choices to the study's file, and every trial to the results.

        Returns the page of all trials, and the keys of rates that were removed because no value
        trains.
        """
        choices = {(row["row"], row["point"]): row["chosen"] for row in results["rows"]}
        name, file = self.study.name, study_file(self.study.name)
        # Two tunings may write to the same file; the lock keeps the rates of both.
        with only_writer(self.folder / name / file.name):
            text = self._study_text(choices)
            trials = {self.scale: self._with_published(results)}
            page = published_trials.publish(self.folder, name, trials)
            with atomic_write(file) as opened:
                opened.write(text)
        untrainable = [place_text(*place) for place, chosen in choices.items() if chosen is None]
        return page, [each for each in untrainable if each in self.study.scale(self.scale).rates]

    def _with_published(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return the trials together with the published trials of rows that are not being tuned."""
        size, path = self.study.scale(self.scale), self.folder / self.study.name / "tuning.json"
        places = [(row, point) for row in size.rows for point in points_of(size.grid)]
        before = published_trials.read(path).get(self.scale)
        return published_trials.with_others(results, before, places)

    def _study_text(self, choices: Mapping[tuple[str, str], str | None]) -> str:
        """Return the text of the study's file with these choices."""
        rates = {
            place_text(*place): [f"{self.tuning.key}={value}"] if value else None
            for place, value in choices.items()
        }
        file = study_file(self.study.name)
        try:
            return with_rates(file.read_text("utf-8"), self.scale, rates)
        except UserError as error:
            raise UserError(f"{file}: {error}") from None


def study_file(name: str) -> Path:
    """Return the path of a study's file."""
    return paths("study")[name]


def tuning_jobs(words: Sequence[str], folder: Path, *, write: bool) -> list[TuningJob]:
    """Return the tuning of each study in `words`, which may also contain settings for all trials.

    Raises UserError for `seeds=` or, with `write`, for a setting that would make the trials differ
    from the trials that the study plans.
    """
    jobs: list[TuningJob] = []
    for name, overrides in words_by_study(words).items():
        study = load_study(name)
        scale, rows, seeds, extra = StudyPart.of(study, overrides)
        if seeds is not None:
            raise UserError("the seeds of trials are in the study's tuning; omit seeds=")
        if write:
            _check_planned(study, extra)
        tuning = tuning_of(study, scale, load_study)
        sign_of(tuning.score)  # raises UserError if the score has no direction
        runs: dict[tuple[str, str], dict[str, list[StudyRun]]] = {}
        for run in runs_of(study.trials(scale, tuning, extra, rows=rows)):
            by_value = runs.setdefault(run.planned.row_and_point, {})
            by_value.setdefault(run.planned.tuned, []).append(run)
        by_place = {place: ValueTrials(tuning, by_value) for place, by_value in runs.items()}
        jobs.append(TuningJob(study, scale, tuning, by_place, folder))
    return jobs


def _check_planned(study: Study, settings: Sequence[str]) -> None:
    """Raise UserError for a setting that would change the trials that the study plans."""
    for setting in settings:
        if not setting.startswith(_ABOUT_MACHINE) and setting.partition("=")[0] not in study.grid:
            raise UserError(
                f"{setting} changes the trials that the study plans, so their choice would not be "
                "written; add --no-write, or put the setting into the study's tuning"
            )
