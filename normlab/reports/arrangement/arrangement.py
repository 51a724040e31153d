"""The runs of one table, arranged in rows and at points of a grid.

A study arranges its runs by its plan (`Arrangement.of_study`), and `unplanned.py` any others by
their configs. `tables/build_table.py` computes the table of an arrangement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from normlab.records.pairs import PLANNED, UNPLANNED, PairRules
from normlab.records.record import RunRecord
from normlab.records.store import lookup
from normlab.reports.arrangement.row_names import RowName
from normlab.reports.runs import Run

if TYPE_CHECKING:
    from normlab.studies.study import Study

_DATA_OPTIONS = ("task", "task/corpus")


class ArticleValues(NamedTuple):
    """What an article says about a row: its values by column, and how stable training was."""

    scores: Mapping[str, str | float] = {}
    stability: str | float | None = None


@dataclass(frozen=True)
class Arrangement:
    """The rows, columns and axes of a table, the runs that fill it, and how they pair.

    `rows` has the rows, the baseline first, by the key of their runs; `axes` are the config keys of
    the grid. `study` is the study that planned the runs, if one did, and `article` has its
    article's values by row. `recipe` says in words what the runs share and the runs of other tables
    do not.
    """

    rows: Mapping[str, RowName]
    columns: tuple[str, ...]
    axes: tuple[str, ...]
    runs: Sequence[Run]
    rules: PairRules = UNPLANNED
    scale: str = ""
    recipe: str = ""
    study: "Study | None" = None
    article: Mapping[str, ArticleValues] = field(default_factory=dict[str, ArticleValues])

    @classmethod
    def of_study(cls, study: "Study", scale: str, runs: Sequence[Run]) -> "Arrangement":
        """Return the runs of a study at a scale; precision may differ if its rows set it."""
        from normlab.studies.row_words import row_words
        from normlab.studies.study import STATEMENT

        overrides = [override for row in study.rows.values() for override in row]
        precision = not any(override.startswith("precision=") for override in overrides)
        article = {
            row: ArticleValues(values, values.get(STATEMENT))
            for row, values in study.article_values.items()
            if values
        }
        return cls(
            rows={row: RowName(*row_words(row)) for row in study.rows},
            columns=study.columns,
            axes=tuple(study.grid),
            runs=runs,
            rules=PLANNED._replace(precision=precision),
            scale=scale,
            study=study,
            article=article,
        )

    @property
    def baseline(self) -> str:
        """The key of the row that the others are compared with, which is also its text."""
        return next(iter(self.rows))

    @property
    def is_pilot(self) -> bool:
        return self.study is not None and self.study.scale(self.scale).pilot

    @property
    def records(self) -> list[RunRecord]:
        return [run.record for run in self.runs if run.record is not None]

    @property
    def data_name(self) -> str:
        """The name of the data: the study's own name for it, or the names in the records."""
        if self.study is None or not _trained_as_planned(self.study, self.scale, self.runs):
            return _recorded_data(self.records)
        tasks = {str(lookup(record, "task")) for record in self.records}
        return self.study.scale(self.scale).data_name_of(tasks) or _recorded_data(self.records)


def _trained_as_planned(study: "Study", scale: str, runs: Sequence[Run]) -> bool:
    """Return whether runs have the task and corpus that their study's plan chooses."""
    plan = {planned.row_and_point: planned.settings for planned in study.planned(scale, seeds=[0])}
    return all(
        run.record.choice(group) == chosen
        for run in runs
        if run.record is not None
        for group in _DATA_OPTIONS
        if (chosen := plan.get(run.key.row_and_point, {}).get(group)) is not None
    )


def _recorded_data(records: Sequence[RunRecord]) -> str:
    """Return the distinct names of the data in records, with their languages."""
    names: dict[str, None] = {}
    for data in (record.data for record in records):
        name = data.get("label") or data.get("source") or "data that is not named"
        names[f"{name} {'-'.join(data.get('languages') or ())}".strip()] = None
    return ", ".join(names) or "no data"
