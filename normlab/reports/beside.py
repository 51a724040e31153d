"""Rows of `normlab compare` beside a baseline: their order, the paired difference, or why not.

A row is named by its norm, placement, task, corpus and batch, and where rows are alike in these by
what else sets them apart. What two rows differ in beyond that is told with their difference. Where
they trained for unlike budgets, or were tested in unlike ways, there is no difference to tell.
Seeds whose two runs were made on unlike data, by unlike code or in unlike arithmetic are left out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from normlab.metrics.spread import Interval, paired_interval
from normlab.records.aggregate import Cell
from normlab.records.alike import origin, settings, spelled
from normlab.reports.comparison import diverged_seeds, higher_is_better, values

CONFIDENCE = 0.95
DEFAULT_BASELINE = "ln"
# What names a row, by the keys of the config.
_NAMED = tuple(
    name
    for key in ("norm", "placement", "batch_size", "max_tokens", "accumulate")
    for name in spelled(key)
)
_NAMED_BELOW = tuple(f"{name}." for name in _NAMED)
# How long a run trains, and what of it is tested how.
_FIXED = ("budget", "task.test_search", "validate.test", "validate.average")


@dataclass(frozen=True)
class Beside:
    """A row beside the baseline: the mean of `row - baseline` over the seeds of both.

    `interval` needs two pairs. Without a `mean`, `reason` says why. `unlike` has what the two
    differ in beyond their names, by key, the row's value first. `left_out` has the seeds of both
    that are no pair, by what is unlike in their two runs.
    """

    mean: float | None = None
    interval: Interval | None = None
    pairs: int = 0
    reason: str | None = None
    unlike: Mapping[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])
    left_out: Mapping[str, Sequence[int]] = field(default_factory=dict[str, list[int]])


def headline(cells: Sequence[Cell], scores: Sequence[str]) -> str:
    """Return the first of the scores that any row has; the first of all where none has any."""
    there = (name for name in scores if any(cell.score(name) is not None for cell in cells))
    return next(there, scores[0])


def best_first(cells: Sequence[Cell], score: str) -> list[Cell]:
    """Sort rows by a score in its own direction; those without a number come last."""

    def place(cell: Cell) -> tuple[bool, float]:
        found = cell.score(score)
        if found is None or math.isnan(found.mean):
            return True, 0.0
        return False, -found.mean if higher_is_better(cell, score) else found.mean

    return sorted(cells, key=place)


def choose(cells: Sequence[Cell], labels: Sequence[str], wanted: str | None) -> Cell | None:
    """Return the baseline among rows that stand best first; None where no label fits.

    Without a wish it is the best row of layer norm, or the best of all. A label that is wished for
    is one or more words of a row's label, and fits one row alone: else ValueError.
    """
    if wanted is None:
        return next((cell for cell in cells if cell.norm == DEFAULT_BASELINE), cells[0])
    words = set(wanted.split())
    fitting = [n for n, label in enumerate(labels) if words <= set(label.split())]
    exact = [n for n in fitting if labels[n].split() == wanted.split()]
    if len(exact or fitting) > 1:
        fits = ", ".join(f"'{labels[n]}'" for n in exact or fitting)
        raise ValueError(f"--baseline {wanted}: fits {len(fitting)} rows: {fits}; name one")
    return cells[(exact or fitting)[0]] if fitting else None


def beside(row: Cell, baseline: Cell, score: str) -> Beside:
    """Compare a row with the baseline in a score."""
    unlike = beyond_names(row, baseline)
    fixed = [f"{key} {own}, the baseline's {its}" for key, (own, its) in obstacles(unlike).items()]
    alike, left_out = _pairs(row, baseline)
    left, right = (
        {seed: value for seed, value in values(cell, score).items() if seed in alike}
        for cell in (row, baseline)
    )
    reason = (
        "; ".join(fixed)
        or _unlike_runs(row, baseline, alike, left_out)
        or _unlike_scores(row, baseline, score, left, right)
    )
    if reason is not None:
        return Beside(reason=reason, unlike=unlike)
    gaps = [left[seed] - right[seed] for seed in sorted(left.keys() & right.keys())]
    interval = paired_interval(left, right, confidence=CONFIDENCE) if len(gaps) > 1 else None
    return Beside(sum(gaps) / len(gaps), interval, len(gaps), unlike=unlike, left_out=left_out)


def beyond_names(a: Cell, b: Cell) -> dict[str, tuple[Any, Any]]:
    """Return what two rows differ in beyond what names them.

    Nothing for rows that are named alike, of which the settings are what is compared.
    """
    every = settings(a.parts, b.parts, ())
    found = {key: pair for key, pair in every.items() if not f"{key}.".startswith(_NAMED_BELOW)}
    return _told(a, b, found) if len(found) < len(every) else {}


def compared(a: Cell, b: Cell) -> dict[str, tuple[Any, Any]]:
    """Return what two rows that are named alike differ in; nothing for other rows."""
    every = settings(a.parts, b.parts, ())
    return {} if any(f"{key}.".startswith(_NAMED_BELOW) for key in every) else _told(a, b, every)


def _told(a: Cell, b: Cell, found: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Put one option for all that is below it, and leave out what repeats another key.

    So `schedule.lr`, which is `optim.lr` again.
    """
    told: dict[str, tuple[Any, Any]] = {}
    marks: set[tuple[str, str]] = set()
    for key, pair in found.items():
        group = key.partition(".")[0]
        options = a.choice(group), b.choice(group)
        if options[0] != options[1]:
            key, pair = group, options
        mark = key.rpartition(".")[2], repr(pair)
        if mark not in marks:
            marks.add(mark)
            told[key] = pair
    return told


