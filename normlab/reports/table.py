"""Decides what a comparison table says: a pure function of a study and the records of its runs.

A row is a setting at a point of the study's grid. Of each score it has the mean over the seeds that
finished with its spread, what the document says, and the difference to the first row at the same
point, paired by seed, with its 95 % t interval and p value (Student 1908: right for as few seeds as
two, if differences are normal). The best value of a column at a point is marked only where its
interval against every other row leaves out zero. Runs that must not be averaged are refused with
the reason, and seeds that diverged are counted, never dropped.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from normlab.metrics.spread import Interval, p_value, paired_interval
from normlab.records.aggregate import Cell, Summary
from normlab.records.record import RunRecord
from normlab.studies import Planned, Study

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Entry:
    """One score of one row: its summary, what the document says, the difference to the baseline."""

    summary: Summary | None
    values: Mapping[int, float]
    higher_is_better: bool
    document: str | float | None
    difference: Interval | None
    p: float | None
    best: bool = False


@dataclass(frozen=True)
class Row:
    """One setting at one point of the grid; `problem` says why it has no figures."""

    name: str
    point: str
    outcome: str
    seeds: tuple[int, ...]
    entries: Mapping[str, Entry]
    problem: str | None = None


@dataclass(frozen=True)
class Table:
    """A study's table: its caption, its columns, its rows, and what a reader must know."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())


def build(study: Study, scale: str, runs: Iterable[tuple[Planned, RunRecord | None]]) -> Table:
    """Return the table of a study from its runs, of which some may not have been made."""
    groups: dict[tuple[str, str], list[tuple[Planned, RunRecord | None]]] = {}
    for planned, record in runs:
        groups.setdefault((planned.point, planned.row), []).append((planned, record))
    cells: dict[tuple[str, str], Cell | str] = {
        place: _cell(members) for place, members in groups.items()
    }
    rows = [
        _row(study, name, point, cells, planned=len(members))
        for (point, name), members in groups.items()
    ]
    marked = _marked(rows, study.columns)
    records = [c for cell in cells.values() if isinstance(cell, Cell) for c in cell.records]
    return Table(
        title=f"{study.table} ({study.document}), scale={scale}",
        columns=study.columns,
        rows=tuple(marked),
        notes=tuple(_notes(study, scale, records, marked)),
    )


def _cell(members: Sequence[tuple[Planned, RunRecord | None]]) -> Cell | str:
    """Join the seeds of a row, or say why they cannot be."""
    records = [record for _, record in members if record is not None]
    if not records:
        return "no run"
    try:
        return Cell.of(records)
    except ValueError as error:
        return str(error)


def _row(
    study: Study,
    name: str,
    point: str,
    cells: Mapping[tuple[str, str], Cell | str],
    *,
    planned: int,
) -> Row:
    cell = cells[point, name]
    if isinstance(cell, str):
        empty = {
            column: Entry(None, {}, True, study.figures.get(name, {}).get(column), None, None)
            for column in study.columns
        }
        return Row(name, point, "-", (), empty, problem=cell)
    base = cells.get((point, next(iter(study.rows))))
    baseline = base if isinstance(base, Cell) and base is not cell else None
    entries = {}
    for column in study.columns:
        values = _values(cell, column)
        difference = None if baseline is None else _difference(values, _values(baseline, column))
        entries[column] = Entry(
            summary=cell.score(column),
            values=values,
            higher_is_better=_higher_is_better(cell, column),
            document=study.figures.get(name, {}).get(column),
            difference=difference,
            p=None if difference is None else p_value(difference),
        )
    missing = planned - len(cell.records)
    outcome = cell.outcome + (f", {missing} not run" if missing else "")
    return Row(name, point, outcome, cell.seeds, entries)


def _values(cell: Cell, score: str) -> dict[int, float]:
    return {
        record.seed: record.scores[score].value
        for record in cell.records
        if record.finished and score in record.scores
    }


def _higher_is_better(cell: Cell, score: str) -> bool:
    found = (record.scores[score] for record in cell.records if score in record.scores)
    return next((score.higher_is_better for score in found), True)


def _difference(a: Mapping[int, float], b: Mapping[int, float]) -> Interval | None:
    """Return the paired difference over the seeds that both have; None for fewer than two."""
    common = [seed for seed in a if seed in b]
    if len(common) < 2 or not all(math.isfinite(x[seed]) for x in (a, b) for seed in common):
        return None
    return paired_interval(a, b, confidence=CONFIDENCE)


def _marked(rows: Sequence[Row], columns: Sequence[str]) -> list[Row]:
    """Mark the best value of each column at each point, where it is better than every other."""
    marked = list(rows)
    for point in dict.fromkeys(row.point for row in rows):
        for column in columns:
            here = [n for n, row in enumerate(rows) if row.point == point]
            best = _best([rows[n].entries[column] for n in here])
            if best is not None:
                row = marked[here[best]]
                entry = row.entries[column]
                better = Entry(**{**vars(entry), "best": True})
                entries = {**row.entries, column: better}
                marked[here[best]] = Row(**{**vars(row), "entries": entries})
    return marked


def _best(entries: Sequence[Entry]) -> int | None:
    """Return the entry that is better than each other with a figure, if there is one."""
    there = [n for n, entry in enumerate(entries) if entry.summary is not None]
    for n in there:
        sign = 1 if entries[n].higher_is_better else -1
        others = [entries[m] for m in there if m != n]
        gaps = [_difference(entries[n].values, other.values) for other in others]
        if gaps and all(
            gap is not None and min(sign * gap.low, sign * gap.high) > 0 for gap in gaps
        ):
            return n
    return None


def _notes(
    study: Study, scale: str, records: Sequence[RunRecord], rows: Sequence[Row]
) -> list[str]:
    if not records:
        return ["no run has ended"]
    sources = sorted({str(record.data.get("label")) for record in records})
    devices = sorted({str(record.environment.get("device")) for record in records})
    precisions = sorted({str(record.environment.get("precision")) for record in records})
    steps = sorted({record.budget.steps for record in records if record.finished})
    base = next(iter(study.rows))
    notes = [
        f"data: {', '.join(sources)}; {', '.join(precisions)} on {', '.join(devices)}; "
        f"{' or '.join(f'{n:,}' for n in steps) or 'no'} updates",
        "mean +- standard deviation over the seeds that finished; in brackets the difference to "
        f"{base} at the same point, paired by seed, with its 95 % t interval and p value",
        "bold: better than every other row at its point, each interval leaving out zero",
    ]
    if any(entry.document is not None for row in rows for entry in row.entries.values()):
        notes.append(f"document: what {study.document} says, at its own size and data")
    codes = {record.environment.get("code") for record in records}
    if len(codes) > 1:
        notes.append(f"the runs were made by {len(codes)} states of the code")
    for row in rows:
        if row.problem not in (None, "no run"):
            notes.append(f"{row.name} {row.point}: {row.problem}")
    for column in study.columns:
        scores = [record.scores[column] for record in records if column in record.scores]
        signatures = sorted({score.signature for score in scores if score.signature})
        notes += [f"{column}: {signature}" for signature in signatures]
    return notes
