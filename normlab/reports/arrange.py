"""Arranging any runs as a study: which experiments are rows, and which keys are grid axes.

A row is an experiment with its seeds joined. If numeric settings are crossed with something else,
as in a sweep over norms and batch sizes, they become the axes of a grid, and a row is compared with
the baseline at the same numbers. If the runs have several tasks, the task is the grid axis.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from statistics import fmean
from typing import Any, NamedTuple

from normlab.records.labels import corpus_label, norm_label, placement_label
from normlab.records.record import fingerprint
from normlab.reports.comparison import told_apart
from normlab.reports.runs import Run
from normlab.reports.study_table import build
from normlab.reports.table import Table
from normlab.studies import Planned, Study

USUAL = "ln"
"""The norm that the others are compared with unless the user names another row."""
_TESTS = (
    *("test/bleu", "test/chrf", "test/mlm_accuracy", "test/nsp_accuracy"),
    *("test/bits_per_character", "test/accuracy"),
)
_LISTED = 8  # the most names in an error message
_BATCH = {"batch_size", "max_tokens", "accumulate"}
Settings = Mapping[str, Any]


class Arranged(NamedTuple):
    """Runs in the form that a study's page takes; `scale` is "" if no run chose one."""

    study: Study
    scale: str
    runs: list[Run]

    @property
    def table(self) -> Table:
        """Return the table of the runs."""
        return build(self.study, self.scale, self.runs, found=True)


def arranged(
    found: Sequence[Run], *, baseline: str | None = None, scores: Sequence[str] = ()
) -> Arranged:
    """Arrange runs: the baseline first, then the other rows by the first score, best first.

    `baseline` names the row that the others are compared with, `scores` the columns. Raises
    ValueError, naming the choices, for a baseline that is no row or a score that no run has.
    """
    experiments: dict[str, list[Run]] = {}
    for run in found:
        experiments.setdefault(fingerprint(run.settings), []).append(run)
    members = [*experiments.values()]
    columns = _columns(found, scores)
    places = _places([own[0].settings for own in members], baseline)
    merits: dict[str, float] = {}
    for (row, _), own in zip(places, members, strict=True):
        merits.setdefault(row, _merit(own, columns[0]))
    if baseline is not None and baseline not in merits:
        there = get_close_matches(baseline, merits, n=_LISTED) or [*merits][:_LISTED]
        raise ValueError(
            f"--baseline {baseline}: no row is called that; there are {'; '.join(there)}"
        )
    usual = (row for (row, _), own in zip(places, members, strict=True) if own[0].norm == USUAL)
    first = baseline or next(usual, None)
    rows = sorted(merits, key=lambda row: (row != first, -merits[row]))
    settings = sorted(
        zip(places, members, strict=True),
        key=lambda each: (*each[0][1].values(), rows.index(each[0][0])),
    )
    grid: dict[str, dict[str, tuple[str, ...]]] = {}
    runs: list[Run] = []
    for (row, at), own in settings:
        words = [(axis, f"{v:.12g}" if isinstance(v, float) else str(v)) for axis, v in at.items()]
        for axis, value in words:
            grid.setdefault(axis, {})[value] = ()
        point = " ".join(map("=".join, words))
        for run in sorted(own, key=lambda run: run.planned.seed):
            runs.append(replace(run, planned=Planned(row, point, run.planned.seed, ())))
    study = Study(
        name="runs",
        description="",
        document="",
        table="Runs",
        claims=(),
        rows={row: () for row in rows},
        grid=grid,
        columns=tuple(columns),
        figures={},
        scales={},
    )
    scales = {run.settings.get("choices", {}).get("scale") for run in found} - {None, "none"}
    return Arranged(study, ", ".join(sorted(scales)), runs)


def _merit(runs: Sequence[Run], column: str) -> float:
    """Return a score's mean over the finished seeds, negated if lower is better."""
    ended = [run.record for run in runs if run.record is not None and run.record.finished]
    scores = [record.scores[column] for record in ended if column in record.scores]
    values = [score.value * (1 if score.higher_is_better else -1) for score in scores]
    mean = fmean(values) if values else math.nan
    return -math.inf if math.isnan(mean) else mean


