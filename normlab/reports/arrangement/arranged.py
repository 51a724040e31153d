"""Arranges runs that do not come from a study's plan as the rows of tables, in a grid.

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
from normlab.reports.arrangement.differing_settings import differing_settings
from normlab.reports.arrangement.grid import follows, grid_of, values_of
from normlab.reports.arrangement.recipes import recipes
from normlab.reports.arrangement.row_names import RowName, label, names
from normlab.reports.arrangement.table_runs import TableRuns
from normlab.reports.runs import Config, Run

BASELINE_NORM = "ln"
"""The baseline norm, unless the user names another row."""
_TESTS = tuple(f"test/{name}" for name in MAIN_SCORES if name not in ("loss", "perplexity"))


class GridRow(NamedTuple):
    """An experiment's row in a table, its value on each axis, and its runs."""

    row: RowName
    at: dict[str, Any]
    runs: Sequence[Run]

    @property
    def config(self) -> Config:
        return self.runs[0].settings


def by_recipe(
    runs: Sequence[Run],
    *,
    baseline: str | None = None,
    scores: Sequence[str] = (),
    order: Sequence[str] = (),
) -> list[TableRuns]:
    """Arrange runs as tables, one for each recipe; `arranged` lists the errors.

    `baseline`, and each row of `order`, may be a row of only some tables.
    """
    experiments = _experiments(runs)
    _columns(runs, scores)  # refuses a score that no run of any table has
    tables: list[TableRuns] = []
    refused: list[UserError] = []
    for recipe, indices in recipes([seeds[0].settings for seeds in experiments]):
        members = [run for n in indices for run in experiments[n]]
        columns = scores or _columns(members, ())
        try:
            table = _arranged(members, columns, baseline, recipe, order)
        except UserError as error:
            refused.append(error)
            table = _arranged(members, columns, None, recipe, order)
        tables.append(table)
    if len(refused) == len(tables):
        raise refused[0]
    _check_order(order, tables)
    return tables


def arranged(
    runs: Sequence[Run],
    *,
    baseline: str | None = None,
    scores: Sequence[str] = (),
    order: Sequence[str] = (),
) -> TableRuns:
    """Arrange runs as rows: the baseline, those in `order`, the others by the first score.

    `baseline` names the row that the others are compared with, `scores` the columns, and `order`
    rows or their norms. Without `order`, the row with the best first score follows the baseline.
    Raises UserError, listing the choices, for a baseline or an entry of `order` that is not a row,
    or a score that no run has.
    """
    table = _arranged(runs, _columns(runs, scores), baseline, "", order)
    _check_order(order, [table])
    return table


