"""Tuning: trials of each value for a row, median pruning, and writing down the choice.

A bout is the tuning of one row at one point. Its values are tried one after the other, so that
pruning does not depend on how many runs there are at a time.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from statistics import fmean, median

import yaml

from normlab.metrics.glossary import SCORES, meaning
from normlab.records.files import atomic_write
from normlab.records.store import METRICS_FILE, read_rows, series
from normlab.studies.loop import Cell, Ended
from normlab.studies.runs import Run
from normlab.studies.study import Tuning

PRUNED_FILE = "pruned.json"
"""Marks a run that was stopped as hopeless: the score, the step and the value that decided it."""
FIRST = 2
"""No trial is pruned before this many trials of the same row have finished."""


@dataclass
class Trial:
    """The trial of one value; `status` is finished, pruned, diverged or failed.

    `score` is the mean over seeds, None unless finished. `step` is where it was pruned or diverged,
    and `last` is the last score before that.
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


Seen = dict[tuple[int, int], float]
"""The validation scores of a trial by seed number and step; lower is better."""


def worse_than_median(seen: Seen, others: Sequence[Seen], warmup: int) -> bool:
    """Return whether to prune a trial: its best score so far is above the median of the others.

    `others` are the scores of the trials that ran to their end or diverged, compared at the trial's
    last step. Nothing is pruned before step `warmup` of the first seed, nor with fewer than `FIRST`
    others (the median pruner of Golovin et al. 2017).
    """
    if not seen or len(others) < FIRST:
        return False
    number, step = last = max(seen)
    at_step = [other[last] for other in others if not math.isnan(other.get(last, math.nan))]
    if not at_step or (number == 0 and step < warmup):
        return False
    scores = [score for score in seen.values() if not math.isnan(score)]
    return not scores or min(scores) > median(at_step)


def best(scores: Mapping[str, float | None], sign: int) -> str | None:
    """Return the value with the best score, the first one on ties; None if there is no score."""
    found = {value: sign * score for value, score in scores.items() if score is not None}
    return min(found, key=lambda value: found[value]) if found else None


class Bout:
    """The tuning of a row at a point: a trial per value; `runs` has the runs of each, by seed."""

    def __init__(self, tuning: Tuning, runs: Mapping[str, Sequence[Run]]) -> None:
        self.tuning, self.runs = tuning, runs
        self.trials: list[Trial] = []
        self.running: Run | None = None
        self.sign = sign_of(tuning.score)
        config = next(iter(runs.values()))[0].config
        self._warmup = (config["budget"]["steps"] or 0) // 2
        self._seen: dict[str, Seen] = {value: {} for value in tuning.values}
        self._stop: tuple[int, float] | None = None

    @property
    def over(self) -> bool:
        """Return whether all values were tried, or a trial failed."""
        ended = len(self.trials) == len(self.tuning.values) and bool(self.trials[-1].status)
        return ended or self.failed

    @property
    def failed(self) -> bool:
        """Return whether a trial could not be carried out, so that nothing can be chosen."""
        return any(trial.status == "failed" for trial in self.trials)

    @property
    def chosen(self) -> str | None:
        """Return the value with the best mean, the first one on ties; None until all were tried."""
        if not self.over or self.failed:
            return None
        return best({trial.value: trial.score for trial in self.trials}, self.sign)

    def next(self) -> Run | None:
        """Return the run to start; None if all have ended or one is running."""
        while not (self.over or self.running):
            if not self.trials or self.trials[-1].status:
                self.trials.append(Trial(self.tuning.values[len(self.trials)]))
            trial, self._stop = self.trials[-1], None
            run = self.runs[trial.value][len(trial.runs)]
            if not self._take_in(run, trial):
                self.running = run
                return run
        return None

    def hopeless(self) -> bool:
        """Return whether to stop the running run, judging by its validations so far."""
        if self.running is None:
            return False
        scores = self._read(self.running)
        ran = [each for each in self.trials if each.status in ("finished", "diverged")]
        others = [self._seen[each.value] for each in ran]
        seen = self._seen[self.trials[-1].value]
        if scores and worse_than_median(seen, others, self._warmup):
            self._stop = scores[-1]
        return self._stop is not None

    def ended(self, done: Ended) -> None:
        run, self.running = self.running, None
        assert run is not None, "a run that ended had begun"
        if self._stop is not None and not run.has_ended(run.record()):
            with atomic_write(run.folder / PRUNED_FILE) as file:
                file.write(json.dumps([self.tuning.score, *self._stop]) + "\n")
        else:
            (run.folder / PRUNED_FILE).unlink(missing_ok=True)
        trial = self.trials[-1]
        if not self._take_in(run, trial):
            trial.status, trial.reason = "failed", done.said

    def _take_in(self, run: Run, trial: Trial) -> bool:
        """Add the results of a run to its trial; return False if the run is still to be made."""
        record, scores = run.record(), self._read(run)
        stopped = _pruned(run.folder, self.tuning.score)
        if stopped is not None and (self._stop is not None or not run.rerun):
            trial.status, (trial.step, trial.last) = "pruned", stopped
        elif record is None or not run.has_ended(record):
            return False
        trial.runs.append("/".join(run.folder.parts[-2:]))
        if record is None:
            return True
        trial.seconds += record.budget.wall_seconds
        changes = " with changes" if record.environment.get("dirty") else ""
        commit = f"{record.environment.get('commit')}{changes}"
        trial.commits += [] if commit in trial.commits else [commit]
        if trial.status == "pruned":
            return True
        score = record.scores.get(self.tuning.score)
        if not record.finished:
            trial.status, trial.step = "diverged", record.outcome.step
            trial.reason = record.outcome.reason or ""
            trial.last = scores[-1][1] if scores else None
        elif score is None or score.higher_is_better == (self.sign > 0):
            there = ", ".join(name for name in record.scores if name.startswith("valid/"))
            trial.status = "failed"
            trial.reason = f"no score {self.tuning.score} as in the glossary: there are {there}"
        else:
            trial.seeds[str(record.seed)] = score.value
            if len(trial.seeds) == len(self.tuning.seeds):
                trial.status, trial.score = "finished", fmean(trial.seeds.values())
        return True

    def _read(self, run: Run) -> list[tuple[int, float]]:
        """Return the validation scores of the last trial's run by step; add them to `_seen`."""
        path = run.folder / METRICS_FILE
        scores = series(read_rows(path), self.tuning.score) if path.is_file() else []
        number, seen = self.tuning.seeds.index(run.planned.seed), self._seen[self.trials[-1].value]
        for step, value in scores:
            seen.setdefault((number, step), self.sign * value)
        return scores


