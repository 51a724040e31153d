"""The tables of `normlab compare`: a row an experiment, and each row beside the baseline."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from normlab.commands._rows import NAMED, Row, named_rows
from normlab.commands._terminal import print_markdown, print_note, print_table
from normlab.metrics.statistics import accuracy_interval
from normlab.records.aggregate import Cell, Summary
from normlab.records.arithmetic import arithmetic
from normlab.records.code import code_remark
from normlab.records.record import RunRecord
from normlab.records.text import in_prose
from normlab.reports.beside import (
    CONFIDENCE,
    Beside,
    beside,
    best_first,
    choose,
    compared,
    headline,
)
from normlab.reports.comparison import higher_is_better

# Shown where a run has them and no other score is asked for.
_SCORES = (
    *("test/bleu", "test/mlm_accuracy", "test/nsp_accuracy", "test/bits_per_character"),
    "test/accuracy",
)
_ALWAYS = "valid/loss"
_SPIKES = "stability/spikes/count"
_LISTED = 3  # rows that a note names of those that share a value


def usual_scores(records: Sequence[RunRecord]) -> list[str]:
    """Return the scores that any of the runs has of those that their tasks are judged by."""
    there = [name for name in _SCORES if any(name in record.scores for record in records)]
    return [*there, _ALWAYS]


def show(
    cells: Sequence[Cell], scores: Sequence[str], *, baseline: str | None, markdown: bool
) -> None:
    """Print the rows, best first, and each beside the baseline of its task.

    Raises ValueError for a baseline that is no row, or several.
    """
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in named_rows(cells):
        kinds.setdefault(row.kind, []).append(row)
    tables = [_Group.of(rows, scores, baseline) for rows in kinds.values()]
    if baseline is not None and not any(group.wanted for group in tables):
        labels = [f"'{row.label}'" for group in tables for row in group.rows]
        raise ValueError(
            f"--baseline {baseline}: no row of that name; there are {_some(labels, 8)}"
        )
    print_rows = print_markdown if markdown else print_table
    _print_figures(tables, scores, print_rows)
    for group in tables:
        if len(group.rows) > 1:
            _print_differences(group, print_rows)


@dataclass(frozen=True)
class _Group:
    """The rows of one task on one corpus, best first, and the one that others stand beside."""

    rows: tuple[Row, ...]
    score: str
    baseline: Row
    beside: tuple[Beside, ...]  # of each row
    wanted: bool  # the baseline is the one that was asked for

    @classmethod
    def of(cls, rows: Sequence[Row], scores: Sequence[str], wanted: str | None) -> "_Group":
        by_cell = {row.cell.fingerprint: row for row in rows}
        score = headline([row.cell for row in rows], scores)
        cells = best_first([row.cell for row in rows], score)
        ordered = tuple(by_cell[cell.fingerprint] for cell in cells)
        labels = [row.label for row in ordered]
        found = None if wanted is None else choose(cells, labels, wanted)
        baseline = found or choose(cells, labels, None)
        assert baseline is not None, "without a wish there is one"
        against = tuple(beside(cell, baseline, score) for cell in cells)
        row = by_cell[baseline.fingerprint]
        return cls(ordered, score, row, against, wanted=found is not None)


def _print_figures(
    groups: Sequence[_Group], scores: Sequence[str], print_rows: Callable[..., None]
) -> None:
    rows = [row for group in groups for row in group.rows]
    cells = [row.cell for row in rows]
    units = {record.unit for cell in cells for record in cell.records}
    speed = f"{' or '.join(sorted(units))}/s"
    columns = [*NAMED, "also", "seeds", *scores, "spikes", "outcome", speed]
    table = [[*row.names, row.also, *_figures(row.cell, scores)] for row in rows]
    notes = [note for group in groups for note in _unlike_rows(group)]
    scales = sorted({cell.choice("scale") or "none" for cell in cells})
    notes.append(f"scale: {', '.join(scales)}; mean +- standard deviation over finished seeds")
    remark = code_remark(record.environment for cell in cells for record in cell.records)
    if remark is not None:
        notes.append(f"these runs were {remark}")
    kinds = {" ".join(arithmetic(record)) for cell in cells for record in cell.records}
    if len(kinds) > 1:
        notes.append(f"computed in unlike arithmetic: {', '.join(sorted(kinds))}")
    for name in scores:
        notes += _signatures(name, columns.index(name), table, cells)
    if not any(row.also for row in rows):
        columns, *table = _without("also", [columns, *table])
    corpora = {row.names[3] for row in rows}
    if len(corpora) == 1:  # a column is for what varies
        columns, *table = _without("corpus", [columns, *table])
        notes += [f"corpus: {corpus}" for corpus in corpora - {"-"}]
    labels = columns.index("seeds")
    print_rows(columns, table, notes=notes, numeric=[*scores, "spikes", speed], labels=labels)


def _without(column: str, lines: Sequence[list[str]]) -> list[list[str]]:
    at = lines[0].index(column)
    return [[*line[:at], *line[at + 1 :]] for line in lines]


def _signatures(
    name: str, column: int, table: Sequence[list[str]], cells: Sequence[Cell]
) -> list[str]:
    """Say how a score was made; mark figures that were scored in different ways by a letter."""
    signatures = sorted({cell.signature(name) or "" for cell in cells} - {""})
    if len(signatures) < 2:
        return [f"{name}: {signature}" for signature in signatures]
    names = (a + b for a in ("", *ascii_lowercase) for b in ascii_lowercase)
    letters = dict(zip(signatures, names, strict=False))
    for row, cell in zip(table, cells, strict=True):
        if signature := cell.signature(name):
            row[column] += f" ({letters[signature]})"
    return [f"{name} ({letters[signature]}): {signature}" for signature in signatures]


def _unlike_rows(group: _Group) -> list[str]:
    """Say what the rows of a task differ in beyond their names, and which has what."""
    found: dict[str, dict[str, list[str]]] = {}
    apart = [each.unlike for each in group.beside]
    own = [
        {**each, **compared(row.cell, group.baseline.cell)}
        for row, each in zip(group.rows, apart, strict=True)
    ]
    for key in dict.fromkeys(key for each in apart for key in each):
        usual = next(each[key][1] for each in apart if key in each)
        for row, each in zip(group.rows, own, strict=True):
            value = each[key][0] if key in each else usual
            found.setdefault(key, {}).setdefault(str(value), []).append(row.label)
    return [
        f"NOT ALIKE: rows differ in {key}: "
        + "; ".join(f"{value} ({_some(labels)})" for value, labels in values.items())
        for key, values in found.items()
    ]


def _some(labels: Sequence[str], most: int = _LISTED) -> str:
    more = [f"{len(labels) - most} more"] if len(labels) > most else []
    return ", ".join([*labels[:most], *more])


def _figures(cell: Cell, scores: Iterable[str]) -> list[str]:
    return [
        " ".join(str(seed) for seed in cell.seeds),
        *(_figure(cell.score(name), digits=_digits(name)) + _bounds(cell, name) for name in scores),
        _figure(cell.stability(_SPIKES), digits=1, spread=False),
        cell.outcome,
        _figure(cell.tokens_per_second(), digits=0, spread=False),
    ]


def _bounds(cell: Cell, name: str) -> str:
    """Return Wilson's interval of one run's accuracy; several have a spread over seeds."""
    found = cell.records[0].figure(name) if len(cell.records) == 1 else None
    bounds = accuracy_interval(name, found.value, found.n) if found is not None else None
    return f" [{', '.join(f'{bound:.3f}' for bound in bounds)}]" if bounds else ""


def _digits(score: str) -> int:
    """BLEU and chrF are read to two digits, losses, accuracies (0 to 1) and bits to three."""
    if "_to/" in score:  # steps and tokens
        return 0
    return 3 if score.endswith("loss") or "accuracy" in score or "bits" in score else 2


def _figure(summary: Summary | None, *, digits: int, spread: bool = True) -> str:
    if summary is None:
        return "-"
    if math.isinf(summary.mean):
        return "not reached" if summary.n == 1 else "not by all"
    mean = f"{summary.mean:.{digits}f}"
    return mean if summary.sd is None or not spread else f"{mean} +- {summary.sd:.{digits}f}"


def _print_differences(group: _Group, print_rows: Callable[..., None]) -> None:
    """Print each row's difference to the baseline, or why there is none."""
    baseline, digits = group.baseline, _digits(group.score)
    better = "higher" if higher_is_better(baseline.cell, group.score) else "lower"
    title = (
        f"{group.score} ({better} is better) beside the baseline {baseline.label}: row minus "
        "baseline, by seed"
    )
    print()
    if print_rows is print_markdown:
        print(f"{in_prose(title)}\n")
    else:
        print_note(title)
    rows: list[list[str]] = []
    for row, found in zip(group.rows, group.beside, strict=True):
        if row is not baseline:
            rows.append([row.label, *_difference(found, digits), _remarks(found)])
    percent = f"{CONFIDENCE:.0%} interval"
    columns = ["row", "difference", percent, "pairs", "remarks"]
    if not any(row[-1] for row in rows):
        columns, *rows = _without("remarks", [columns, *rows])
    notes = ["intervals by Student's t, one row at a time: not corrected for their number"]
    if any(row[3] == "1" for row in rows):
        notes.append("one pair of seeds has no interval: train more seeds")
    print_rows(columns, rows, notes=notes, numeric=columns[1:4], whole=True)


def _difference(found: Beside, digits: int) -> list[str]:
    if found.mean is None:
        return ["-", "-", "0"]
    interval = found.interval
    bounds = (
        "-" if interval is None else f"[{interval.low:+.{digits}f}, {interval.high:+.{digits}f}]"
    )
    return [f"{found.mean:+.{digits}f}", bounds, str(found.pairs)]


def _remarks(found: Beside) -> str:
    if found.reason is not None:
        return f"not paired: {found.reason}"
    unlike = [f"{key} {own}, the baseline's {its}" for key, (own, its) in found.unlike.items()]
    left_out = [
        f"{len(seeds)} seed{'s' * (len(seeds) > 1)} left out: {reason} "
        f"({' '.join(map(str, seeds))})"
        for reason, seeds in found.left_out.items()
    ]
    return "; ".join([*unlike, *left_out])
