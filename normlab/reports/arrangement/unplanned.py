"""Arranges runs that no study planned as rows of tables, at the points of a grid if they form one.

A row is an experiment with all its seeds. If numeric settings or placements are crossed with norms,
as in a sweep over norms and batch sizes, they become the axes of a grid, and a row is compared with
the baseline at the same grid point. If the runs have several tasks, the task is the grid axis.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from statistics import fmean
from typing import Any, NamedTuple

from normlab.config.registry import norm_name
from normlab.errors import UserError
from normlab.records.grouping import grouped
from normlab.records.packed import Key
from normlab.records.point import point_text
from normlab.records.record import MAIN_SCORES, fingerprint
from normlab.reports.arrangement.arrangement import Arrangement, recorded_data
from normlab.reports.arrangement.grid import grid_of
from normlab.reports.arrangement.recipes import recipes
from normlab.reports.arrangement.row_names import RowName, row_names, rows_called
from normlab.reports.arrangement.settings import Settings, differing_settings
from normlab.reports.runs import Run

BASELINE_NORM = "ln"
"""The baseline norm, unless the user names another row."""
_TESTS = tuple(f"test/{name}" for name in MAIN_SCORES if name not in ("loss", "perplexity"))

Seeds = Sequence[Run]
"""The runs of an experiment, which differ only in their seed."""


class GridRow(NamedTuple):
    """An experiment's row in a table, its value on each axis, and its runs."""

    row: RowName
    at: Mapping[str, Any]
    runs: Seeds


def arrange_by_recipe(
    runs: Sequence[Run],
    *,
    baseline: str | None = None,
    scores: Sequence[str] = (),
    order: Sequence[str] = (),
) -> list[Arrangement]:
    """Arrange runs in one table per recipe. See `arrange` for the arguments and the errors.

    `baseline` and the rows in `order` need not be in every table.
    """
    experiments = _experiments(runs)
    _columns(runs, scores)  # raises for a score that no run has
    tables: list[Arrangement] = []
    refused: list[UserError] = []
    for recipe, indices in recipes([Settings.of(seeds[0]) for seeds in experiments]):
        members = [experiments[n] for n in indices]
        columns = scores or _columns([run for seeds in members for run in seeds], ())
        try:
            table = _arrangement(members, columns, baseline, order)
        except UserError as error:
            refused.append(error)
            table = _arrangement(members, columns, None, order)
        tables.append(replace(table, recipe=recipe))
    if len(refused) == len(tables):
        raise refused[0]
    _check_order(order, tables)
    return tables


def arrange(
    runs: Sequence[Run],
    *,
    baseline: str | None = None,
    scores: Sequence[str] = (),
    order: Sequence[str] = (),
) -> Arrangement:
    """Arrange runs in one table: the baseline, the rows in `order`, then the others, best first.

    `baseline` names the row that the others are compared with, `scores` are the columns, and
    `order` lists rows or their norms. The other rows are sorted by the first score. Raises
    UserError, listing the choices, for a baseline or a word in `order` that is not a row, or for a
    score that no run has.
    """
    table = _arrangement(_experiments(runs), _columns(runs, scores), baseline, order)
    _check_order(order, [table])
    return table


def _experiments(runs: Sequence[Run]) -> list[Seeds]:
    return [*grouped((fingerprint(run.settings), run) for run in runs).values()]


def _arrangement(
    experiments: Sequence[Seeds],
    columns: Sequence[str],
    baseline: str | None,
    order: Sequence[str],
) -> Arrangement:
    """Arrange experiments in one table. A run may lack some of the columns."""
    grid_rows = _grid_rows(experiments, baseline)
    rows = _ordered_rows(grid_rows, _baseline(grid_rows, baseline), order, columns[0])
    grid_rows.sort(key=lambda each: (*each.at.values(), rows.index(each.row)))
    axes = dict.fromkeys(axis for each in grid_rows for axis in each.at)
    runs = [run for each in grid_rows for run in _at_place(each)]
    scales = {run.settings.get("choices", {}).get("scale") for run in runs} - {None, "none"}
    return Arrangement(
        rows={row.text: row for row in rows},
        columns=tuple(columns),
        axes=tuple(axes),
        runs=runs,
        data_name=recorded_data([run.record for run in runs if run.record is not None]),
        scale=", ".join(sorted(scales)),
    )


def _at_place(grid_row: GridRow) -> list[Run]:
    """Return an experiment's runs in order of seed, each labelled with its row and grid point."""
    values = {
        axis: f"{v:.12g}" if isinstance(v, float) else str(v) for axis, v in grid_row.at.items()
    }
    point = point_text(values)
    by_seed = sorted(grid_row.runs, key=lambda run: run.key.seed)
    return [replace(run, key=Key(grid_row.row.text, point, run.key.seed)) for run in by_seed]


# Rows ---------------------------------------------------------------------------------------------


