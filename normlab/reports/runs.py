"""Any runs as a study: which experiments are rows, and which keys are the axes of its grid.

An experiment is a row, and its seeds are joined. Where runs cross numbers with something else, as a
sweep over norms and batch sizes does, the numbers are the axes of a grid: a row is then compared
with the baseline at the same numbers. Runs of several tasks stand at points of their task alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from normlab.records.fingerprint import Parts, parts, varying, without
from normlab.records.labels import corpus_label
from normlab.records.record import RunRecord
from normlab.reports.evidence import NOT_ENDED, Evidence
from normlab.reports.figures.runs import Run, names, together
from normlab.studies import Planned, Study

DRAWN = 40
"""Settings whose curves a page has: no reader tells more lines apart."""
_USUAL = "ln"  # the norm that the others are compared with, where nobody says otherwise
_TESTS = (
    *("test/bleu", "test/chrf", "test/mlm_accuracy", "test/nsp_accuracy"),
    *("test/bits_per_character", "test/accuracy"),
)
_ALSO = "valid/loss"
_NAMED = 8  # names that an error lists
_SPARSE = 4  # times as many points as experiments, from which on numbers are no grid


@dataclass(frozen=True)
class Found:
    """A run as it was found: its `name`, the address of its record from the page, what it does.

    `now` is what its `progress.json` says while it goes on.
    """

    name: str
    run: Run
    place: str | None = None
    now: Mapping[str, Any] | None = None
    folder: Path | None = None


@dataclass(frozen=True)
class Arranged:
    """Runs as the page of a study takes them; `undrawn` counts settings without their curves."""

    study: Study
    scale: str
    evidence: tuple[Evidence, ...]
    undrawn: int


@dataclass(frozen=True)
class _Cell:
    """An experiment: its row, its value of each axis, its runs by their seeds."""

    row: str
    at: Mapping[str, Any]
    members: Sequence[Found]

    @property
    def point(self) -> str:
        return " ".join(f"{axis}={_written(value)}" for axis, value in self.at.items())

    @property
    def going_on(self) -> bool:
        return any(each.now is not None for each in self.members)


def arranged(
    found: Sequence[Found], *, baseline: str | None = None, scores: Sequence[str] = ()
) -> Arranged:
    """Arrange runs.

    `baseline` names the row that the others are compared with, `scores` the columns. Curves are
    kept of `DRAWN` settings, first of those that go on. Raises ValueError for a baseline that is no
    row and a score that no run has, naming those there are.
    """
    groups: dict[str, list[Found]] = {}
    for each in found:
        groups.setdefault(each.run.experiment, []).append(each)
    experiments = [sorted(members, key=lambda each: each.run.seed) for members in groups.values()]
    cells = _cells(experiments, baseline)
    rows = list(dict.fromkeys(cell.row for cell in cells))
    first = _first(cells, baseline) if cells else ""
    rows.sort(key=lambda row: row != first)
    cells.sort(key=lambda cell: (*cell.at.values(), rows.index(cell.row)))
    grid: dict[str, dict[str, tuple[str, ...]]] = {}
    for cell in cells:
        for axis, value in cell.at.items():
            grid.setdefault(axis, {})[_written(value)] = ()
    ended = [each.run.record for each in found if each.run.record is not None]
    study = Study(
        name="runs",
        description="",
        document="",
        table="Runs",
        claims=(),
        rows={row: () for row in rows},
        grid={axis: dict(sorted(values.items(), key=_by_size)) for axis, values in grid.items()},
        columns=tuple(_columns(ended, scores)),
        figures={},
        scales={},
    )
    drawn = {id(cell) for cell in sorted(cells, key=lambda cell: not cell.going_on)[:DRAWN]}
    evidence = [
        _evidence(each, cell, drawn=id(cell) in drawn) for cell in cells for each in cell.members
    ]
    scale = ", ".join(sorted({each.run.choice("scale") for each in found})) or "none"
    return Arranged(study, scale, tuple(evidence), len(cells) - len(drawn))


def _evidence(found: Found, cell: _Cell, *, drawn: bool) -> Evidence:
    run = found.run
    return Evidence(
        Planned(cell.row, cell.point, run.seed, ()),
        run.record,
        found.place,
        run.rows if drawn else (),
        state=NOT_ENDED.alone if found.now is None else "running",
        config=run.config,
        name=found.name,
        now=found.now,
        folder=found.folder,
    )


def _cells(experiments: Sequence[Sequence[Found]], baseline: str | None) -> list[_Cell]:
    if not experiments:
        return []
    tasks = [_task(members[0].run) for members in experiments]
    if len(set(tasks)) > 1:
        cells: list[_Cell] = []
        for task in dict.fromkeys(tasks):
            own = [each for each, of in zip(experiments, tasks, strict=True) if of == task]
            cells += _named(own, [{"task": task}] * len(own))
        return cells
    values = [parts(members[0].run.config) for members in experiments]
    axes = _axes(values)
    places = [{keys[0]: at[keys[0]] for keys in axes} for at in varying(values)]
    cells = _named(experiments, places, [key for keys in axes for key in keys])
    plain = _named(experiments, [{}] * len(experiments))
    rows, experiment_rows = ({cell.row for cell in each} for each in (cells, plain))
    if baseline in experiment_rows - rows:
        return plain
    return cells if _is_grid(cells, baseline if baseline in rows else None) else plain


def _named(
    experiments: Sequence[Sequence[Found]],
    places: Sequence[Mapping[str, Any]],
    keys: Sequence[str] = (),
) -> list[_Cell]:
    """Name the rows: experiments that differ in some keys alone, those of axes, share a row."""
    axes = tuple(keys)
    rests = [without(parts(each[0].run.config), axes) for each in experiments]
    firsts = dict(zip(reversed(rests), reversed(experiments), strict=True))
    runs = [
        replace(firsts[rest][0].run, config=_stripped(firsts[rest][0].run.config, axes))
        for rest in dict.fromkeys(rests)
    ]
    rows = dict(zip(dict.fromkeys(rests), names([[run] for run in runs]), strict=True))
    return [
        _Cell(rows[rest], at, members)
        for rest, at, members in zip(rests, places, experiments, strict=True)
    ]


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
    """Return the keys of which an experiment was made with several numbers, all else alike.

    Keys that always have the same value are one axis, named by the first of them.
    """
    values = varying(experiments)
    axes: list[tuple[str, ...]] = []
    for keys in together(values):
        numbers = [at[keys[0]] for at in values]
        rests: dict[tuple[str, ...], set[Any]] = {}
        for experiment, number in zip(experiments, numbers, strict=True):
            rests.setdefault(without(experiment, keys), set()).add(
                number if _is_number(number) else None
            )
        if all(map(_is_number, numbers)) and any(len(found) > 1 for found in rests.values()):
            axes.append(keys)
    return axes


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_grid(cells: Sequence[_Cell], baseline: str | None) -> bool:
    """Tell whether several rows stand at points, the baseline at each of them."""
    first = baseline or _usual(cells)
    points = {cell.point for cell in cells}
    sizes = [len({cell.at[axis] for cell in cells}) for axis in cells[0].at]
    return (
        len({cell.row for cell in cells}) > 1
        and points == {cell.point for cell in cells if cell.row == first}
        and math.prod(sizes) <= _SPARSE * len(cells)
    )


def _usual(cells: Sequence[_Cell]) -> str:
    """Return the row of the usual norm, else the first one."""
    return next((c.row for c in cells if c.members[0].run.norm == _USUAL), cells[0].row)


def _first(cells: Sequence[_Cell], baseline: str | None) -> str:
    """Return the row that is compared with; ValueError naming the rows there are."""
    rows = list(dict.fromkeys(cell.row for cell in cells))
    if baseline is not None and baseline not in rows:
        near = get_close_matches(baseline, rows, n=_NAMED) or rows[:_NAMED]
        raise ValueError(f"--baseline {baseline}: no row is called that; there are {_list(near)}")
    return baseline or _usual(cells)


def _columns(records: Sequence[RunRecord], scores: Sequence[str]) -> list[str]:
    """Return the scores to show: those asked for, else those of whole tests and the loss."""
    known = dict.fromkeys(name for record in records for name in record.scores)
    for name in scores:
        if name not in known:
            near = get_close_matches(name, known, n=_NAMED) or list(known)[:_NAMED]
            raise ValueError(f"--score {name}: no run has this score; there are {_list(near)}")
    if scores:
        return list(scores)
    main = dict.fromkeys(name for record in records for name in record.main_scores)
    tests = [name for name in main if name.startswith("test/")]
    usual = [name for name in _TESTS if name in tests] or tests[:1]
    return [*usual, *([_ALSO] if _ALSO in known else [])]


def _task(run: Run) -> str:
    corpus = corpus_label(run.config)
    return run.task if corpus is None else f"{run.task}/{corpus}"


def _written(value: Any) -> str:
    """Write a value of an axis; what arithmetic left behind its digits is not its name."""
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _by_size(item: tuple[str, Any]) -> tuple[float, str]:
    try:
        return float(item[0]), item[0]
    except ValueError:
        return math.inf, item[0]


def _list(names: Sequence[str]) -> str:
    return "; ".join(names) or "none"