def obstacles(unlike: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Return those of the settings that differ which leave no difference to tell."""
    below = tuple(f"{fixed}." for fixed in _FIXED)
    return {key: pair for key, pair in unlike.items() if key in _FIXED or key.startswith(below)}


def _pairs(row: Cell, baseline: Cell) -> tuple[set[int], dict[str, list[int]]]:
    """Return the seeds whose two runs are alike, and the others by what these are unlike in."""
    others = {record.seed: record for record in baseline.records if record.finished}
    alike: set[int] = set()
    left_out: dict[str, list[int]] = {}
    for record in row.records:
        if not record.finished or record.seed not in others:
            continue
        reason = origin(record, others[record.seed])
        if reason is None:
            alike.add(record.seed)
        else:
            left_out.setdefault(reason, []).append(record.seed)
    return alike, left_out


def _unlike_runs(
    row: Cell, baseline: Cell, alike: set[int], left_out: Mapping[str, Sequence[int]]
) -> str | None:
    if left_out and not alike:
        return "; ".join(f"{reason} ({_spaced(seeds)})" for reason, seeds in left_out.items())
    diverged = [
        f"{count} of {len(cell.seeds)} of the {name}"
        for cell, name in ((row, "row"), (baseline, "baseline"))
        if (count := diverged_seeds(cell))
    ]
    if diverged:
        return f"seeds diverged: {', '.join(diverged)}; the others are no fair sample"
    if not alike:
        return f"no seed in common that finished ({_seeds(row)}; {_seeds(baseline)})"
    return None


def _unlike_scores(
    row: Cell, baseline: Cell, score: str, left: Mapping[int, float], right: Mapping[int, float]
) -> str | None:
    common = left.keys() & right.keys()
    if not common:
        return f"no {score} on {'either side' if not (left or right) else 'both sides'}"
    if row.signature(score) != baseline.signature(score):
        return f"{score} was scored in unlike ways"
    if not all(math.isfinite(side[seed]) for side in (left, right) for seed in common):
        return f"{score} is not finite in every seed"
    return None


def _seeds(cell: Cell) -> str:
    return _spaced([record.seed for record in cell.records if record.finished]) or "none"


def _spaced(seeds: Sequence[int]) -> str:
    return " ".join(map(str, seeds))
