"""The page of a study: its table, its curves, what its runs share, and every run to its record."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from normlab.records.record import RunRecord
from normlab.reports.digits import figure
from normlab.reports.evidence import NOT_ENDED, NOT_MADE, Evidence
from normlab.reports.html.charts import HUES, Panel, dashes, data, mark
from normlab.reports.html.configuration import configuration, counted, facts
from normlab.reports.html.page import page, signed
from normlab.reports.html.panels import by_axis, learning, stability, tokens
from normlab.reports.render import parts, said, shown
from normlab.reports.render import stability as trained
from normlab.reports.row import Entry, Row
from normlab.reports.side_by_side import TextOf, side_by_side
from normlab.reports.table import Table, data_name
from normlab.studies import Study

_UNLIKE = 1.5
_CODE = "code_files."  # a fact a file


@dataclass(frozen=True)
class Setting:
    """A row as the filters show it: its name, and how its lines look."""

    name: str
    hue: int
    dashes: str
    mark: str


@dataclass(frozen=True)
class Figure:
    """A cell of the table: mean and deviation, the difference, the document's figure."""

    text: str
    gap: str
    document: str
    best: bool


@dataclass(frozen=True)
class Line:
    """A row of the table; `problem` says why it has no figures, `bad` that it ended badly.

    `said` is the cell of what the document says of other data, if there is such a column.
    """

    name: str
    at: str
    stability: list[str]
    bad: bool
    figures: tuple[Figure, ...]
    problem: str | None
    said: list[str]


def study_page(
    study: Study,
    scale: str,
    table: Table,
    evidence: Sequence[Evidence],
    *,
    template: str = "study.html",
    text_of: TextOf | None = None,
    **values: Any,
) -> str:
    """Return the page of a study, the same bytes for the same evidence.

    Another `template` extends that of published studies, and uses `values` too. `text_of` gives the
    samples their sources and references; of published studies these are not kept.
    """
    records = [each.record for each in evidence if each.record is not None]
    rows = [name for name in study.rows if any(row.name == name for row in table.rows)]
    settings = [
        Setting(name, number % HUES, dashes(number), mark(number))
        for number, name in enumerate(rows)
    ]
    groups = {
        **{f"by {axis}": group for axis, group in by_axis(study, table).items()},
        "learning": learning(study, evidence),
        "stability": stability(evidence),
    }
    panels: list[Panel] = [panel for group in groups.values() for panel in group.all]
    unit = _unit(records)
    recorded = facts(records, "environment")
    charts = {
        "panels": [data(panel) for panel in panels],
        "tokens": tokens(evidence),
        "unit": unit,
        "looks": [asdict(setting) for setting in settings],
    }
    return page(
        template,
        charts=charts if panels or values.get("live") else None,
        study=study,
        scale=scale,
        table=table,
        data_name=data_name(study, scale, records),
        lines=[_line(table, row) for row in table.rows],
        directions={column: _direction(table, column) for column in table.columns},
        settings=settings,
        points=list(dict.fromkeys(row.point for row in table.rows)),
        overview=_overview(evidence, records),
        groups=groups,
        samples=side_by_side(evidence, text_of),
        unit=unit,
        across_tokens=_unlike_steps(records),
        without=_without_curves(evidence),
        diverged=[record for record in records if record.outcome.status == "diverged"],
        configuration=configuration(evidence),
        environment=[each for each in recorded if not each.key.startswith(_CODE)],
        code_files=[each for each in recorded if each.key.startswith(_CODE)],
        data_facts=facts(records, "data"),
        evidence=evidence,
        scores={
            record.run_id: [_score(record, column) for column in table.columns]
            for record in records
        },
        **values,
    )


def _line(table: Table, row: Row) -> Line:
    return Line(
        row.name,
        row.point,
        trained(table, row),
        not row.outcome.startswith(("finished", NOT_MADE.alone, NOT_ENDED.alone)),
        tuple(_figure(entry, column) for column, entry in shown(table, row)),
        row.problem,
        said(table, row),
    )


def _figure(entry: Entry, column: str) -> Figure:
    text, gap, document = parts(entry, column)
    text = text.replace("+-", "\N{PLUS-MINUS SIGN}") if entry.summary else "\N{EN DASH}"
    says = document.removeprefix("document: ")
    if isinstance(entry.document, float):
        says = signed(says)
    return Figure(text, signed(gap), says, entry.best)


def _direction(table: Table, column: str) -> str:
    """Say which way a score is better, "" where no row has it."""
    found = {
        row.entries[column].higher_is_better
        for row in table.rows
        if row.entries[column].summary is not None
    }
    return "".join("higher is better" if higher else "lower is better" for higher in sorted(found))


def _score(record: RunRecord, column: str) -> str:
    found = record.figure(column)
    if found is None:
        return ""
    return "not reached" if math.isinf(found.value) else figure(found.value, column)


def _overview(
    evidence: Sequence[Evidence], records: Sequence[RunRecord]
) -> list[tuple[str, list[str]]]:
    """Return the facts that a reader asks for first, each with its values."""

    def of(part: str, key: str) -> list[str]:
        found = [getattr(record, part).get(key) for record in records]
        return [value for value, _ in counted(str(value) for value in found if value is not None)]

    outcomes = counted(each.outcome for each in evidence)
    steps = sorted({record.budget.steps for record in records if record.finished})
    seconds = sum(record.budget.wall_seconds for record in records)
    made = [
        ("runs", [f"{count} {outcome}" for outcome, count in outcomes]),
        ("seeds", [", ".join(map(str, sorted({each.planned.seed for each in evidence})))]),
        ("updates", _range(steps)),
        ("data", of("data", "label") or of("data", "source")),
        ("hardware", of("environment", "device")),
        ("precision", of("environment", "precision")),
        ("training time, all runs", [f"{seconds / 3600:.1f} h"] if records else []),
    ]
    return [(name, values) for name, values in made if values]


def _range(steps: Sequence[int]) -> list[str]:
    if not steps:
        return []
    first, last = steps[0], steps[-1]
    return [f"{first:,}" if first == last else f"{first:,} to {last:,}"]


def _unit(records: Sequence[RunRecord]) -> str:
    """Return what all runs count, `units` where they count unlike things."""
    units = {record.unit for record in records} or {"tokens"}
    return units.pop() if len(units) == 1 else "units"


def _unlike_steps(records: Sequence[RunRecord]) -> bool:
    """Tell whether runs differ so in their steps that tokens are the better axis at first."""
    steps = [record.budget.steps for record in records if record.finished]
    return bool(steps) and max(steps) > _UNLIKE * min(steps)


def _without_curves(evidence: Sequence[Evidence]) -> list[str]:
    """Return the runs that were made and whose rows were not published."""
    return [each.record.run_id for each in evidence if each.record is not None and not each.rows]
