"""Builds a section of a page: the table of the runs of one recipe, with its charts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from normlab.metrics.glossary import has_direction
from normlab.records.record import RunRecord
from normlab.reports.arrangement.arrangement import Arrangement
from normlab.reports.figures.panel import Panel
from normlab.reports.figures.score_charts import by_axis
from normlab.reports.figures.training_charts import over_training
from normlab.reports.runs import Run
from normlab.reports.tables.score_table import ScoreTable

if TYPE_CHECKING:
    from normlab.reports.translations.side_by_side import SideBySide


@dataclass(frozen=True)
class TableSection:
    """A table on a page, made from the runs of one recipe, with its charts.

    `name` is the name of the recipe, or "" on a page with one table. `number` makes the ids of the
    sections on a page distinct, and is "" for the first section.
    """

    source: Arrangement
    table: ScoreTable
    name: str = ""
    number: str = ""
    samples: "SideBySide | str | None" = None

    @property
    def runs(self) -> Sequence[Run]:
        return self.source.runs

    @property
    def records(self) -> list[RunRecord]:
        return self.source.records

    @property
    def data_name(self) -> str:
        return self.source.data_name

    @property
    def directions(self) -> dict[str, str]:
        """Return whether higher or lower is better, by column."""
        return {column: _direction(self.table, column) for column in self.table.columns}

    @property
    def points(self) -> dict[str, str]:
        """Return the points of the grid, each with its name in words."""
        return {row.point: row.at for row in self.table.rows}

    @property
    def row_names(self) -> list[str]:
        return list(dict.fromkeys(row.name for row in self.table.rows))

    @property
    def unit(self) -> str:
        units = {record.unit for record in self.records}
        return units.pop() if len(units) == 1 else "units"

    @property
    def without_rows(self) -> list[str]:
        """Return the ids of the runs whose logged rows are missing."""
        return [run.record.run_id for run in self.runs if run.record and not run.curve]

    @property
    def diverged(self) -> list[RunRecord]:
        return [record for record in self.records if record.outcome.status == "diverged"]

    @cached_property
    def score_panels(self) -> dict[str, list[Panel]]:
        """The panels of scores, keyed by the name of their horizontal axis."""
        charts = by_axis(self.table)
        return {axis.name: [*map(self._numbered, panels)] for axis, panels in charts.items()}

    @cached_property
    def training_panels(self) -> dict[str, list[Panel]]:
        """The panels of scores in the course of training, by kind: `learning` and `stability`."""
        charts = over_training(self.source.columns, self.runs)
        return {name: [*map(self._numbered, panels)] for name, panels in charts.items()}

    @property
    def has_training_panels(self) -> bool:
        return any(self.training_panels.values())

    @property
    def main_panel(self) -> Panel | None:
        """The panel above the table: the first score over the first axis, or None without axes."""
        return next((panel for panels in self.score_panels.values() for panel in panels), None)

    @property
    def other_score_panels(self) -> dict[str, list[Panel]]:
        """The panels of scores except the main one, keyed by the name of their horizontal axis."""
        return {
            axis: [panel for panel in panels if panel is not self.main_panel]
            for axis, panels in self.score_panels.items()
        }

    @property
    def panels(self) -> list[Panel]:
        groups = (*self.score_panels.values(), *self.training_panels.values())
        return [panel for group in groups for panel in group]

    def _numbered(self, panel: Panel) -> Panel:
        return replace(panel, number=self.number)


def _direction(table: ScoreTable, column: str) -> str:
    """Return `higher is better`, `lower is better`, or "" if neither is or no row has the score.

    If records of a user's own score disagree, return both.
    """
    if not has_direction(column):
        return ""
    scores = [score for row in table.rows for score in row.entries[column].scores.values()]
    directions = {"higher" if score.higher_is_better else "lower" for score in scores}
    return f"{' or '.join(sorted(directions))} is better" if directions else ""
