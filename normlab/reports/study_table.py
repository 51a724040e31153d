"""The table of a study: a pure function of the study and the records of its runs.

A row is a setting at a point of the study's grid. For each score it has the mean over the seeds
that finished with its spread, and the difference to the first row at the same point, paired by
seed, with its 95 % t interval and p value (Student 1908: right for as few seeds as two, if
differences are normal). Whether translations would differ on other sentences is another question,
which `normlab compare A B --bootstrap` answers. The title names the data of the numbers; what a
document says of other data is in a column of its own, and no difference to it is made. Runs that
must not be averaged or compared are refused with the reason, and seeds that diverged are counted,
never dropped.
"""

import statistics
from collections.abc import Container, Iterable, Mapping, Sequence

from normlab.metrics.spread import accuracy_interval, learned
from normlab.records.aggregate import Cell
from normlab.records.pairs import code_remark, diff
from normlab.records.record import RunRecord
from normlab.records.store import SPIKE_COUNT
from normlab.reports.comparison import (
    SEEDS_TO_DECIDE,
    Rules,
    best,
    difference,
    diverged_seeds,
    future_note,
    higher_is_better,
    marks,
    not_learned,
    obstacle,
    one_code,
    pairs,
    scored_by,
    values,
)
from normlab.reports.runs import NOT_MADE, Absent
from normlab.reports.table import Entry, Row, Table, figure
from normlab.studies import STABILITY, Planned, Study

BOLD = (
    "bold: better than every other row at its point, p below 0.05 after Holm over all pairs of "
    f"rows; all rows have {SEEDS_TO_DECIDE} seeds or more, all of them finished and clear of the "
    "untrained baseline, and the two runs of each pair have the same code"
)
_OWN_DATA = "A"  # the grade of a scale that is the document's own data and size
_STEPS_SHOWN = 3
_Cells = Mapping[tuple[str, str], Cell]
"""The joined seeds by point and row."""


def build(
    study: Study,
    scale: str,
    runs: Iterable[tuple[Planned, RunRecord | None]],
    *,
    absent: Absent = NOT_MADE,
) -> Table:
    """Return the table of a study from its runs; `absent` names those without a record."""
    groups: dict[tuple[str, str], list[RunRecord | None]] = {}
    for planned, record in runs:
        groups.setdefault((planned.point, planned.row), []).append(record)
    named = [each for row in study.rows.values() for each in row]
    rules = Rules(precision=not any(each.startswith("precision=") for each in named))
    cells = {place: _cell(members, study.columns, absent) for place, members in groups.items()}
    whole = {place: cell for place, cell in cells.items() if isinstance(cell, Cell)}
    records = [record for cell in whole.values() for record in cell.records]
    marked = _best(study, whole, rules)
    rows = [
        _row(study, place, cells, rules, len(own), absent, marked) for place, own in groups.items()
    ]
    size = study.scales.get(scale)
    own_data = size is not None and size.grade == _OWN_DATA
    notes, details = notes_of(study, scale, whole, rows, rules)
    return Table(
        title=f"{study.table}, on {data_name(study, scale, records)} ({study.name}, scale={scale})",
        columns=study.columns,
        rows=tuple(rows),
        notes=tuple(notes),
        details=tuple(details),
        apart=f"document ({study.document_data})"
        if any(study.figures.values()) and not own_data
        else "",
    )


def data_name(study: Study, scale: str, records: Sequence[RunRecord]) -> str:
    """Name the data of the numbers: as the study does if the records agree."""
    named = study.scales[scale].data_name if scale in study.scales else ""
    labels: dict[str, None] = {}
    for data in (record.data for record in records):
        name = data.get("label") or data.get("source") or "data that is not named"
        labels[f"{name} {'-'.join(data.get('languages') or ())}".strip()] = None
    if named and all(label.split()[0].lower() in named.lower() for label in labels):
        return named
    return ", ".join(labels) or "no data"


def _cell(
    members: Sequence[RunRecord | None], columns: Sequence[str], absent: Absent
) -> Cell | str:
    """Join the seeds of a row, or say why they cannot be joined."""
    records = [record for record in members if record is not None]
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
    place: tuple[str, str],
    cells: Mapping[tuple[str, str], Cell | str],
    rules: Rules,
    planned: int,
    absent: Absent,
    marked: Container[tuple[str, str, str]],
) -> Row:
    point, name = place
    cell, said = cells[place], study.figures.get(name, {})
    if isinstance(cell, str):
        empty = {
            column: Entry(None, {}, True, said.get(column), None, None) for column in study.columns
        }
        outcome = cell if cell == absent.alone else "refused"
        return Row(name, point, outcome, (), empty, cell, outcome, said.get(STABILITY))
    base = cells.get((point, study.baseline))
    baseline = base if isinstance(base, Cell) and base is not cell else None
    entries: dict[str, Entry] = {}
    for column in study.columns:
        gap = None if baseline is None else difference(cell, baseline, column, rules=rules)
        entries[column] = Entry(
            summary=cell.score(column),
            values=values(cell, column),
            higher_is_better=higher_is_better(cell, column),
            document=said.get(column),
            difference=None if gap is None else gap.interval,
            p=None if gap is None else gap.p,
            signature=cell.signature(column),
            best=(point, name, column) in marked,
        )
    missing = planned - len(cell.records)
    outcome = cell.outcome + (f", {missing} {absent.among}" if missing else "")
    stability, says = _stability(cell, outcome), said.get(STABILITY)
    return Row(name, point, outcome, cell.seeds, entries, stability=stability, said=says)


