"""Decides which charts a study has: curves over training, probes, scores over a numeric axis."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from normlab.records.rows import series
from normlab.reports.evidence import Evidence
from normlab.reports.figures import loss
from normlab.reports.figures.over_training import PANELS
from normlab.reports.figures.seeds import Spread, finite, spread
from normlab.reports.figures.style import LOG_FROM
from normlab.reports.html.charts import Ended, Panel, Series
from normlab.reports.row import Row
from normlab.reports.table import Table
from normlab.studies import Study

_LOSSES = (loss.TRAIN, loss.VALID)
# Figures of training that are no result: what was set, and how fast this machine was.
_UNSHOWN = ("train/tokens_per_second",)
_AXES = {"batch_size": "batch size (sequences)", "model.depth": "depth (layers a stack)"}
_TITLES = {panel.figure: (panel.title, panel.unit) for panel in PANELS}


@dataclass(frozen=True)
class Group:
    """Charts that belong together; those of `more` are shown on request."""

    shown: tuple[Panel, ...]
    more: tuple[Panel, ...]

    @property
    def all(self) -> tuple[Panel, ...]:
        """Return all charts."""
        return (*self.shown, *self.more)


_Runs = Mapping[tuple[str, str], Sequence[Evidence]]


def learning(study: Study, evidence: Iterable[Evidence]) -> Group:
    """Return the curves of losses and of the scores that the study's table shows, then others."""
    runs = _grouped(evidence)
    columns = [f"valid/{column.partition('/')[2]}" for column in study.columns]
    first = list(dict.fromkeys([*_LOSSES, *columns]))
    others = [name for name in _names(runs, "valid/", 1) if name not in first]
    return Group(_panels(runs, first), _panels(runs, others))


def stability(evidence: Iterable[Evidence]) -> Group:
    """Return the curves of gradients and of probes: those that say most, then all others."""
    runs = _grouped(evidence)
    first = [panel.figure for panel in PANELS]
    names = [*_names(runs, "stability/", 2), *_names(runs, "train/", 1)]
    others = [name for name in names if name not in (*first, *_LOSSES, *_UNSHOWN)]
    return Group(_panels(runs, first), _panels(runs, others))


def by_axis(study: Study, table: Table) -> dict[str, Group]:
    """Return, by each axis of the grid that is made of numbers, the scores of the table over it."""
    places = _places(study)
    found: dict[str, Group] = {}
    for axis in study.grid:
        numbers = {at: _number(values[axis]) for at, values in places.items()}
        if any(value is None for value in numbers.values()):
            continue
        here = {at: value for at, value in numbers.items() if value is not None}
        shown = [_axis_panel(axis, here, places, table, column) for column in table.columns]
        panels = tuple(panel for panel in shown if panel is not None)
        if panels:
            found[axis] = Group(panels, ())
    return found


def tokens(evidence: Iterable[Evidence]) -> list[dict[str, object]]:
    """Return how many tokens each setting had seen at its steps, for an axis of tokens."""
    seen: list[dict[str, object]] = []
    for (row, at), runs in _grouped(evidence).items():
        counts = {}
        for run in runs:  # of one setting all seeds see about as many
            counts = {**dict(series(run.rows, "tokens")), **counts}
        if counts:
            steps = sorted(counts)
            row_tokens = [round(counts[step]) for step in steps]
            seen.append({"row": row, "at": at, "steps": steps, "tokens": row_tokens})
    return seen


def _grouped(evidence: Iterable[Evidence]) -> _Runs:
    groups: dict[tuple[str, str], list[Evidence]] = {}
    for each in evidence:
        groups.setdefault((each.planned.row, each.planned.point), []).append(each)
    return groups


def _names(runs: _Runs, prefix: str, slashes: int) -> list[str]:
    return sorted(
        {
            name
            for members in runs.values()
            for run in members
            for row in run.rows
            for name in row
            if name.startswith(prefix) and name.count("/") == slashes
        }
    )


def _panels(runs: _Runs, names: Iterable[str]) -> tuple[Panel, ...]:
    panels = [_panel(runs, name) for name in names]
    return tuple(panel for panel in panels if panel.series)


def _panel(runs: _Runs, name: str) -> Panel:
    lines: list[Series] = []
    for (row, at), members in runs.items():
        points = spread([finite(series(run.rows, name)) for run in members])
        if points:
            lines.append(Series(row, at, at, points))
    if name in loss.TITLES:
        records = [run.record for members in runs.values() for run in members]
        title, unit = loss.TITLES[name], loss.loss_unit(r for r in records if r is not None)
    else:
        title, unit = _TITLES.get(name, (name, ""))
    return Panel(
        name,
        title,
        unit,
        tuple(lines),
        ended=_ended(runs, name) if name == loss.TRAIN else (),
        log_from=_log_from(name),
    )


def _log_from(name: str) -> float | None:
    """Return from which ratio of its values a figure is drawn on a logarithmic axis, if ever."""
    if name in _LOSSES:
        return loss.LOG_FROM
    falls = any(word in name for word in ("loss", "nll", "perplexity"))
    return LOG_FROM if falls or not name.startswith("valid/") else None


def _ended(runs: _Runs, name: str) -> tuple[Ended, ...]:
    ended: list[Ended] = []
    for (row, at), members in runs.items():
        for run in members:
            values = list(finite(series(run.rows, name)).values())
            if run.record is not None and run.record.outcome.status == "diverged" and values:
                end = run.record.outcome.step
                ended.append(Ended(row, at, run.record.seed, end, values[-1]))
    return tuple(ended)


def _places(study: Study) -> dict[str, dict[str, str]]:
    """Return the value of each axis by the names of all points of the grid."""
    places: dict[str, dict[str, str]] = {}
    for values in product(*study.grid.values()):
        pairs = dict(zip(study.grid, values, strict=True))
        places[_point(pairs)] = pairs
    return places


def _point(values: Mapping[str, str]) -> str:
    return " ".join(f"{axis}={value}" for axis, value in values.items())


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _axis_panel(
    axis: str,
    numbers: Mapping[str, float],
    places: Mapping[str, Mapping[str, str]],
    table: Table,
    column: str,
) -> Panel | None:
    """Return a score over an axis, a line a row and a small multiple a point of the other axes."""
    lines: dict[tuple[str, str], dict[float, tuple[str, Spread]]] = {}
    for row in table.rows:
        here = _score(row, column)
        if here is not None and row.point in numbers:
            facet = _point({key: v for key, v in places[row.point].items() if key != axis})
            lines.setdefault((row.name, facet), {})[numbers[row.point]] = (row.point, here)
    ticks = sorted({x for points in lines.values() for x in points})
    if len(ticks) < 2:
        return None
    made = [
        Series(
            row,
            facet,
            tuple(points[x][0] for x in sorted(points)),
            {x: points[x][1] for x in sorted(points)},
        )
        for (row, facet), points in lines.items()
    ]
    across = _AXES.get(axis, axis)
    return Panel(column, column, "", tuple(made), across=across, ticks=tuple(ticks), log_from=None)


def _score(row: Row, column: str) -> Spread | None:
    """Return what the table says of a score, and how far its seeds lie apart."""
    entry = row.entries[column]
    values = list(entry.values.values())
    if entry.summary is None or not all(math.isfinite(value) for value in values):
        return None
    return Spread(entry.summary.mean, min(values), max(values), entry.summary.n)