def _pruned(folder: Path, score: str) -> tuple[int, float] | None:
    """Return the step and value at which a run was pruned by this score; None if it was not."""
    try:
        by, step, value = json.loads((folder / PRUNED_FILE).read_text("utf-8"))
    except (OSError, ValueError, TypeError):
        return None
    return (int(step), float(value)) if by == score else None


class Trials:
    """The plan of a tuning: in each bout, one trial after the other."""

    def __init__(self, bouts: Sequence[Bout]) -> None:
        self.bouts = bouts
        self.cells: list[Cell] = []
        for bout in bouts:
            for value, runs in bout.runs.items():
                for run in runs:
                    at = run.planned
                    words = (at.row, at.point, f"{bout.tuning.key}={value}", f"seed={at.seed}")
                    self.cells.append(run.cell(" ".join(filter(None, words))))
        self.count = len(self.cells)

    def next(self) -> Cell | None:
        # The bout with the fewest trials so far comes first.
        for bout in sorted(self.bouts, key=lambda bout: len(bout.trials)):
            if (run := bout.next()) is not None:
                return next(cell for cell in self.cells if cell.folder == run.folder)
        return None

    def ended(self, done: Ended) -> None:
        self._bout(done.cell).ended(done)

    def hopeless(self, cell: Cell) -> bool:
        return self._bout(cell).hopeless()

    def _bout(self, cell: Cell) -> Bout:
        running = ((bout, bout.running) for bout in self.bouts)
        return next(bout for bout, run in running if run and run.folder == cell.folder)


def sign_of(score: str) -> int:
    """Return 1 for a score that is better lower, -1 for higher; raises ValueError for others."""
    known = meaning(score)
    if known is None or known.better == "-":
        names = ", ".join(name for name, each in SCORES.items() if each.better != "-")
        raise ValueError(
            f"{score} is no score with a direction in normlab/metrics/glossary.py: tune by {names}"
        )
    return 1 if known.better == "less" else -1


def with_rates(text: str, scale: str, rates: Mapping[str, Sequence[str] | None]) -> str:
    """Return the text of a study's file with these rates for a scale and nothing else changed.

    None removes the rates of a row. Raises ValueError if the scale is written in braces.
    """
    wanted = yaml.safe_load(text)
    before = wanted["scales"][scale].pop("rates", None) or {}
    after = {name: list(of) for name, of in {**before, **rates}.items() if of is not None}
    if after:
        wanted["scales"][scale]["rates"] = after
    lines = (text.rstrip("\n") + "\n").splitlines(keepends=True)
    heading = re.compile(rf"  {re.escape(scale)}:\s*(#.*)?\n")
    first = next((n + 1 for n, line in enumerate(lines) if heading.fullmatch(line)), None)
    if first is None:
        raise ValueError(f"scales.{scale}: write one key per line")
    last = first + len(_deeper(lines, first, 4))
    keys = {lines[n].split(":")[0]: n for n in range(last - 1, first - 1, -1)}
    start = end = keys.get("    rates", keys.get("    tuning", last))
    head = "    rates:\n"
    if "    rates" in keys:
        end = start + 1 + len(_deeper(lines, start + 1, 6))
        head = lines[start] if end > start + 1 else head
    block = [
        f"      {_scalar(name)}: [{', '.join(map(_scalar, values))}]\n"
        for name, values in after.items()
    ]
    lines[start:end] = [head, *block] if block else []
    changed = "".join(lines)
    assert yaml.safe_load(changed) == wanted, "only the rates of one scale change"
    return changed


def _deeper(lines: Sequence[str], start: int, indent: int) -> list[str]:
    """Return the lines from `start` on that are indented by at least `indent`."""
    return [*takewhile(lambda line: line.startswith(" " * indent), lines[start:])]


def _scalar(text: str) -> str:
    """Format a text as YAML, quoted only if it would otherwise be read back differently."""
    try:
        plain = yaml.safe_load(f"[{text}]") == [text] and yaml.safe_load(f"{text}: 1") == {text: 1}
    except (yaml.YAMLError, TypeError):
        plain = False
    return text if plain else json.dumps(text)