def _stability(cell: Cell, outcome: str) -> str:
    """Say how the seeds ended, how many diverged or did not learn, and their median of spikes."""
    spikes = [r.stability[SPIKE_COUNT] for r in cell.records if SPIKE_COUNT in r.stability]
    counted = f"spikes {statistics.median(spikes):g}" if spikes else "spikes not counted"
    diverged = [] if "diverged" in outcome else [f"diverged {diverged_seeds(cell)}"]
    return "; ".join([outcome, *diverged, *marks(cell), counted])


def _best(study: Study, cells: _Cells, rules: Rules) -> set[tuple[str, str, str]]:
    """Return point, row and column of each score that is better than all others at its point."""
    found: set[tuple[str, str, str]] = set()
    for point in dict.fromkeys(point for point, _ in cells):
        here = {row: cell for (at, row), cell in cells.items() if at == point}
        for column in study.columns:
            place = best([*here.values()], column, rules=rules)
            if place is not None:
                found.add((point, [*here][place], column))
    return found


# What a reader must know -------------------------------------------------------------------------


def notes_of(
    study: Study, scale: str, cells: _Cells, rows: Sequence[Row], rules: Rules
) -> tuple[list[str], list[str]]:
    """Return the notes of a table, and further ones for the study's page, in a fixed order."""
    refused = [
        f"{row.label}: {row.problem}" for row in rows if row.problem not in (None, row.outcome)
    ]
    records = [record for cell in cells.values() for record in cell.records]
    if not records:
        return refused or ["no run has ended"], []
    bold = any(entry.best for row in rows for entry in row.entries.values())
    labelled = {_label(place): cell for place, cell in cells.items()}
    notes = [
        _made_of(records),
        *_tested(records),
        "mean +- standard deviation over the seeds that finished; in brackets the difference to "
        f"{study.baseline} at the same point, paired by seed, with its 95 % t interval and p "
        "value, not corrected for multiple comparisons",
        *([BOLD] if bold else []),
        *_few(study, scale, cells),
        *_untrained(study, cells),
        *future_note(labelled),
    ]
    if not any(record.finished for record in records):
        notes.append("no run has finished")
    if any(study.figures.values()):
        notes.append(f"document: what {study.document} says, at its own size and data")
    notes += _code(study, cells, rules)
    notes += [*refused, *_differences(study, cells, rules), *scored_by(labelled, study.columns)]
    flat = any(learned(record) is False for record in records)
    details = [
        *([] if bold else [BOLD.replace("bold:", "nothing is bold, which takes:", 1)]),
        "stability: how the seeds ended, how many diverged, and the median of their loss spikes",
        *(["did not learn: finished no better than the untrained baseline"] if flat else []),
        *_rates(study, scale, rows),
        *_intervals(study, cells),
    ]
    return notes, details


def _label(place: tuple[str, str]) -> str:
    return " ".join(reversed(place)).strip()


def _made_of(records: Sequence[RunRecord]) -> str:
    """Say on which data, in which precision, on what and in how many updates runs were made."""
    sources, devices, precisions = (
        ", ".join(sorted({str(getattr(record, part).get(key)) for record in records}))
        for part, key in (
            ("data", "label"),
            ("environment", "device"),
            ("environment", "precision"),
        )
    )
    steps = sorted({record.budget.steps for record in records if record.finished})
    updates = " or ".join(f"{n:,}" for n in steps) or "no"
    if len(steps) > _STEPS_SHOWN:
        updates = f"{steps[0]:,} to {steps[-1]:,}"
    return f"data: {sources}; {precisions} on {devices}; {updates} updates"


def _tested(records: Sequence[RunRecord]) -> list[str]:
    """Say which weights were tested."""
    kinds = sorted({kind for record in records if record.finished and (kind := _weights(record))})
    return [f"tested: {', or '.join(kinds)}"] if kinds else []