def _grid_rows(experiments: Sequence[Seeds], baseline: str | None) -> list[GridRow]:
    """Return each experiment's row and grid point.

    There is a grid only if some row has every point.
    """
    settings = [Settings.of(seeds[0]) for seeds in experiments]
    if len({each.label.task for each in settings}) > 1:
        return _rows_by_task(experiments, settings)
    plain = row_names(settings)
    grid = grid_of(settings)
    if grid is None or not grid.axes or baseline in {row.text for row in plain}:
        return [GridRow(row, {}, seeds) for row, seeds in zip(plain, experiments, strict=True)]
    names = row_names(settings, grid.swept)
    return [
        GridRow(row, grid.point(n), seeds)
        for n, (row, seeds) in enumerate(zip(names, experiments, strict=True))
    ]


def _rows_by_task(experiments: Sequence[Seeds], settings: Sequence[Settings]) -> list[GridRow]:
    """Return the rows of experiments on several tasks, with the task as the only axis.

    Rows are named separately for each task.
    """
    tasks = [each.label.task for each in settings]
    rows: dict[int, RowName] = {}
    for members in grouped((task, n) for n, task in enumerate(tasks)).values():
        rows |= zip(members, row_names([settings[n] for n in members]), strict=True)
    return [GridRow(rows[n], {"task": task}, experiments[n]) for n, task in enumerate(tasks)]


def _baseline(grid_rows: Sequence[GridRow], requested: str | None) -> RowName | None:
    """Return the row that others are compared with: the requested one, or the baseline norm's.

    If several rows match, returns the one with the most finished seeds and, among those, the one
    that shares the most settings with other rows. Returns None if no row is requested and none has
    the baseline norm. Raises UserError if the requested row does not exist.
    """
    rows = [each.row for each in grid_rows]
    called = rows_called(requested or BASELINE_NORM, rows)
    settings = [Settings.of(each.runs[0]) for each in grid_rows]
    differing = [*differing_settings(settings).values()]

    def suits(n: int) -> tuple[int, int]:
        records = [run.record for run in grid_rows[n].runs]
        ended = sum(record is not None and record.finished for record in records)
        return ended, sum(values.count(values[n]) for values in differing)

    candidates = [n for n, row in enumerate(rows) if row in called]
    if candidates:
        return rows[max(candidates, key=suits)]
    if requested is not None:
        raise UserError(f"--baseline {requested}: no such row{_available(requested, rows)}")
    return None


def _ordered_rows(
    grid_rows: Sequence[GridRow], first: RowName | None, order: Sequence[str], score: str
) -> list[RowName]:
    """Return the rows: `first`, those in the user's order, and the others with the best first."""
    merits = {each.row: _merit(each.runs, score) for each in reversed(grid_rows)}
    places: dict[RowName, int] = {}
    for n, word in enumerate(order):
        for row in rows_called(word, [*merits]):
            places.setdefault(row, n)
    return sorted(merits, key=lambda row: (row != first, places.get(row, len(order)), -merits[row]))


def _merit(runs: Seeds, column: str) -> float:
    """Return a score's mean over finished seeds, negated if lower is better.

    Returns -inf if no finished seed has the score.
    """
    ended = [run.record for run in runs if run.record is not None and run.record.finished]
    scores = [record.scores[column] for record in ended if column in record.scores]
    values = [score.value * (1 if score.higher_is_better else -1) for score in scores]
    return -math.inf if not values or math.isnan(mean := fmean(values)) else mean


def _check_order(order: Sequence[str], tables: Sequence[Arrangement]) -> None:
    """Raise UserError for a word in `order` that is neither a row of any table nor its norm."""
    rows = [row for table in tables for row in table.rows.values()]
    for word in order:
        if not rows_called(word, rows):
            raise UserError(f"--order {word}: no such row{_available(word, rows)}")


def _available(word: str, rows: Iterable[RowName]) -> str:
    return _choices(word, dict.fromkeys(row.text for row in rows))


def _choices(word: str, known: Iterable[str]) -> str:
    """Return the last part of the error for an unknown name: a suggestion, or the known names."""
    known = [*known]
    meant = norm_name(word)  # ln for LayerNorm
    if near := [meant] if meant in known else get_close_matches(word, known, n=1):
        return f". Did you mean {near[0]}?"
    return f"; available: {'; '.join(known) or 'none'}"


# Columns ------------------------------------------------------------------------------------------


def _columns(runs: Sequence[Run], scores: Sequence[str]) -> list[str]:
    """Return the requested scores or, by default, the main test scores and the validation loss."""
    records = [run.record for run in runs if run.record is not None]
    known = dict.fromkeys(name for record in records for name in record.scores)
    for name in scores:
        if name not in known:
            available = _choices(name, sorted(known))
            raise UserError(f"--columns {name}: no run has this score{available}")
    return list(scores) or [*main_tests(known), "valid/loss"]


def main_tests(names: Iterable[str]) -> list[str]:
    """Return the main test scores among some names or, if there are none, the first test score."""
    tests = [name for name in names if name.startswith("test/") and name.count("/") == 1]
    return [name for name in _TESTS if name in tests] or tests[:1]
