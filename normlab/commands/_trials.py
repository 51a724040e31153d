"""Trials of a tuning: which is next, which is hopeless, what each came to.

A bout is a row at a point: its values are tried one after the other, so that what is pruned does
not depend on how many run at a time. Rows of several studies that are one experiment share a bout,
or, where they are tuned in different ways, the runs that they have in common.
"""

import json
import logging
import math
import warnings
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from normlab.commands._grid import Run
from normlab.metrics.glossary import SCORES, meaning
from normlab.records.atomic import atomic_write
from normlab.records.rows import METRICS_FILE, read_rows, series
from normlab.studies.tuning import Tuning
from normlab.sweep import Cell, Order

if TYPE_CHECKING:
    from normlab.records.record import RunRecord

PRUNED_FILE = "pruned.json"
"""In the folder of a run that was stopped as hopeless: by which score, at which step and value."""
FIRST = 2
"""Trials of a bout that are never pruned."""
_SEED_STEPS = 10**7  # Optuna counts the steps of a trial's second seed from here


@dataclass
class Trial:
    """What a value came to; `status` is finished, pruned, diverged or failed.

    `score` is the mean over seeds, None unless finished. `step` is the one at which it was pruned
    or diverged; then `last` is the last score that was seen.
    """

    value: str
    status: str = ""
    score: float | None = None
    step: int | None = None
    last: float | None = None
    reason: str = ""
    seeds: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    commits: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)


class Bout:
    """A row at a point, and the trials of its values, each of which has a run a seed."""

    def __init__(self, tuning: Tuning, runs: Mapping[str, Sequence[Run]]) -> None:
        self.tuning, self.runs = tuning, runs
        self.trials: list[Trial] = []
        self.at_work: Run | None = None
        self.sign = sign_of(tuning.score)
        self._optuna = _optuna_study(tuning, self._warmup())
        self._asked: Any = None
        self._stop: tuple[int, float] | None = None

    @property
    def over(self) -> bool:
        """Tell whether all values were tried."""
        ended = len(self.trials) == len(self.tuning.values) and bool(self.trials[-1].status)
        return ended or self.failed

    @property
    def failed(self) -> bool:
        """Tell whether a trial could not be carried out, so that nothing can be chosen."""
        return any(trial.status == "failed" for trial in self.trials)

    @property
    def chosen(self) -> str | None:
        """Return the value with the best mean, the first of equals; None before all were tried."""
        scored = [trial for trial in self.trials if trial.score is not None]
        if not self.over or self.failed or not scored:
            return None
        return min(scored, key=lambda trial: self.sign * (trial.score or 0.0)).value

    def next(self, others: Container[Path]) -> Run | None:
        """Return the run to begin; None where all have ended, or one is at work.

        `others` are the places of the runs that other bouts have at work.
        """
        while not (self.over or self.at_work):
            if not self.trials or self.trials[-1].status:
                self._begin()
            trial = self.trials[-1]
            run = self.runs[trial.value][len(trial.runs)]
            if run.place in others:
                return None
            if not self._take_in(run, trial):
                self.at_work, self._stop = run, None
                return run
        return None

    def hopeless(self) -> bool:
        """Tell whether the run at work is to be stopped, by its validations so far."""
        if self.at_work is None:
            return False
        seen = self._report(self.at_work)
        if seen and self._asked.should_prune():
            self._stop = seen[-1]
        return self._stop is not None

    def ended(self, cell: Cell) -> None:
        """Learn how the run at work has ended; what it came to is read from its folder."""
        run, self.at_work = self.at_work, None
        assert run is not None, "a run that ended had begun"
        trial = self.trials[-1]
        ended = run.has_ended(run.record())
        if ended or self._stop is not None:
            _note_pruned(run.place, self.tuning.score, None if ended else self._stop)
        if not self._take_in(run, trial):
            trial.status, trial.reason = "failed", cell.said or f"status {cell.status}"

    def _begin(self) -> None:
        self._stop = None
        self._asked = self._optuna.ask()
        value = self._asked.suggest_categorical(self.tuning.key, list(self.tuning.values))
        self.trials.append(Trial(value))

    def _take_in(self, run: Run, trial: Trial) -> bool:
        """Add what a run left to its trial; False where it is still to be made."""
        from optuna.trial import TrialState

        record = run.record()
        # By another score it may have been carried on since, which changes nothing for this one.
        stopped = _pruned(run.place, self.tuning.score)
        if stopped is not None and (self._stop is not None or not run.made_anew):
            self._report(run)
            trial.status, (trial.step, trial.last) = "pruned", stopped
            _account(trial, run, record)
            self._optuna.tell(self._asked, state=TrialState.PRUNED)
        elif record is not None and run.has_ended(record):
            self._finished(run, trial, record)
        else:
            return False
        return True

    def _finished(self, run: Run, trial: Trial, record: "RunRecord") -> None:
        seen = self._report(run)
        _account(trial, run, record)
        if not record.finished:
            trial.status, trial.step = "diverged", record.outcome.step
            trial.reason = record.outcome.reason or ""
            trial.last = seen[-1][1] if seen else None
            self._optuna.tell(self._asked, math.inf)
            return
        score = record.scores.get(self.tuning.score)
        if score is None:
            there = ", ".join(name for name in record.scores if name.startswith("valid/"))
            trial.status = "failed"
            trial.reason = f"no score {self.tuning.score} to tune by: there are {there}"
            return
        if score.higher_is_better == (self.sign > 0):
            trial.status = "failed"
            trial.reason = f"of {self.tuning.score} record and glossary name different directions"
            return
        trial.seeds[str(run.planned.seed)] = score.value
        if len(trial.seeds) == len(self.tuning.seeds):
            trial.status, trial.score = "finished", fmean(trial.seeds.values())
            self._optuna.tell(self._asked, self.sign * trial.score)

    def _report(self, run: Run) -> list[tuple[int, float]]:
        """Report the validations of a run to Optuna, once each; return them."""
        path = run.place / METRICS_FILE
        seen = series(read_rows(path), self.tuning.score) if path.is_file() else []
        offset = _SEED_STEPS * self.tuning.seeds.index(run.planned.seed)
        for step, value in seen:
            with warnings.catch_warnings():  # of a step that is reported again
                warnings.simplefilter("ignore")
                self._asked.report(self.sign * value, offset + step)
        return seen

    def _warmup(self) -> int:
        """Return the step before which nothing is pruned: half of the run."""
        config = next(iter(self.runs.values()))[0].config
        return (config["budget"]["steps"] or 0) // 2


