"""The runs of one table, arranged in rows and at points of a grid.

`unplanned.py` arranges any runs by their configs, and `normlab.publishing.study_arrangement` the
runs of a study by its plan. `tables/build_table.py` computes the table of an arrangement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from normlab.records.pairs import UNPLANNED, PairRules
from normlab.records.record import RunRecord
from normlab.reports.arrangement.row_names import RowName
from normlab.reports.runs import Run


class ArticleValues(NamedTuple):
    """What an article says about a row: its values by column, and how stable training was."""

    scores: Mapping[str, str | float] = {}
    stability: str | float | None = None


@dataclass(frozen=True)
class StudyDetails:
    """What tables and pages say about the study that planned their runs.

    `table` is the title of its table, `article` its source, and `article_data` the name of the data
    on which the article's values were measured. A pilot decides nothing.
    """

    name: str
    table: str
    description: str
    article: str
    article_data: str
    is_pilot: bool


@dataclass(frozen=True)
class Arrangement:
    """The rows, columns and axes of a table, the runs that fill it, and how they pair.

    `rows` maps the row of a run's key to the row's name, the baseline first. `axes` are the config
    keys of the grid. If a study planned the runs, `study` describes it, and `article` has the
    values of the study's article by row. `recipe` says in words what these runs have in common, but
    not with the runs of other tables.
    """

    rows: Mapping[str, RowName]
    columns: tuple[str, ...]
    axes: tuple[str, ...]
    runs: Sequence[Run]
    data_name: str
    rules: PairRules = UNPLANNED
    scale: str = ""
    recipe: str = ""
    study: StudyDetails | None = None
    article: Mapping[str, ArticleValues] = field(default_factory=dict[str, ArticleValues])

    @property
    def baseline(self) -> str:
        """The key of the row that the others are compared with, which is also its text."""
        return next(iter(self.rows))

    @property
    def records(self) -> list[RunRecord]:
        return [run.record for run in self.runs if run.record is not None]


def recorded_data(records: Sequence[RunRecord]) -> str:
    """Return the name and languages of each data set in some records, such as `Multi30k de-en`."""
    names: dict[str, None] = {}
    for data in (record.data for record in records):
        name = data.get("label") or data.get("source") or "unnamed data"
        names[f"{name} {'-'.join(data.get('languages') or ())}".strip()] = None
    return ", ".join(names) or "no data"