def _columns(runs: Sequence[Run], scores: Sequence[str]) -> list[str]:
    """Return the scores to show: the requested ones, else the main test scores and the loss."""
    records = [run.record for run in runs if run.record is not None]
    known = dict.fromkeys(name for record in records for name in record.scores)
    for name in scores:
        if name not in known:
            near = get_close_matches(name, known, n=5) or sorted(known)[:_LISTED]
            raise ValueError(
                f"--score {name}: no run has this score; there are {', '.join(near) or 'none'}"
            )
    tests = [name for name in known if name.startswith("test/") and name.count("/") == 1]
    usual = [name for name in _TESTS if name in tests] or tests[:1]
    return list(scores) or [*usual, "valid/loss"]


# Rows and points ----------------------------------------------------------------------------------

_Place = tuple[str, dict[str, Any]]
"""A row, and its value on each axis."""


def _places(configs: Sequence[Settings], baseline: str | None) -> list[_Place]:
    """Return the row and grid point of each experiment; without axes unless they fill a grid."""
    norms, _, tasks, _ = zip(*map(_label, configs), strict=True) if configs else ((), (), (), ())
    if len({*tasks}) > 1:
        found: dict[int, _Place] = {}
        for task in dict.fromkeys(tasks):
            own = [n for n, of in enumerate(tasks) if of == task]
            rows = names([configs[n] for n in own])
            found |= {n: (row, {"task": task}) for n, row in zip(own, rows, strict=True)}
        return [found[n] for n in range(len(configs))]
    plain: list[_Place] = [(row, {}) for row in names(configs)]
    apart = told_apart(configs)
    axes = _axes(configs, apart)
    if not axes or baseline in dict(plain):
        return plain
    points = [{key: own[key] for key in axes} for own in apart]
    places = [*zip(names(configs, axes), points, strict=True)]
    reach: dict[str, list[dict[str, Any]]] = {}
    for row, at in places:
        reach.setdefault(row, []).append(at)
    usual = [row for (row, _), norm in zip(places, norms, strict=True) if norm == USUAL]
    first = [baseline] if baseline in reach else usual[:1] or [*reach]
    filled = any(all(at in reach[row] for at in points) for row in first)
    return places if filled and len(reach) > 1 else plain


def _axes(configs: Sequence[Settings], apart: Sequence[Settings]) -> list[str]:
    """Return the numeric keys that take several values for one norm, all else being equal."""
    found: list[str] = []
    for key in apart[0] if apart else ():
        if any(
            isinstance(own[key], bool) or not isinstance(own[key], int | float) for own in apart
        ):
            continue
        numbers: dict[str, set[float]] = {}
        for config, own in zip(configs, apart, strict=True):
            rest = [_label(config)[:3], {name: own[name] for name in own if name != key}]
            numbers.setdefault(repr(rest), set()).add(own[key])
        if any(len(values) > 1 for values in numbers.values()):
            found.append(key)
    return found


def names(configs: Sequence[Settings], axes: Sequence[str] = ()) -> list[str]:
    """Name experiments by the norm and by what differs among them, leaving out some axes."""
    labels = [_label(config)[: 3 if _BATCH & {*axes} else 4] for config in configs]
    vary = [n for n in range(1, 4) if len({each[n : n + 1] for each in labels}) > 1]
    found = [" ".join([own[0], *(own[n] for n in vary)]) for own in labels]
    for label in dict.fromkeys(found):
        own = [n for n, each in enumerate(found) if each == label]
        for n, apart in zip(own, told_apart([configs[n] for n in own]), strict=True):
            said = (f"{key}={value}" for key, value in apart.items() if key not in axes)
            found[n] = " ".join([label, *said])
    return found


def _label(config: Settings) -> tuple[str, str, str, str]:
    """Return norm, placement, task (with its corpus) and batch."""
    choices = config.get("choices", {})
    size, tokens = config.get("batch_size"), config.get("max_tokens")
    batch = str(size) if size is not None else f"{tokens} tokens" if tokens is not None else "-"
    if (accumulate := config.get("accumulate") or 1) > 1:
        batch = f"{accumulate} x {batch}"
    task = "/".join(filter(None, (choices.get("task"), corpus_label(config))))
    return norm_label(choices), placement_label(choices, config) or "-", task or "-", batch
