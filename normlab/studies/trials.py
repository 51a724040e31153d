"""The trials of a tuning: the result of each value, and the choice of one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from normlab.errors import UserError
from normlab.metrics.glossary import SCORES, metric
from normlab.records.record import RunRecord
from normlab.studies.study import Tuning
from normlab.studies.study_runs import StudyRun


@dataclass(frozen=True)
class TuningTrial:
    """The runs with one value, one per seed. `status` is diverged if any of them diverged.

    `score` is the mean over seeds, or None if any diverged, and `step` is the step of the first
    divergence. `first_loss` is the mean loss of the first steps, or None if a record does not have
    it.
    """

    value: str
    status: str
    score: float | None = None
    step: int | None = None
    seeds: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    commits: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    first_loss: float | None = None


@dataclass(frozen=True)
class ValueTrials:
    """The trials of a row at a point: the runs of each value, one per seed."""

    tuning: Tuning
    runs: Mapping[str, Sequence[StudyRun]]

    def trials(self) -> list[TuningTrial]:
        """Return the trials of all values whose runs have all ended."""
        trials: list[TuningTrial] = []
        for value, runs in self.runs.items():
            records = [record for run in runs if run.has_ended(record := run.record()) and record]
            if len(records) == len(runs):
                names = tuple("/".join(run.folder.parts[-2:]) for run in runs)
                trials.append(_trial(value, names, records, self.tuning.score))
        return trials

    def chosen(self, trials: Sequence[TuningTrial]) -> str | None:
        """Return the value with the best mean, or None if some are untried or all diverged."""
        if len(trials) < len(self.runs):
            return None
        return best_value(
            {trial.value: trial.score for trial in trials}, sign_of(self.tuning.score)
        )


def _trial(
    value: str, names: tuple[str, ...], records: Sequence[RunRecord], score: str
) -> TuningTrial:
    """Return the trial of a value from the records of its runs, which have ended."""
    firsts = [record.first_loss for record in records if record.first_loss is not None]
    trial = TuningTrial(
        value,
        status="finished",
        seconds=sum(record.budget.wall_seconds for record in records),
        commits=tuple(dict.fromkeys(name for record in records for name in record.commit_names)),
        runs=names,
        first_loss=fmean(firsts) if len(firsts) == len(records) else None,
    )
    for record in records:
        if not record.finished:
            return replace(trial, status="diverged", step=record.outcome.step)
        if score not in record.scores:
            available = ", ".join(name for name in record.scores if name.startswith("valid/"))
            raise UserError(f"{record.run_id} has no score {score}; available: {available}")
    seeds = {str(record.seed): record.scores[score].value for record in records}
    return replace(trial, score=fmean(seeds.values()), seeds=seeds)


def best_value(scores: Mapping[str, float | None], sign: int) -> str | None:
    """Return the value with the best score (in a tie, the first), or None if there is no score."""
    losses = {value: sign * score for value, score in scores.items() if score is not None}
    return min(losses, key=lambda value: losses[value]) if losses else None


def sign_of(score: str) -> int:
    """Return 1 if a lower score is better and -1 if a higher one is. Raise UserError otherwise."""
    known = metric(score)
    if known is None or known.better == "-":
        names = ", ".join(name for name, each in SCORES.items() if each.better != "-")
        raise UserError(
            f"{score} is not a score with a direction in normlab/metrics/glossary.py; use {names}"
        )
    return 1 if known.better == "less" else -1
