"""Any runs as a study: which experiments are rows, and which keys are the axes of its grid.

An experiment is a row, and its seeds are joined. Where numbers are crossed with something else, as
in a sweep over norms and batch sizes, they are the axes of a grid: a row is then compared with the
baseline at the same numbers. Runs of several tasks are at points of their task.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from statistics import fmean
from typing import Any

from normlab.records.labels import corpus_label, norm_label, placement_label
from normlab.records.record import fingerprint
from normlab.reports.comparison import told_apart
from normlab.reports.runs import Run
from normlab.reports.study_table import build
from normlab.reports.table import Table
from normlab.studies import Planned, Study

DRAWN = 40
"""Settings whose curves a page has: no reader tells more lines apart."""
USUAL = "ln"
"""The norm that the others are compared with unless the user names another row."""
_TESTS = (
    *("test/bleu", "test/chrf", "test/mlm_accuracy", "test/nsp_accuracy"),
    *("test/bits_per_character", "test/accuracy"),
)
_LISTED = 8  # names that an error lists
_BATCH = ("batch_size", "max_tokens", "accumulate")
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Arranged:
    """Runs as the page of a study takes them: `scale` is "" where no run chose one.

    `undrawn` counts the settings without curves.
    """

    study: Study
    scale: str
    runs: tuple[Run, ...]
    undrawn: int

    @property
    def table(self) -> Table:
        """Return the table of the runs."""
        return build(self.study, self.scale, self.runs, found=True)


def arranged(
    found: Sequence[Run], *, baseline: str | None = None, scores: Sequence[str] = ()
) -> Arranged:
    """Arrange runs: the baseline first, the other rows by the first score, best first.

    `baseline` names the row that the others are compared with, `scores` the columns. Curves are
    kept for `DRAWN` settings, unfinished ones first. Raises ValueError for a baseline that is no
    row and a score that no run has, naming those there are.
    """
    experiments: dict[str, list[Run]] = {}
    for run in found:
        experiments.setdefault(fingerprint(run.settings), []).append(run)
    members = [sorted(own, key=lambda run: run.planned.seed) for own in experiments.values()]
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
    for (_, at), _ in settings:
        for axis, value in at.items():
            grid.setdefault(axis, {})[_written(value)] = ()
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
    waiting = sorted(settings, key=lambda each: not any(run.now for run in each[1]))
    drawn = {id(own) for _, own in waiting[:DRAWN]}
    runs: list[Run] = []
    for (row, at), own in settings:
        point = " ".join(f"{axis}={_written(value)}" for axis, value in at.items())
        for run in own:
            planned = Planned(row, point, run.planned.seed, ())
            runs.append(replace(run, planned=planned, rows=run.rows if id(own) in drawn else ()))
    scales = sorted({run.choice("scale") for run in found} - {"none"})
    return Arranged(study, ", ".join(scales), tuple(runs), len(settings) - len(drawn))


def _merit(runs: Sequence[Run], column: str) -> float:
    """Return the mean of a score over the seeds that finished, the more the better."""
    ended = [run.record for run in runs if run.record is not None and run.record.finished]
    scores = [record.scores[column] for record in ended if column in record.scores]
    values = [score.value * (1 if score.higher_is_better else -1) for score in scores]
    mean = fmean(values) if values else math.nan
    return -math.inf if math.isnan(mean) else mean


def _columns(runs: Sequence[Run], scores: Sequence[str]) -> list[str]:
    """Return the scores to show: those asked for, else those of whole tests and the loss."""
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
"""A row, and its value of each axis."""


def _places(configs: Sequence[Settings], baseline: str | None) -> list[_Place]:
    """Place experiments on a grid of numbers if they fill one, else on none."""
    tasks = [_label(config)[2] for config in configs]
    if len(set(tasks)) > 1:
        places: dict[int, _Place] = {}
        for task in dict.fromkeys(tasks):
            own = [n for n, of in enumerate(tasks) if of == task]
            rows = names([configs[n] for n in own])
            places |= {n: (row, {"task": task}) for n, row in zip(own, rows, strict=True)}
        return [places[n] for n in range(len(configs))]
    plain = [(row, dict[str, Any]()) for row in names(configs)]
    apart = told_apart(configs)
    axes = _axes(configs, apart)
    if not axes or baseline in {row for row, _ in plain}:
        return plain
    points = [{key: own[key] for key in axes} for own in apart]
    rows = names(configs, axes)
    reach: dict[str, list[dict[str, Any]]] = {}
    for row, at in zip(rows, points, strict=True):
        reach.setdefault(row, []).append(at)
    usual = (row for row, each in zip(rows, configs, strict=True) if _label(each)[0] == USUAL)
    first = baseline if baseline in reach else next(usual, None)
    candidates = [reach[first]] if first else reach.values()
    filled = any(all(at in own for at in points) for own in candidates)
    return list(zip(rows, points, strict=True)) if filled and len(reach) > 1 else plain


def _axes(configs: Sequence[Settings], apart: Sequence[Settings]) -> list[str]:
    """Return the keys of which a norm was trained with several numbers, all else equal."""
    found: list[str] = []
    for key in apart[0] if apart else ():
        numbers = [own.get(key) for own in apart]
        if any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
            continue
        rests: dict[str, set[float]] = {}
        for config, own in zip(configs, apart, strict=True):
            rest = [_label(config)[:3], {name: own[name] for name in own if name != key}]
            rests.setdefault(repr(rest), set()).add(own[key])
        if any(len(values) > 1 for values in rests.values()):
            found.append(key)
    return found


def names(configs: Sequence[Settings], axes: Sequence[str] = ()) -> list[str]:
    """Name experiments: the norm, and what not all of them share, but for some axes."""
    labels = [_label(config)[: 3 if {*axes} & {*_BATCH} else 4] for config in configs]
    vary = [n for n in range(1, len(labels[0])) if len({each[n] for each in labels}) > 1]
    found = [" ".join([own[0], *(own[n] for n in vary)]) for own in labels]
    for label in dict.fromkeys(found):
        own = [n for n, each in enumerate(found) if each == label]
        for n, apart in zip(own, told_apart([configs[n] for n in own]), strict=True):
            said = (f"{key}={value}" for key, value in apart.items() if key not in axes)
            found[n] = " ".join([label, *said])
    return found


def _label(config: Settings) -> tuple[str, ...]:
    """Return norm, placement, task (with its corpus) and batch."""
    choices = config.get("choices", {})
    size, tokens = config.get("batch_size"), config.get("max_tokens")
    batch = str(size) if size is not None else f"{tokens} tokens" if tokens is not None else "-"
    if (accumulate := config.get("accumulate") or 1) > 1:
        batch = f"{accumulate} x {batch}"
    task = "/".join(filter(None, (choices.get("task"), corpus_label(config))))
    return norm_label(choices), placement_label(choices, config) or "-", task or "-", batch


def _written(value: Any) -> str:
    """Write a value of an axis, without the digits that floating-point arithmetic adds."""
    return f"{value:.12g}" if isinstance(value, float) else str(value)
