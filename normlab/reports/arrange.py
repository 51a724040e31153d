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
from typing import Any, NamedTuple

from normlab.records.labels import corpus_label, norm_label, placement_label
from normlab.records.pairs import varying, without
from normlab.records.record import Parts, RunRecord, parts
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
_ALSO = "valid/loss"
_LISTED = 8  # names that an error lists


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
        pairs = [(run.planned, run.record) for run in self.runs]
        return build(self.study, self.scale, pairs, found=True)


class _Place(NamedTuple):
    """An experiment: its row, its value of each axis, its runs by their seeds."""

    row: str
    at: Mapping[str, Any]
    members: Sequence[Run]

    @property
    def point(self) -> str:
        return " ".join(f"{axis}={_written(value)}" for axis, value in self.at.items())


def arranged(
    found: Sequence[Run], *, baseline: str | None = None, scores: Sequence[str] = ()
) -> Arranged:
    """Arrange runs: the baseline first, the other rows by the first score, best first.

    `baseline` names the row that the others are compared with, `scores` the columns. Curves are
    kept for `DRAWN` settings, unfinished ones first. Raises ValueError for a baseline that is no
    row and a score that no run has, naming those there are.
    """
    groups: dict[str, list[Run]] = {}
    for each in found:
        groups.setdefault(each.experiment, []).append(each)
    experiments = [sorted(own, key=lambda run: run.planned.seed) for own in groups.values()]
    columns = _columns([run.record for run in found if run.record is not None], scores)
    places = _places(experiments, baseline)
    merits: dict[str, float] = {}
    for place in places:
        merits.setdefault(place.row, _merit(place.members, columns))
    if baseline is not None and baseline not in merits:
        there = get_close_matches(baseline, merits, n=_LISTED) or [*merits][:_LISTED]
        raise ValueError(
            f"--baseline {baseline}: no row is called that; there are {'; '.join(there)}"
        )
    first = baseline or _usual(places)
    rows = sorted(merits, key=lambda row: (row != first, -merits[row]))
    places.sort(key=lambda place: (*place.at.values(), rows.index(place.row)))
    grid: dict[str, dict[str, tuple[str, ...]]] = {}
    for place in places:
        for axis, value in place.at.items():
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
    waiting = sorted(places, key=lambda place: not any(run.now for run in place.members))
    undrawn = {id(place.members) for place in waiting[DRAWN:]}
    runs = [
        replace(
            run,
            planned=Planned(place.row, place.point, run.planned.seed, ()),
            rows=() if id(place.members) in undrawn else run.rows,
        )
        for place in places
        for run in place.members
    ]
    scales = sorted({run.choice("scale") for run in found} - {"none"})
    return Arranged(study, ", ".join(scales), tuple(runs), len(undrawn))


def _merit(members: Sequence[Run], columns: Sequence[str]) -> float:
    """Return the mean of the first column over seeds that finished, the more the better."""
    ended = [run.record for run in members if run.record is not None and run.record.finished]
    found = [record.scores[columns[0]] for record in ended if columns[0] in record.scores]
    values = [each.value if each.higher_is_better else -each.value for each in found]
    mean = fmean(values) if values else math.nan
    return -math.inf if math.isnan(mean) else mean


def _places(experiments: Sequence[Sequence[Run]], baseline: str | None) -> list[_Place]:
    """Place experiments on a grid of numbers if they fill one, else on none."""
    tasks = [members[0].task for members in experiments]
    if len(set(tasks)) > 1:
        places: list[_Place] = []
        for task in dict.fromkeys(tasks):
            own = [each for each, of in zip(experiments, tasks, strict=True) if of == task]
            places += _named(own, [{"task": task}] * len(own))
        return places
    plain = _named(experiments, [{}] * len(experiments))
    if baseline in {place.row for place in plain} or not plain:
        return plain
    values = [parts(members[0].settings) for members in experiments]
    axes = _axes(values)
    points = [{keys[0]: at[keys[0]] for keys in axes} for at in varying(values)]
    grid = _named(experiments, points, [key for keys in axes for key in keys])
    reach: dict[str, set[str]] = {}
    for place in grid:
        reach.setdefault(place.row, set()).add(place.point)
    first = baseline if baseline in reach else _usual(grid)
    filled = {place.point for place in grid} in ([reach.get(first)] if first else reach.values())
    return grid if filled and len(reach) > 1 else plain


