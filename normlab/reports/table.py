"""Decides what a comparison table says: a pure function of a study and the records of its runs.

A row is a setting at a point of the study's grid. Of each score it has the mean over the seeds that
finished with its spread, what the document says, and the difference to the first row at the same
point, paired by seed, with its 95 % t interval and p value (Student 1908: right for as few seeds as
two, if differences are normal). Whether translations would differ on other sentences is another
question, which `normlab compare A B --bootstrap` answers. The best value of a column at a point is
marked only where all of its seeds finished and its interval against every other row leaves out
zero. Runs that must not be averaged or compared are refused with the reason, and seeds that
diverged are counted, never dropped.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from normlab.metrics.spread import Interval, p_value, paired_interval
from normlab.records.aggregate import Cell, Summary
from normlab.records.fingerprint import diff
from normlab.records.record import RunRecord
from normlab.studies import Planned, Study

CONFIDENCE = 0.95
NO_RUN = "no run"
# What two rows share if their difference is to be one of the settings that the study declares.
_SHARED = (
    *(("data", key) for key in ("source", "sizes", "checksums")),
    ("environment", "world_size"),
)
_STEPS_SHOWN = 3


@dataclass(frozen=True)
class Entry:
    """One score of one row: its summary, what the document says, the difference to the baseline."""

    summary: Summary | None
    values: Mapping[int, float]
    higher_is_better: bool
    document: str | float | None
    difference: Interval | None
    p: float | None
    signature: str | None = None
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
    notes: tuple[str, ...] = ()


def build(study: Study, scale: str, runs: Iterable[tuple[Planned, RunRecord | None]]) -> Table:
    """Return the table of a study from its runs, of which some may not have been made."""
    groups: dict[tuple[str, str], list[tuple[Planned, RunRecord | None]]] = {}
    for planned, record in runs:
        groups.setdefault((planned.point, planned.row), []).append((planned, record))
    cells = {place: _cell(members, study.columns) for place, members in groups.items()}
    apart = _apart(cells)
    rows = [
        _row(study, name, point, cells, planned=len(members), apart=apart)
        for (point, name), members in groups.items()
    ]
    records = [c for cell in cells.values() if isinstance(cell, Cell) for c in cell.records]
    return Table(
        title=f"{study.table} ({study.document}), scale={scale}",
        columns=study.columns,
        rows=tuple(_marked(rows, study.columns, apart)),
        notes=tuple(_notes(study, records, rows, apart)),
    )


_Place = tuple[str, str]
"""A point of the grid, and a row."""
_Apart = Mapping[tuple[_Place, _Place], str]
"""Which rows at one point cannot be compared, and why."""


def _cell(
    members: Sequence[tuple[Planned, RunRecord | None]], columns: Sequence[str]
) -> Cell | str:
    """Join the seeds of a row, or say why they cannot be."""
    records = [record for _, record in members if record is not None]
    if not records:
        return NO_RUN
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


def _apart(cells: Mapping[_Place, Cell | str]) -> dict[tuple[_Place, _Place], str]:
    """Find the pairs of rows at one point whose difference would not be that of their settings."""
    points: dict[str, list[tuple[_Place, Cell]]] = {}
    for place, cell in cells.items():
        if isinstance(cell, Cell):
            points.setdefault(place[0], []).append((place, cell))
    found: dict[tuple[_Place, _Place], str] = {}
    for here in points.values():
        for (a, first), (b, second) in permutations(here, 2):
            if (reason := _mismatch(first, second)) is not None:
                found[a, b] = reason
    return found


def _mismatch(a: Cell, b: Cell) -> str | None:
    one, other = a.records[0], b.records[0]
    shared = list(_SHARED)
    if a.config.get("precision") == b.config.get("precision"):  # auto is another on each machine
        shared.append(("environment", "precision"))
    for part, key in shared:
        values = [getattr(record, part).get(key) for record in (one, other)]
        if values[0] != values[1]:
            return f"{part}.{key} is {values[0]!r:.60} and {values[1]!r:.60}"
    return None


def _row(
    study: Study,
    name: str,
    point: str,
    cells: Mapping[_Place, Cell | str],
    *,
    planned: int,
    apart: _Apart,
) -> Row:
    cell = cells[point, name]
    said = study.figures.get(name, {})
    if isinstance(cell, str):
        empty = {
            column: Entry(None, {}, True, said.get(column), None, None) for column in study.columns
        }
        return Row(name, point, NO_RUN if cell == NO_RUN else "refused", (), empty, problem=cell)
    base = cells.get((point, study.baseline))
    comparable = ((point, name), (point, study.baseline)) not in apart
    baseline = base if isinstance(base, Cell) and base is not cell and comparable else None
    entries: dict[str, Entry] = {}
    for column in study.columns:
        values = _values(cell, column)
        difference = None
        if baseline is not None and _same_way(cell, baseline, column):
            difference = _difference(values, _values(baseline, column))
        entries[column] = Entry(
            summary=cell.score(column),
            values=values,
            higher_is_better=_higher_is_better(cell, column),
            document=said.get(column),
            difference=difference,
            p=None if difference is None else p_value(difference),
            signature=cell.signature(column),
        )
    missing = planned - len(cell.records)
    outcome = cell.outcome + (f", {missing} not run" if missing else "")
    return Row(name, point, outcome, cell.seeds, entries)


def _same_way(a: Cell, b: Cell, score: str) -> bool:
    """Tell whether both were scored in the same way, as far as they say."""
    return a.signature(score) == b.signature(score)


def _values(cell: Cell, score: str) -> dict[int, float]:
    found = {record.seed: record.figure(score) for record in cell.records if record.finished}
    return {seed: figure.value for seed, figure in found.items() if figure is not None}


def _higher_is_better(cell: Cell, score: str) -> bool:
    found = (record.figure(score) for record in cell.records)
    return next((figure.higher_is_better for figure in found if figure is not None), True)


def _difference(a: Mapping[int, float], b: Mapping[int, float]) -> Interval | None:
    """Return the paired difference over the seeds that both have; None for fewer than two."""
    common = [seed for seed in a if seed in b]
    if len(common) < 2 or not all(math.isfinite(x[seed]) for x in (a, b) for seed in common):
        return None
    return paired_interval(a, b, confidence=CONFIDENCE)


def _marked(rows: Sequence[Row], columns: Sequence[str], apart: _Apart) -> list[Row]:
    """Mark the best value of each column at each point, where it is better than every other."""
    marked = list(rows)
    points: dict[str, list[int]] = {}
    for n, row in enumerate(rows):
        points.setdefault(row.point, []).append(n)
    for here in points.values():
        for column in columns:
            best = _best([rows[n] for n in here], column, apart)
            if best is not None:
                row = marked[here[best]]
                entry = replace(row.entries[column], best=True)
                marked[here[best]] = replace(row, entries={**row.entries, column: entry})
    return marked


def _best(rows: Sequence[Row], column: str, apart: _Apart) -> int | None:
    """Return the row that is better than each other with a figure, if there is one."""
    there = [n for n, row in enumerate(rows) if row.entries[column].summary is not None]
    for n in there:
        entry = rows[n].entries[column]
        others = [rows[m] for m in there if m != n]
        if (
            len(entry.values) == len(rows[n].seeds)
            and others
            and all(_better(rows[n], other, column, apart) for other in others)
        ):
            return n
    return None


def _better(a: Row, b: Row, column: str, apart: _Apart) -> bool:
    one, other = a.entries[column], b.entries[column]
    if ((a.point, a.name), (b.point, b.name)) in apart or one.signature != other.signature:
        return False
    gap = _difference(one.values, other.values)
    sign = 1 if one.higher_is_better else -1
    return gap is not None and min(sign * gap.low, sign * gap.high) > 0


def _notes(
    study: Study, records: Sequence[RunRecord], rows: Sequence[Row], apart: _Apart
) -> list[str]:
    if not records:
        refused = [f"{_label(row)}: {row.problem}" for row in rows if _refused(row)]
        return refused or ["no run has ended"]
    notes = [
        _made_of(records),
        "mean +- standard deviation over the seeds that finished; in brackets the difference to "
        f"{study.baseline} at the same point, paired by seed, with its 95 % t interval and p value",
        "bold: all seeds finished and better than every other row at its point, each interval "
        "leaving out zero",
    ]
    if not any(record.finished for record in records):
        notes.append("no run has finished")
    if any(entry.document is not None for row in rows for entry in row.entries.values()):
        notes.append(f"document: what {study.document} says, at its own size and data")
    codes = {record.environment.get("code") for record in records}
    if len(codes) > 1:
        notes.append(f"the runs were made by {len(codes)} states of the code")
    notes += [f"{_label(row)}: {row.problem}" for row in rows if _refused(row)]
    notes += _unpaired(study, rows)
    for row in rows:
        reason = apart.get(((row.point, row.name), (row.point, study.baseline)))
        if reason is not None:
            notes.append(f"{_label(row)}: not compared with {study.baseline}: {reason}")
    for column in study.columns:
        ways: dict[str, list[str]] = {}
        for row in rows:
            if signature := row.entries[column].signature:
                ways.setdefault(signature, []).append(_label(row))
        for signature, names in sorted(ways.items()):
            of = f" ({', '.join(names)})" if len(ways) > 1 else ""
            notes.append(f"{column}{of}: {signature}")
    return notes


def _unpaired(study: Study, rows: Sequence[Row]) -> list[str]:
    """Say of which seeds a difference is made where one side has others too."""
    baselines = {row.point: row for row in rows if row.name == study.baseline}
    notes: list[str] = []
    for row in rows:
        base = baselines.get(row.point)
        if base is None or base is row:
            continue
        own, others = (
            {seed for entry in each.entries.values() for seed in entry.values}
            for each in (row, base)
        )
        common = own & others
        if not own or not others or own == others:
            continue
        seeds = " ".join(map(str, sorted(common))) or "none"
        made = "paired over" if len(common) > 1 else "not made, which takes two of"
        notes.append(
            f"{_label(row)}: the difference to {study.baseline} is {made} the seeds that both "
            f"have: {seeds}"
        )
    return notes


def _label(row: Row) -> str:
    return f"{row.name} {row.point}".strip()


def _refused(row: Row) -> bool:
    return row.problem not in (None, NO_RUN)


def _made_of(records: Sequence[RunRecord]) -> str:
    """Say on which data, in which precision, on what and in how many updates runs were made."""
    sources = sorted({str(record.data.get("label")) for record in records})
    devices = sorted({str(record.environment.get("device")) for record in records})
    precisions = sorted({str(record.environment.get("precision")) for record in records})
    steps = sorted({record.budget.steps for record in records if record.finished})
    updates = " or ".join(f"{n:,}" for n in steps) or "no"
    if len(steps) > _STEPS_SHOWN:
        updates = f"{steps[0]:,} to {steps[-1]:,}"
    return (
        f"data: {', '.join(sources)}; {', '.join(precisions)} on {', '.join(devices)}; "
        f"{updates} updates"
    )
