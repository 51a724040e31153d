"""Arranges the runs of a study as a table, in the rows and at the points that it planned."""

from collections.abc import Sequence

from normlab.records.pairs import PLANNED
from normlab.records.store import lookup
from normlab.reports.arrangement.arrangement import (
    Arrangement,
    ArticleValues,
    StudyDetails,
    recorded_data,
)
from normlab.reports.arrangement.row_names import RowName
from normlab.reports.runs import Run
from normlab.studies.row_words import row_words
from normlab.studies.study import STATEMENT, Study

_DATA_OPTIONS = ("task", "task/corpus")


def study_arrangement(study: Study, scale: str, runs: Sequence[Run]) -> Arrangement:
    """Arrange the runs of a study at a scale by its rows and grid.

    If a row sets the precision, runs with different precisions may be paired.
    """
    overrides = [override for row in study.rows.values() for override in row]
    precision = not any(override.startswith("precision=") for override in overrides)
    article = {
        row: ArticleValues(values, values.get(STATEMENT))
        for row, values in study.article_values.items()
        if values
    }
    return Arrangement(
        rows={row: RowName(*row_words(row)) for row in study.rows},
        columns=study.columns,
        axes=tuple(study.grid),
        runs=runs,
        data_name=_data_name(study, scale, runs),
        rules=PLANNED._replace(precision=precision),
        scale=scale,
        study=StudyDetails(
            name=study.name,
            table=study.table,
            description=study.description,
            article=study.article,
            article_data=study.article_data,
            is_pilot=study.scale(scale).pilot,
        ),
        article=article,
    )


def _data_name(study: Study, scale: str, runs: Sequence[Run]) -> str:
    """Return the study's name for its data, or the names in the records.

    The records are used if the study has no name, or if runs were not trained on the planned data.
    """
    records = [run.record for run in runs if run.record is not None]
    if not _trained_as_planned(study, scale, runs):
        return recorded_data(records)
    tasks = {str(lookup(record, "task")) for record in records}
    return study.scale(scale).data_name_of(tasks) or recorded_data(records)


def _trained_as_planned(study: Study, scale: str, runs: Sequence[Run]) -> bool:
    """Return whether all runs have the task and the corpus that the study plans for them."""
    plan = {planned.row_and_point: planned.settings for planned in study.planned(scale, seeds=[0])}
    return all(
        run.record.choice(group) == chosen
        for run in runs
        if run.record is not None
        for group in _DATA_OPTIONS
        if (chosen := plan.get(run.key.row_and_point, {}).get(group)) is not None
    )