def _named(
    experiments: Sequence[Sequence[Run]],
    points: Sequence[Mapping[str, Any]],
    axes: Sequence[str] = (),
) -> list[_Place]:
    """Name the rows: experiments that differ only in keys of the axes share a row."""
    rests = [without(parts(members[0].settings), tuple(axes)) for members in experiments]
    firsts: dict[object, Mapping[str, Any]] = {}
    for rest, members in zip(rests, experiments, strict=True):
        firsts.setdefault(rest, _stripped(members[0].settings, axes))
    rows = dict(zip(firsts, names([*firsts.values()]), strict=True))
    return [
        _Place(rows[rest], at, members)
        for rest, at, members in zip(rests, points, experiments, strict=True)
    ]


def names(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name experiments: the norm, and what not all of them share."""
    found = [_names(config) for config in configs]
    vary = [n for n in range(1, 5) if len({each[n] for each in found}) > 1]
    like: dict[tuple[str, ...], list[int]] = {}
    for number, own in enumerate(found):
        like.setdefault(own, []).append(number)
    also = [""] * len(found)
    for numbers in like.values():
        for n, apart in zip(numbers, told_apart([configs[n] for n in numbers]), strict=True):
            also[n] = " ".join(f"{key}={value}" for key, value in apart.items())
    return [
        " ".join([own[0], *(own[n] for n in vary), apart]).strip()
        for own, apart in zip(found, also, strict=True)
    ]


def _names(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return norm, placement, task, corpus and batch."""
    choices = config.get("choices", {})
    size, tokens = config.get("batch_size"), config.get("max_tokens")
    batch = str(size) if size is not None else f"{tokens} tokens" if tokens is not None else "-"
    if (accumulate := config.get("accumulate") or 1) > 1:
        batch = f"{accumulate} x {batch}"
    placement, corpus = placement_label(choices, config), corpus_label(config)
    named = (norm_label(choices), placement, choices.get("task"), corpus, batch)
    return tuple(name or "-" for name in named)


def _stripped(config: Mapping[str, Any], axes: Sequence[str]) -> dict[str, Any]:
    """Return a config without the dotted keys of axes."""
    found = dict(config)
    for axis in axes:
        top, _, below = axis.partition(".")
        if not below:
            found.pop(top, None)
        elif isinstance(found.get(top), Mapping):
            found[top] = _stripped(found[top], [below])
    return found


def _axes(experiments: Sequence[Parts]) -> list[tuple[str, ...]]:
    """Return the keys of which an experiment was made with several numbers, all else equal.

    Keys that always have the same value are one axis, named by the shortest of them.
    """
    values = varying(experiments)
    together: dict[str, list[str]] = {}
    for key in sorted(values[0], key=lambda key: (len(key), key)):
        together.setdefault(repr([each[key] for each in values]), []).append(key)
    axes: list[tuple[str, ...]] = []
    for keys in map(tuple, together.values()):
        numbers = [at[keys[0]] for at in values]
        if any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
            continue
        rests: dict[object, set[float]] = {}
        for experiment, number in zip(experiments, numbers, strict=True):
            rests.setdefault(without(experiment, keys), set()).add(number)
        if any(len(found) > 1 for found in rests.values()):
            axes.append(keys)
    return axes


def _usual(places: Sequence[_Place]) -> str | None:
    """Return the row of the usual norm, if there is one."""
    return next((place.row for place in places if place.members[0].norm == USUAL), None)


def _columns(records: Sequence[RunRecord], scores: Sequence[str]) -> list[str]:
    """Return the scores to show: those asked for, else those of whole tests and the loss."""
    known = dict.fromkeys(name for record in records for name in record.scores)
    for name in scores:
        if name not in known:
            near = get_close_matches(name, known, n=5) or sorted(known)[:_LISTED]
            raise ValueError(
                f"--score {name}: no run has this score; there are {', '.join(near) or 'none'}"
            )
    if scores:
        return list(scores)
    tests = [name for name in known if name.startswith("test/") and name.count("/") == 1]
    usual = [name for name in _TESTS if name in tests] or tests[:1]
    return [*usual, _ALSO]


def _written(value: Any) -> str:
    """Write a value of an axis, without the digits that floating-point arithmetic adds."""
    return f"{value:.12g}" if isinstance(value, float) else str(value)