def _weights(record: RunRecord) -> str:
    if record.weights:
        averaged = "average" in record.weights
        return "the mean of the last validations" if averaged else "the last weights"
    validate = record.config.get("validate") or {}
    if validate.get("average"):
        return f"the mean of the last {validate['average']} validations"
    by = validate.get("select_by")
    return f"the weights of the best valid/{by}, not the last" if by else ""


def _few(study: Study, scale: str, cells: _Cells) -> list[str]:
    """Say that a table decides nothing, and why."""
    size = study.scales.get(scale)
    if size is not None and size.pilot:
        return ["a pilot: it decides nothing"]
    fewest = min(len(cell.seeds) for cell in cells.values())
    if fewest < SEEDS_TO_DECIDE:
        return [f"rows of fewer than {SEEDS_TO_DECIDE} seeds decide nothing (fewest: {fewest})"]
    return []


def _untrained(study: Study, cells: _Cells) -> list[str]:
    """Return the untrained baseline of each score, and the rows that are not clear of it."""
    records = [record for cell in cells.values() for record in cell.records]
    found: list[str] = []
    low: list[str] = []
    for column in study.columns:
        name = column.rpartition("/")[2]
        known = [r.floors[name] for r in records if name in r.floors and column in r.scores]
        if known:
            bounds = dict.fromkeys(figure(value, column) for value in (min(known), max(known)))
            found.append(f"{column} {' to '.join(bounds)}")
        own = [_label(p) for p, cell in cells.items() if not_learned(cell, column) is not None]
        if own:
            low.append(f"{column} ({'; '.join(own)})")
    if not found and not low:
        return []
    clear = f"; not clear of it, so a difference says nothing: {'; '.join(low)}" if low else ""
    return [f"untrained baseline: {', '.join(found) or 'not of these scores'}{clear}"]


def _code(study: Study, cells: _Cells, rules: Rules) -> list[str]:
    """Say that the runs have different code, and whether pairs share theirs."""
    records = [record for cell in cells.values() for record in cell.records]
    if code_remark(record.made_by for record in records) is None:
        return []
    bases = {point: cell for (point, row), cell in cells.items() if row == study.baseline}
    apart = [
        _label(place)
        for place, cell in cells.items()
        if place[0] in bases and not one_code(cell, bases[place[0]], rules=rules)
    ]
    among = f"except {'; '.join(apart)}" if apart else "in every row"
    return [f"code: seeds have different states of it; the two runs of a pair share theirs {among}"]


def _differences(study: Study, cells: _Cells, rules: Rules) -> list[str]:
    """Say which rows are not compared with the baseline, and which over some of their seeds."""
    found: dict[str, list[str]] = {}
    for (point, name), cell in cells.items():
        base = cells.get((point, study.baseline))
        if base is None or base is cell:
            continue
        label = _label((point, name))
        if (reason := obstacle(cell, base, rules=rules)) is not None:
            found.setdefault(f"not compared with {study.baseline}, {reason}", []).append(label)
            continue
        own, others = (
            {seed for column in study.columns for seed in values(each, column)}
            for each in (cell, base)
        )
        common = set(pairs(cell, base, rules=rules)[0]) & others
        if own and others and not own == others == common:
            seeds = " ".join(map(str, sorted(common)))
            only = f"only seeds {seeds} are pairs"
            if len(common) < 2:
                only = f"seed {seeds} is the only pair, and a difference takes two"
            found.setdefault(only, []).append(label)
    said = "; ".join(f"{what} ({'; '.join(labels)})" for what, labels in found.items())
    reason = "a pair has a seed of both rows on the same hardware and precision"
    return [f"differences: {said}; {reason}"] if said else []


def _rates(study: Study, scale: str, rows: Sequence[Row]) -> list[str]:
    """Name the values that tuning chose for each row."""
    size = study.scales.get(scale)
    found: dict[str, list[str]] = {}
    for row in rows:
        if size is not None and (chosen := size.chosen(row.name, row.point)):
            found.setdefault(" ".join(chosen), []).append(row.label)
    said = "; ".join(f"{chosen} ({', '.join(labels)})" for chosen, labels in found.items())
    return [f"tuning chose {said}"] if said else []


def _intervals(study: Study, cells: _Cells) -> list[str]:
    """Give the intervals of accuracies over test images, which a spread over seeds lacks."""
    found: list[str] = []
    for column in study.columns:
        texts: list[str] = []
        for place, cell in cells.items():
            scores = [r.scores[column] for r in cell.records if r.finished and column in r.scores]
            if not scores:
                continue
            mean = statistics.fmean(score.value for score in scores)
            bounds = accuracy_interval(column, mean, min(score.n for score in scores))
            if bounds is not None:
                between = " to ".join(figure(bound, column) for bound in bounds)
                texts.append(f"{_label(place)} {between}")
        if texts:
            said = "Wilson's 95 % interval of the mean, by the number of images"
            found.append(f"{column}: {said}: {'; '.join(texts)}")
    return found