class Trials(Order):
    """The order of the trials of all bouts: those of a bout one after the other.

    Args:
        bouts: each row at each point.
        runs: of all trials, by the numbers of their cells.
    """

    def __init__(self, bouts: Sequence[Bout], runs: Sequence[Run]) -> None:
        self.bouts, self.runs = bouts, runs
        self._numbers = {run.place: number for number, run in enumerate(runs)}
        self._at_work: dict[Path, Bout] = {}

    @property
    def count(self) -> int:
        """Return the runs of all trials."""
        return len(self.runs)

    def take(self) -> int | None:
        """Return the cell of the next trial, of the bout that has the most left."""
        for bout in sorted(self.bouts, key=lambda bout: len(bout.trials)):
            if (run := bout.next(self._at_work)) is not None:
                self._at_work[run.place] = bout
                return self._numbers[run.place]
        return None

    def ended(self, number: int, cell: Cell) -> None:
        """Learn how a trial has ended."""
        self._at_work.pop(self.runs[number].place).ended(cell)

    def hopeless(self, number: int) -> bool:
        """Tell whether a trial is to be pruned."""
        return self._at_work[self.runs[number].place].hopeless()


def sign_of(score: str) -> int:
    """Return 1 for a score that is better when lower, -1 for one that is better when higher.

    Raises ValueError where neither is known.
    """
    known = meaning(score)
    if known is None or known.better == "-":
        names = ", ".join(name for name, each in SCORES.items() if each.better != "-")
        why = "is no score in SCORES of" if known is None else "has no better direction in"
        raise ValueError(
            f"{score} {why} normlab/metrics/glossary.py: tune by one that has a direction: {names}"
        )
    return 1 if known.better == "less" else -1


def check_optuna() -> None:
    """Raise ValueError, with what to install, where Optuna is missing."""
    try:
        import optuna
    except ImportError:
        raise ValueError(
            "tuning needs Optuna, which is an optional part: pip install 'normlab[optuna]'"
        ) from None
    optuna.logging.set_verbosity(logging.WARNING)


def _optuna_study(tuning: Tuning, warmup: int) -> Any:
    """Return a study that tries the values in their order and prunes by the median.

    Optuna's grid sampler would draw their order, and with it what is pruned, at random.
    """
    import optuna

    with warnings.catch_warnings():  # older versions call asking and telling experimental
        warnings.simplefilter("ignore")
        study = optuna.create_study(
            direction="minimize",
            sampler=optuna.samplers.RandomSampler(seed=0),  # never asked: all values are queued
            pruner=optuna.pruners.MedianPruner(n_startup_trials=FIRST, n_warmup_steps=warmup),
        )
        for value in tuning.values:
            study.enqueue_trial({tuning.key: value})
    return study


def _account(trial: Trial, run: Run, record: "RunRecord | None") -> None:
    """Note a run with its trial: its name, time and commit."""
    trial.runs.append("/".join(run.place.parts[-2:]))
    if record is not None:
        trial.seconds += record.budget.wall_seconds
        commit = str(record.environment.get("commit"))
        commit += " with changes" if record.environment.get("dirty") else ""
        if commit not in trial.commits:
            trial.commits.append(commit)


def _note_pruned(place: Path, score: str, stopped: tuple[int, float] | None) -> None:
    """Note at which step and value of a score a run is hopeless; notes by other scores stay."""
    notes = {name: note for name, note in _notes(place).items() if "/" in name and name != score}
    if stopped is not None:
        notes[score] = dict(zip(("step", "score"), stopped, strict=True))
    if not notes:
        (place / PRUNED_FILE).unlink(missing_ok=True)
        return
    with atomic_write(place / PRUNED_FILE) as file:
        file.write(json.dumps(notes) + "\n")


def _pruned(place: Path, score: str) -> tuple[int, float] | None:
    """Return at which step and value of a score a run was pruned; None where it was not."""
    notes = _notes(place)
    try:
        found = notes.get(score, notes)  # older files have one note, and no name of a score
        return int(found["step"]), float(found["score"])
    except (ValueError, KeyError, TypeError):
        return None


def _notes(place: Path) -> dict[str, Any]:
    try:
        content = json.loads((place / PRUNED_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