def _experiments(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the runs of each experiment, which differ only in their seed."""
    return [*grouped((fingerprint(run.settings), run) for run in runs).values()]


def _arranged(
    runs: Sequence[Run],
    columns: Sequence[str],
    baseline: str | None,
    recipe: str,
    order: Sequence[str],
) -> TableRuns:
    """Arrange runs; no run needs to have all the columns."""
    grid_rows = _grid_rows(_experiments(runs), baseline)
    merits = {each.row: _merit(each.runs, columns[0]) for each in reversed(grid_rows)}
    first = _baseline(grid_rows, baseline)
    norms = {each.row.text: each.runs[0].norm for each in grid_rows}
    places = [rows_called(name, norms) for name in order]

    def rank(row: RowName) -> int:
        """Return the row's place in `order`; a row that is not in it comes after all that are."""
        return next((n for n, called in enumerate(places) if row.text in called), len(order))

    rows = sorted(merits, key=lambda row: (row != first, rank(row), -merits[row]))
    grid_rows.sort(key=lambda each: (*each.at.values(), rows.index(each.row)))
    axes = dict.fromkeys(axis for each in grid_rows for axis in each.at)
    scales = {run.settings.get("choices", {}).get("scale") for run in runs} - {None, "none"}
    return TableRuns(
        rows={row.text: row for row in rows},
        columns=tuple(columns),
        axes=tuple(axes),
        runs=[run for each in grid_rows for run in _at_place(each)],
        scale=", ".join(sorted(scales)),
        recipe=recipe,
    )


def rows_called(name: str, norms: Mapping[str, str]) -> list[str]:
    """Return the rows that a user's word means: the row of this name, or all rows of this norm.

    `norms` maps each row to its norm.
    """
    return [name] if name in norms else [row for row, norm in norms.items() if norm == name]


def _check_order(order: Sequence[str], tables: Sequence[TableRuns]) -> None:
    """Raise UserError for a name in `order` that is neither a row of any table nor its norm."""
    norms = {run.key.row: run.norm for table in tables for run in table.runs}
    for name in order:
        if not rows_called(name, norms):
            raise UserError(f"--order {name}: no such row{_available(name, norms)}")


def _at_place(grid_row: GridRow) -> list[Run]:
    """Return the runs of an experiment by seed, with their row and point."""
    values = {
        axis: f"{v:.12g}" if isinstance(v, float) else str(v) for axis, v in grid_row.at.items()
    }
    point = point_text(values)
    by_seed = sorted(grid_row.runs, key=lambda run: run.key.seed)
    return [replace(run, key=Key(grid_row.row.text, point, run.key.seed)) for run in by_seed]


def _baseline(grid_rows: Sequence[GridRow], requested: str | None) -> RowName | None:
    """Return the row that others are compared with: the requested one, or the baseline norm's.

    If several rows are called so, it is the one with the most seeds, then the one that differs
    from the other rows in the fewest settings. None if no row has the norm.
    """
    norms = {each.row.text: each.runs[0].norm for each in grid_rows}
    called = rows_called(requested or BASELINE_NORM, norms)
    differing = [*differing_settings([each.config for each in grid_rows]).values()]

    def suits(n: int) -> tuple[int, int]:
        records = [run.record for run in grid_rows[n].runs]
        ended = sum(record is not None and record.finished for record in records)
        return ended, sum(values.count(values[n]) for values in differing)

    candidates = [n for n, each in enumerate(grid_rows) if each.row.text in called]
    if candidates:
        return grid_rows[max(candidates, key=suits)].row
    if requested is not None:
        raise UserError(f"--baseline {requested}: no such row{_available(requested, norms)}")
    return None


def _merit(runs: Sequence[Run], column: str) -> float:
    """Return a score's mean over finished seeds, negated if lower is better."""
    ended = [run.record for run in runs if run.record is not None and run.record.finished]
    scores = [record.scores[column] for record in ended if column in record.scores]
    values = [score.value * (1 if score.higher_is_better else -1) for score in scores]
    return -math.inf if not values or math.isnan(mean := fmean(values)) else mean


def _columns(runs: Sequence[Run], scores: Sequence[str]) -> list[str]:
    """Return the scores to show: the requested ones, or the main test scores and the loss."""
    records = [run.record for run in runs if run.record is not None]
    known = dict.fromkeys(name for record in records for name in record.scores)
    for name in scores:
        if name not in known:
            available = _available(name, sorted(known))
            raise UserError(f"--columns {name}: no run has this score{available}")
    return list(scores) or [*main_tests(known), "valid/loss"]


def main_tests(names: Iterable[str]) -> list[str]:
    """Return the main test scores among some names; if there are none, the first test score."""
    tests = [name for name in names if name.startswith("test/") and name.count("/") == 1]
    return [name for name in _TESTS if name in tests] or tests[:1]


def _available(name: str, known: Iterable[str]) -> str:
    """Return the last part of the error for an unknown name: a suggestion, or the known names."""
    known = [*known]
    meant = norm_name(name)  # ln for LayerNorm
    if near := [meant] if meant in known else get_close_matches(name, known, n=1):
        return f". Did you mean {near[0]}?"
    return f"; available: {'; '.join(known) or 'none'}"


def _grid_rows(experiments: Sequence[Sequence[Run]], baseline: str | None) -> list[GridRow]:
    """Return each experiment's row and grid point; no grid unless some row has every point."""
    configs = [seeds[0].settings for seeds in experiments]
    tasks = [label(config).task for config in configs]
    if len({*tasks}) > 1:
        by_task = [*grouped((task, n) for n, task in enumerate(tasks)).values()]
        rows = {
            n: row
            for members in by_task
            for n, row in zip(members, names([configs[n] for n in members]), strict=True)
        }
        return [GridRow(rows[n], {"task": task}, experiments[n]) for n, task in enumerate(tasks)]
    plain = [
        GridRow(row, {}, seeds) for row, seeds in zip(names(configs), experiments, strict=True)
    ]
    every, values = grid_of(configs), values_of(configs)
    axes = [key for key in every if not follows(key, every, values)]
    if not axes or baseline in {each.row.text for each in plain}:
        return plain
    points = [{key: values[key][n] for key in axes} for n in range(len(configs))]
    return [GridRow(*each) for each in zip(names(configs, every), points, experiments, strict=True)]
