"""The trials of a tuning: each value's result, the choice, and its entry in the study's file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

import yaml

from normlab.errors import UserError
from normlab.metrics.glossary import SCORES, meaning
from normlab.records.record import RunRecord
from normlab.studies.study import Tuning
from normlab.studies.study_runs import StudyRun


@dataclass(frozen=True)
class TuningTrial:
    """The runs for one value, one per seed; `status` is diverged if any of them diverged.

    `score` is the mean over seeds, None if any diverged; `step` is the step of the first
    divergence. `first_loss` is the mean loss of the first steps, None if a record does not have it.
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
class TuningCell:
    """The tuning of a row at a point: the runs of each value, one per seed."""

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
        """Return the value with the best mean; None if some are untried or all diverged."""
        if len(trials) < len(self.runs):
            return None
        return best_value(
            {trial.value: trial.score for trial in trials}, sign_of(self.tuning.score)
        )


def _trial(
    value: str, runs: tuple[str, ...], records: Sequence[RunRecord], score: str
) -> TuningTrial:
    seconds = sum(record.budget.wall_seconds for record in records)
    commits = tuple(dict.fromkeys(commit for record in records for commit in _commits(record)))
    firsts = [record.first_loss for record in records if record.first_loss is not None]
    first = fmean(firsts) if len(firsts) == len(records) else None
    for record in records:
        if not record.finished:
            step = record.outcome.step
            return TuningTrial(value, "diverged", None, step, {}, seconds, commits, runs, first)
        if score not in record.scores:
            available = ", ".join(name for name in record.scores if name.startswith("valid/"))
            raise UserError(f"{record.run_id}: no score {score}; available: {available}")
    seeds = {str(record.seed): record.scores[score].value for record in records}
    mean = fmean(seeds.values())
    return TuningTrial(value, "finished", mean, None, seeds, seconds, commits, runs, first)


def _commits(record: RunRecord) -> list[str]:
    changes = " with changes" if record.environment.get("dirty") else ""
    return [f"{commit}{changes}" for commit in record.commits]


def best_value(scores: Mapping[str, float | None], sign: int) -> str | None:
    """Return the value with the best score, the first in a tie; None if there is no score."""
    losses = {value: sign * score for value, score in scores.items() if score is not None}
    return min(losses, key=lambda value: losses[value]) if losses else None


def sign_of(score: str) -> int:
    """Return 1 if a lower score is better, -1 if a higher one is; UserError if neither is."""
    known = meaning(score)
    if known is None or known.better == "-":
        names = ", ".join(name for name, each in SCORES.items() if each.better != "-")
        raise UserError(
            f"{score} is not a score with a direction in normlab/metrics/glossary.py; use {names}"
        )
    return 1 if known.better == "less" else -1


def with_rates(text: str, scale: str, rates: Mapping[str, Sequence[str] | None]) -> str:
    """Return the text of a study's file with only these rates of a scale changed.

    None removes a row's rates. Raises UserError if the scale is written in braces. The places come
    from YAML's parser, and all other text stays as it is; a YAML writer would rewrap lines.
    """
    content, text = yaml.safe_load(text), text.rstrip("\n") + "\n"
    before = content["scales"][scale].pop("rates", None) or {}
    after = {name: list(of) for name, of in {**before, **rates}.items() if of is not None}
    if after:
        content["scales"][scale]["rates"] = after
    size = _entries(_entries(yaml.compose(text))["scales"].value)[scale].value
    if size.flow_style:
        raise UserError(f"scales.{scale}: write one key per line")
    lines, entries = text.splitlines(keepends=True), _entries(size)
    comment = ""
    if (old := entries.get("rates")) is not None:  # replace them
        start, stop = old.key.start_mark.line, _end(old.value)
        if not old.value.flow_style:
            comment = lines[start][old.key.end_mark.column + 1 :].rstrip()
    else:  # insert before `tuning`, or at the end
        start = entries["tuning"].key.start_mark.line if "tuning" in entries else _end(size)
        stop = start
    indent = " " * next(iter(entries.values())).key.start_mark.column
    new = [f"{indent}rates:{comment}\n"] if after else []
    for name, values in after.items():
        new.append(f"{indent}  {_scalar(name)}: [{', '.join(map(_scalar, values))}]\n")
    changed = "".join([*lines[:start], *new, *lines[stop:]])
    if yaml.safe_load(changed) != content:
        raise UserError(f"scales.{scale}: rates cannot be written here without changing other keys")
    return changed


class _Entry(NamedTuple):
    """The nodes of an entry of a YAML mapping, which know their places in the text."""

    key: Any
    value: Any


def _entries(mapping: Any) -> dict[str, _Entry]:
    return {key.value: _Entry(key, value) for key, value in mapping.value}


def _end(node: Any) -> int:
    """Return the line after a node; a block ends with its last entry, not at the next word."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(node, yaml.MappingNode) else last)
    return node.end_mark.line + (node.end_mark.column > 0)


def _scalar(text: str) -> str:
    """Format a string as YAML, with quotes only if YAML would otherwise read it differently."""
    try:
        plain = yaml.safe_load(f"[{text}]") == [text] and yaml.safe_load(f"{text}: 1") == {text: 1}
    except (yaml.YAMLError, TypeError):
        plain = False
    return text if plain else json.dumps(text)
