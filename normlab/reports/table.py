"""What a comparison table says: a pure function of a study and the records of its runs.

A row is a setting at a point of the study's grid. Of each score it has the mean over the seeds that
finished with its spread, and the difference to the first row at the same point, paired by seed,
with its 95 % t interval and p value (Student 1908: right for as few seeds as two, if differences
are normal). Whether translations would differ on other sentences is another question, which
`normlab compare A B --bootstrap` answers. The title names the data of the numbers; what a document
says of other data stands in a column of its own, and no difference to it is made. Runs that must
not be averaged or compared are refused with the reason, and seeds that diverged are counted, never
dropped.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from normlab.metrics.spread import p_value
from normlab.records.aggregate import Cell
from normlab.records.fingerprint import diff
from normlab.records.record import RunRecord
from normlab.records.rows import SPIKE_COUNT
from normlab.reports.comparison import Comparison, diverged_seeds, higher_is_better, values
from normlab.reports.evidence import NOT_MADE, Absent
from normlab.reports.notes import notes_of
from normlab.reports.row import Entry, Row
from normlab.studies import STABILITY, Planned, Study

REFUSED = "refused"
_OWN_DATA = "A"  # the grade of a scale that is the document's own data and size


@dataclass(frozen=True)
class Table:
    """A study's table: its caption, its columns, its rows, and what a reader must know.

    `apart` heads the column of what the document says of other data; "" where the numbers are from
    the document's own, so that its figures stand beside them.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    apart: str = ""


def build(
    study: Study,
    scale: str,
    runs: Iterable[tuple[Planned, RunRecord | None]],
    *,
    absent: Absent = NOT_MADE,
) -> Table:
    """Return the table of a study from its runs; `absent` names those without a record."""
    groups: dict[_Place, list[tuple[Planned, RunRecord | None]]] = {}
    for planned, record in runs:
        groups.setdefault((planned.point, planned.row), []).append((planned, record))
    cells = {place: _cell(members, study.columns, absent) for place, members in groups.items()}
    comparison = Comparison(precision=_compares_precision(study))
    rows = [
        _row(study, name, point, cells, _Group(len(members), absent), comparison)
        for (point, name), members in groups.items()
    ]
    whole = {place: cell for place, cell in cells.items() if isinstance(cell, Cell)}
    records = [record for cell in whole.values() for record in cell.records]
    rows = _marked(rows, study.columns, whole, comparison)
    size = study.scales.get(scale)
    own = size is not None and size.grade == _OWN_DATA
    said = any(study.figures.values())
    return Table(
        title=f"{study.table}, on {data_name(study, scale, records)} ({study.name}, scale={scale})",
        columns=study.columns,
        rows=tuple(rows),
        notes=tuple(notes_of(study, scale, whole, rows, comparison)),
        apart=f"document ({study.document_data})" if said and not own else "",
    )


def data_name(study: Study, scale: str, records: Sequence[RunRecord]) -> str:
    """Name the data of the numbers: as the study does, where that is what the records say."""
    named = study.scales[scale].data_name if scale in study.scales else ""
    labels = list(dict.fromkeys(_label(record) for record in records))
    if named and all(label.split()[0].lower() in named.lower() for label in labels):
        return named
    return ", ".join(labels) or "no data"


def _label(record: RunRecord) -> str:
    name = record.data.get("label") or record.data.get("source") or "data that is not named"
    languages = "-".join(record.data.get("languages") or ())
    return f"{name} {languages}".strip()


_Place = tuple[str, str]
"""A point of the grid, and a row."""


@dataclass(frozen=True)
class _Group:
    """How many runs of a row there are to be, and what those without a record are called."""

    planned: int
    absent: Absent


def _compares_precision(study: Study) -> bool:
    return any(each.startswith("precision=") for row in study.rows.values() for each in row)


def _cell(
    members: Sequence[tuple[Planned, RunRecord | None]], columns: Sequence[str], absent: Absent
) -> Cell | str:
    """Join the seeds of a row, or say why they cannot be."""
    records = [record for _, record in members if record is not None]
    if not records:
        return absent.alone
    for record in records[1:]:
        if record.fingerprint != records[0].fingerprint:
            apart = ", ".join(diff(records[0].config, record.config))
            return f"{records[0].run_id} and {record.run_id} differ in {apart}"
    try:
        cell = Cell.of(records)
        for column in columns:
            cell.score(column)
    except ValueError as error:
        return str(error)
    return cell


def _row(
    study: Study,
    name: str,
    point: str,
    cells: Mapping[_Place, Cell | str],
    group: _Group,
    comparison: Comparison,
) -> Row:
    cell = cells[point, name]
    said = study.figures.get(name, {})
    if isinstance(cell, str):
        empty = {
            column: Entry(None, {}, True, said.get(column), None, None) for column in study.columns
        }
        outcome = cell if cell == group.absent.alone else REFUSED
        return Row(name, point, outcome, (), empty, cell, outcome, said.get(STABILITY))
    base = cells.get((point, study.baseline))
    baseline = base if isinstance(base, Cell) and base is not cell else None
    entries: dict[str, Entry] = {}
    for column in study.columns:
        gap = None if baseline is None else comparison.difference(cell, baseline, column)
        entries[column] = Entry(
            summary=cell.score(column),
            values=values(cell, column),
            higher_is_better=higher_is_better(cell, column),
            document=said.get(column),
            difference=gap,
            p=None if gap is None else p_value(gap),
            signature=cell.signature(column),
        )
    missing = group.planned - len(cell.records)
    outcome = cell.outcome + (f", {missing} {group.absent.among}" if missing else "")
    return Row(
        name,
        point,
        outcome,
        cell.seeds,
        entries,
        stability=_stability(cell, outcome),
        said=said.get(STABILITY),
    )


def _stability(cell: Cell, outcome: str) -> str:
    """Say how the seeds of a row ended, how many diverged, and the median of their loss spikes."""
    spikes = [r.stability[SPIKE_COUNT] for r in cell.records if SPIKE_COUNT in r.stability]
    counted = f"spikes {statistics.median(spikes):g}" if spikes else "spikes not counted"
    diverged = [] if "diverged" in outcome else [f"diverged {diverged_seeds(cell)}"]
    return "; ".join([outcome, *diverged, counted])


def _marked(
    rows: Sequence[Row],
    columns: Sequence[str],
    cells: Mapping[_Place, Cell],
    comparison: Comparison,
) -> list[Row]:
    """Mark the best value of each column at each point, where the rule finds one."""
    marked = list(rows)
    for point in dict.fromkeys(row.point for row in rows):
        here = [
            n for n, row in enumerate(rows) if (point, row.name) in cells and row.point == point
        ]
        for column in columns:
            best = comparison.best([cells[point, rows[n].name] for n in here], column)
            if best is not None:
                row = marked[here[best]]
                entry = replace(row.entries[column], best=True)
                marked[here[best]] = replace(row, entries={**row.entries, column: entry})
    return marked
