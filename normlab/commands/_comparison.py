"""The tables of `normlab compare`: one row per experiment, and each compared with the baseline."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from normlab.commands._terminal import print_markdown, print_note, print_table
from normlab.metrics.spread import accuracy_interval
from normlab.records.aggregate import Cell, Summary
from normlab.records.labels import in_prose
from normlab.records.pairs import arithmetic, code_remark
from normlab.records.record import RunRecord
from normlab.reports.arrange import NAMED, USUAL, names
from normlab.reports.comparison import (
    COMPARE,
    CONFIDENCE,
    Difference,
    Settings,
    beyond_names,
    compared,
    difference,
    future_note,
    higher_is_better,
    marks,
    not_learned,
    obstacles,
    scored_by,
    some,
    values,
)
from normlab.reports.table import average, signed_figure

# Shown where a run has them and no other score is asked for.
_SCORES = (
    *("test/bleu", "test/mlm_accuracy", "test/nsp_accuracy", "test/bits_per_character"),
    "test/accuracy",
)
_ALWAYS = "valid/loss"
_SPIKES = "stability/spikes/count"
_LISTED = 3  # rows that a note names of those that share a value


@dataclass(frozen=True)
class Row:
    """A row of the table: its cell, what it is named by, and what sets it apart from its like."""

    cell: Cell
    names: tuple[str, ...]
    also: str = ""
    label: str = ""

    @property
    def kind(self) -> tuple[str, str]:
        """Return task and corpus: rows of another have other scores and another baseline."""
        return self.names[2], self.names[3]


def named_rows(cells: Sequence[Cell]) -> list[Row]:
    """Name the rows; the label of each has what not all of them share."""
    found = names([cell.config for cell in cells])
    return [Row(cell, *name) for cell, name in zip(cells, found, strict=True)]


def usual_scores(records: Sequence[RunRecord]) -> list[str]:
    """Return the scores that any of the runs has of those that their tasks are judged by."""
    there = [name for name in _SCORES if any(name in record.scores for record in records)]
    return [*there, _ALWAYS]


def show(
    cells: Sequence[Cell], scores: Sequence[str], *, baseline: str | None, markdown: bool
) -> None:
    """Print the rows, best first, and each compared with the baseline of its task.

    Raises ValueError for a baseline that is no row, or several.
    """
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in named_rows(cells):
        kinds.setdefault(row.kind, []).append(row)
    wanted = [baseline is not None and _fitting(rows, baseline) for rows in kinds.values()]
    if baseline is not None and not any(wanted):
        labels = [f"'{row.label}'" for rows in kinds.values() for row in rows]
        raise ValueError(f"--baseline {baseline}: no row of that name; there are {some(labels, 8)}")
    groups = [
        _Group.of(rows, scores, baseline if fits else None)
        for rows, fits in zip(kinds.values(), wanted, strict=True)
    ]
    print_rows = print_markdown if markdown else print_table
    _print_scores(groups, scores, print_rows)
    for group in groups:
        if len(group.rows) > 1:
            _print_differences(group, print_rows)


def choose_baseline(rows: Sequence[Row], score: str, wanted: str | None) -> Row:
    """Return the row that others are compared with: the one wanted, else the best of layer norm.

    Without either it is the best row. A wanted label is one or more words of a row's label;
    ValueError where it fits no row or several.
    """
    ordered = best_first(rows, score)
    if wanted is None:
        return next((row for row in ordered if row.cell.norm == USUAL), ordered[0])
    fitting = _fitting(ordered, wanted)
    if len(fitting) != 1:
        fits = ", ".join(f"'{row.label}'" for row in fitting or ordered)
        raise ValueError(f"--baseline {wanted}: fits {len(fitting)} rows: {fits}; name one")
    return fitting[0]


def _fitting(rows: Sequence[Row], wanted: str) -> list[Row]:
    words = wanted.split()
    fitting = [row for row in rows if set(words) <= set(row.label.split())]
    return [row for row in fitting if row.label.split() == words] or fitting


def best_first(rows: Sequence[Row], score: str) -> list[Row]:
    """Sort rows by a score in its own direction; those without a number come last."""

    def place(row: Row) -> tuple[bool, float]:
        found = row.cell.score(score)
        if found is None or math.isnan(found.mean):
            return True, 0.0
        return False, -found.mean if higher_is_better(row.cell, score) else found.mean

    return sorted(rows, key=place)


@dataclass(frozen=True)
class _Group:
    """The rows of one task on one corpus, best first, and their baseline."""

    rows: tuple[Row, ...]
    score: str
    baseline: Row
    differences: tuple[Difference, ...]  # of each row
    unlike: tuple[Settings, ...]  # what each differs in beyond its name

    @classmethod
    def of(cls, rows: Sequence[Row], scores: Sequence[str], wanted: str | None) -> "_Group":
        there = (name for name in scores if any(row.cell.score(name) for row in rows))
        score = next(there, scores[0])
        ordered = tuple(best_first(rows, score))
        baseline = choose_baseline(ordered, score, wanted)
        unlike = tuple(beyond_names(row.cell, baseline.cell) for row in ordered)
        found = tuple(
            Difference(reason="; ".join(fixed))
            if (fixed := obstacles(apart))
            else difference(row.cell, baseline.cell, score, rules=COMPARE)
            for row, apart in zip(ordered, unlike, strict=True)
        )
        return cls(ordered, score, baseline, found, unlike)


def _print_scores(
    groups: Sequence[_Group], scores: Sequence[str], print_rows: Callable[..., None]
) -> None:
    rows = [row for group in groups for row in group.rows]
    cells = [row.cell for row in rows]
    units = {record.unit for cell in cells for record in cell.records}
    speed = f"{' or '.join(sorted(units))}/s"
    columns = [*NAMED, "also", "seeds", *scores, "spikes", "outcome", speed]
    table = [[*row.names, row.also, *_scores_of(row.cell, scores)] for row in rows]
    notes = [note for group in groups for note in _unlike_rows(group)]
    scales = ", ".join(sorted({cell.choice("scale") or "none" for cell in cells} - {"none"}))
    notes.append(f"{scales and f'scale: {scales}; '}mean +- standard deviation over finished seeds")
    notes += future_note({row.label: row.cell for row in rows})
    remark = code_remark(record.made_by for cell in cells for record in cell.records)
    if remark is not None:
        notes.append(f"these runs were {remark}")
    kinds = {" ".join(arithmetic(record)) for cell in cells for record in cell.records}
    if len(kinds) > 1:
        notes.append(f"computed in different arithmetic: {', '.join(sorted(kinds))}")
    notes += scored_by({row.label: row.cell for row in rows}, scores, most=_LISTED)
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


def _unlike_rows(group: _Group) -> list[str]:
    """Say what the rows of a task differ in beyond their names, and which has what."""
    found: dict[str, dict[str, list[str]]] = {}
    apart = group.unlike
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
        + "; ".join(f"{value} ({some(labels, _LISTED)})" for value, labels in values.items())
        for key, values in found.items()
    ]


def _scores_of(cell: Cell, scores: Iterable[str]) -> list[str]:
    return [
        " ".join(str(seed) for seed in cell.seeds),
        *(
            average(cell.score(name), values(cell, name).values(), name) + _bounds(cell, name)
            for name in scores
        ),
        _mean(cell.stability(_SPIKES), 1),
        "; ".join([cell.outcome, *marks(cell)]),
        _mean(cell.tokens_per_second(), 0),
    ]


def _bounds(cell: Cell, name: str) -> str:
    """Return the Wilson interval of an accuracy, "" for several seeds, which have a spread."""
    found = cell.records[0].figure(name) if len(cell.records) == 1 else None
    bounds = accuracy_interval(name, found.value, found.n) if found is not None else None
    return f" [{', '.join(f'{bound:.3f}' for bound in bounds)}]" if bounds else ""


def _mean(summary: Summary | None, digits: int) -> str:
    return "-" if summary is None else f"{summary.mean:.{digits}f}"


def _print_differences(group: _Group, print_rows: Callable[..., None]) -> None:
    """Print each row's difference to the baseline, or why there is none."""
    baseline = group.baseline
    better = "higher" if higher_is_better(baseline.cell, group.score) else "lower"
    title = (
        f"{group.score} ({better} is better) vs. the baseline {baseline.label}: row minus "
        "baseline, by seed"
    )
    print()
    if print_rows is print_markdown:
        print(f"{in_prose(title)}\n")
    else:
        print_note(title)
    rows = [
        [row.label, *_difference(found, group.score), _remarks(found, apart)]
        for row, found, apart in zip(group.rows, group.differences, group.unlike, strict=True)
        if row is not baseline
    ]
    percent = f"{CONFIDENCE:.0%} interval"
    columns = ["row", "difference", percent, "pairs", "remarks"]
    if not any(row[-1] for row in rows):
        columns, *rows = _without("remarks", [columns, *rows])
    notes = [
        f"NOT CLEAR OF THE UNTRAINED BASELINE: {row.label}: {low}; its differences say nothing"
        for row in group.rows
        if (low := not_learned(row.cell, group.score)) is not None
    ]
    notes.append("Student's t intervals, one per row, not corrected for multiple comparisons")
    if any(row[3] == "1" for row in rows):
        notes.append("one pair of seeds has no interval: train more seeds")
    print_rows(columns, rows, notes=notes, numeric=columns[1:4], whole=True)


def _difference(found: Difference, score: str) -> list[str]:
    if found.mean is None:
        return ["-", "-", "0"]
    low_high = found.interval and (found.interval.low, found.interval.high)
    bounds = f"[{', '.join(signed_figure(each, score) for each in low_high)}]" if low_high else "-"
    return [signed_figure(found.mean, score), bounds, str(len(found.pairs))]


def _remarks(found: Difference, unlike: Settings) -> str:
    if found.reason is not None:
        return f"not paired: {found.reason}"
    apart = [f"{key} {own}, the baseline's {its}" for key, (own, its) in unlike.items()]
    left_out = [
        f"{len(seeds)} seed{'s' * (len(seeds) > 1)} left out: {reason} "
        f"({' '.join(map(str, seeds))})"
        for reason, seeds in found.left_out.items()
    ]
    return "; ".join([*apart, *left_out])
