"""What a reader of a table must know: a sentence a note."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from normlab.metrics.statistics import accuracy_interval
from normlab.records.aggregate import Cell
from normlab.records.code import code_remark
from normlab.records.record import RunRecord
from normlab.reports.comparison import SEEDS_TO_DECIDE, Comparison, values
from normlab.reports.digits import figure
from normlab.reports.row import Row
from normlab.studies import Study

_STEPS_SHOWN = 3
BOLD = (
    f"bold: all rows have {SEEDS_TO_DECIDE} seeds or more, all seeds finished, clear of the floor "
    "and made by the same code, and this is better than every other row at its point, p below 0.05 "
    "after Holm over all pairs of rows"
)
STABILITY_NOTE = (
    "stability: how the seeds ended, how many diverged, and the median of their loss spikes"
)


def notes_of(
    study: Study,
    scale: str,
    cells: Mapping[tuple[str, str], Cell],
    rows: Sequence[Row],
    comparison: Comparison,
) -> list[str]:
    """Return the notes of a table, in a fixed order; `cells` are by point and row."""
    refused = [
        f"{row.label}: {row.problem}" for row in rows if row.problem not in (None, row.outcome)
    ]
    records = [record for cell in cells.values() for record in cell.records]
    if not records:
        return refused or ["no run has ended"]
    notes = [
        _made_of(records),
        *_tested(records),
        "mean +- standard deviation over the seeds that finished; in brackets the difference to "
        f"{study.baseline} at the same point, paired by seed, with its 95 % t interval and its p, "
        "not corrected for how many there are",
        BOLD,
        STABILITY_NOTE,
        *_few(study, scale, cells),
        *_floors(study, records),
        *_intervals(study, cells),
    ]
    if not any(record.finished for record in records):
        notes.append("no run has finished")
    if any(study.figures.values()):
        notes.append(f"document: what {study.document} says, at its own size and data")
    if (remark := code_remark(record.environment for record in records)) is not None:
        notes.append(f"the runs were {remark}")
    notes += refused
    notes += _rates(study, scale, rows)
    notes += _comparisons(study, cells, comparison)
    return notes + _signatures(study, rows)


def _tested(records: Sequence[RunRecord]) -> list[str]:
    """Say which weights the tests are of."""
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


def _few(study: Study, scale: str, cells: Mapping[tuple[str, str], Cell]) -> list[str]:
    """Say of a table that decides nothing that it does not, and why."""
    size = study.scales.get(scale)
    if size is not None and size.pilot:
        return ["a pilot: it decides nothing"]
    fewest = min(len(cell.seeds) for cell in cells.values())
    if fewest < SEEDS_TO_DECIDE:
        return [f"rows of fewer than {SEEDS_TO_DECIDE} seeds decide nothing (fewest: {fewest})"]
    return []


def _floors(study: Study, records: Sequence[RunRecord]) -> list[str]:
    """Name what each score is worth without learning, where records know."""
    found: list[str] = []
    for column in study.columns:
        name = column.rpartition("/")[2]
        known = [r.floors[name] for r in records if name in r.floors and column in r.scores]
        if known:
            bounds = dict.fromkeys(figure(value, column) for value in (min(known), max(known)))
            found.append(f"{column} {' to '.join(bounds)}")
    said = "worth without learning (a figure near it decides nothing)"
    return [f"{said}: {', '.join(found)}"] if found else []


def _intervals(study: Study, cells: Mapping[tuple[str, str], Cell]) -> list[str]:
    """Give the intervals of accuracies on the test's pictures, which a spread does not hold."""
    found: list[str] = []
    for column in study.columns:
        texts: list[str] = []
        for (point, name), cell in cells.items():
            scores = [r.scores[column] for r in cell.records if r.finished and column in r.scores]
            if not scores:
                continue
            mean = fmean(score.value for score in scores)
            bounds = accuracy_interval(column, mean, min(score.n for score in scores))
            if bounds is not None:
                between = " to ".join(figure(bound, column) for bound in bounds)
                texts.append(f"{f'{name} {point}'.strip()} {between}")
        if texts:
            said = "Wilson's 95 % interval of the mean, by the number of pictures"
            found.append(f"{column}: {said}: {'; '.join(texts)}")
    return found


def _rates(study: Study, scale: str, rows: Sequence[Row]) -> list[str]:
    """Name the values that tuning chose for a row."""
    size = study.scales.get(scale)
    chosen = [] if size is None else [(row, size.chosen(row.name, row.point)) for row in rows]
    return [f"{row.label}: tuning chose {' '.join(values)}" for row, values in chosen if values]


def _comparisons(
    study: Study, cells: Mapping[tuple[str, str], Cell], comparison: Comparison
) -> list[str]:
    """Say which rows are not compared with the baseline, and of which seeds a difference is."""
    notes: list[str] = []
    for (point, name), cell in cells.items():
        base = cells.get((point, study.baseline))
        if base is None or base is cell:
            continue
        label = f"{name} {point}".strip()
        if (reason := comparison.obstacle(cell, base)) is not None:
            notes.append(f"{label}: not compared with {study.baseline}: {reason}")
            continue
        own, others = (
            {seed for column in study.columns for seed in values(each, column)}
            for each in (cell, base)
        )
        common = set(comparison.paired_seeds(cell, base)) & others
        if own and others and not own == others == common:
            seeds = " ".join(map(str, sorted(common))) or "none"
            made = "paired over" if len(common) > 1 else "not made, which takes two of"
            notes.append(
                f"{label}: the difference to {study.baseline} is {made} the seeds that both have "
                f"in like arithmetic: {seeds}"
            )
    return notes


def _signatures(study: Study, rows: Sequence[Row]) -> list[str]:
    notes: list[str] = []
    for column in study.columns:
        ways: dict[str, list[str]] = {}
        for row in rows:
            if signature := row.entries[column].signature:
                ways.setdefault(signature, []).append(row.label)
        for signature, names in sorted(ways.items()):
            of = f" ({', '.join(names)})" if len(ways) > 1 else ""
            notes.append(f"{column}{of}: {signature}")
    return notes


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
