"""A comparison table, and its text of fixed bytes: Markdown, LaTeX (booktabs), CSV.

Pages (`study_page.py`) and terminals write their cells by `parts`, as these do.
"""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from normlab.metrics.spread import Interval
from normlab.records.aggregate import Summary
from normlab.records.text import in_markdown, in_prose, in_sheet, one_line

_HUGE = 1e5
_MOST_STEPS = 1e15
_CSV = (
    *("setting", "at", "score", "mean", "sd", "n", "seeds"),
    *("difference", "low", "high", "p", "document", "best", "outcome", "stability"),
)
_LATEX = str.maketrans(
    {character: rf"\{character}" for character in "%_&#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": "$<$", ">": "$>$", "|": "$|$"}
)


@dataclass(frozen=True)
class Entry:
    """One score of one row: its summary, the document's value, the difference to the baseline."""

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
    """One setting at one point of the grid; `problem` says why it has no scores.

    `stability` says how its seeds trained, `said` what the document says of that.
    """

    name: str
    point: str
    outcome: str
    seeds: tuple[int, ...]
    entries: Mapping[str, Entry]
    problem: str | None = None
    stability: str = "-"
    said: str | float | None = None

    @property
    def label(self) -> str:
        """Return name and point."""
        return f"{self.name} {self.point}".strip()


@dataclass(frozen=True)
class Table:
    """A study's table: its caption, its columns, its rows, and what a reader must know.

    `details` are further notes, for the study's page. `apart` heads the column of what the document
    says of other data; "" where the data are the document's own, so that its values are next to
    ours.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    apart: str = ""


def markdown(table: Table) -> str:
    """Return a table in Markdown, its notes as a list beneath."""
    names = map(in_markdown, (*table.columns, "stability", *_heading(table)))
    header = ["setting", "at", *names]
    lines = [f"**{in_prose(table.title)}**", "", _pipes(header), _pipes(["---"] * len(header))]
    for row in table.rows:
        cells = [_markdown_entry(entry, column) for column, entry in shown(table, row)]
        beside = [in_markdown(each) for each in stability(table, row)]
        names = [in_markdown(each) for each in (row.name, row.point or "-")]
        also = [in_markdown(each) for each in said(table, row)]
        lines.append(_pipes([*names, *cells, "<br>".join(beside), *also]))
    lines += ["", *(f"- {in_prose(note)}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def latex(table: Table) -> str:
    r"""Return a table for LaTeX; the document needs \usepackage{booktabs}."""
    columns = [_escaped(column) for column in table.columns]
    heading = [_escaped(each) for each in _heading(table)]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escaped(table.title)}}}",
        rf"\begin{{tabular}}{{ll{'r' * len(columns)}l{'l' * len(heading)}}}",
        r"\toprule",
        " & ".join(["setting", "at", *columns, "stability", *heading]) + r" \\",
        r"\midrule",
    ]
    for number, row in enumerate(table.rows):
        if number and row.point != table.rows[number - 1].point:
            lines.append(r"\midrule")
        cells = [_latex_entry(entry, column) for column, entry in shown(table, row)]
        names = [_escaped(row.name), _escaped(row.point) or "-"]
        beside = [_escaped(each) for each in ("; ".join(stability(table, row)), *said(table, row))]
        lines.append(" & ".join([*names, *cells, *beside]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    lines += [f"% {one_line(' '.join(note.split()))}" for note in table.notes]
    return "\n".join(lines) + "\n"


def comma_separated(table: Table) -> str:
    """Return a table as CSV with full precision, a line a score of a row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV)

    def write(cells: Iterable[object]) -> None:
        writer.writerow([in_sheet(cell) for cell in cells])

    for row in table.rows:
        for column in table.columns:
            entry = row.entries[column]
            found, gap = entry.summary, entry.difference
            write(
                [row.name, row.point, column]
                + (["", "", 0] if found is None else [found.mean, _rounded(found.sd), found.n])
                + [" ".join(map(str, sorted(entry.values)))]
                + (["", "", ""] if gap is None else [*map(_rounded, (gap.mean, gap.low, gap.high))])
                + [
                    _blank(entry.p),
                    _blank(entry.document),
                    int(entry.best),
                    row.outcome,
                    row.stability,
                ]
            )
    return out.getvalue()


def stability(table: Table, row: Row) -> list[str]:
    """Return how a row trained, and what the document says of the same data, if it does."""
    beside = [] if table.apart or row.said is None else [f"document: {_spelled(row.said)}"]
    return [row.stability, *beside]


def said(table: Table, row: Row) -> list[str]:
    """Return the cell of what the document says of other data; none where there is no column."""
    if not table.apart:
        return []
    figures = {column: row.entries[column].document for column in table.columns}
    found = [
        f"{name} {_spelled(value)}"
        for name, value in {**figures, "stability": row.said}.items()
        if value is not None
    ]
    return ["; ".join(found) or "-"]


def _heading(table: Table) -> list[str]:
    return [table.apart] if table.apart else []


def shown(table: Table, row: Row) -> list[tuple[str, Entry]]:
    """Return the entries of a row by column, without the document's figures of other data."""
    return [
        (column, replace(entry, document=None) if table.apart else entry)
        for column, entry in ((column, row.entries[column]) for column in table.columns)
    ]


def parts(entry: Entry, score: str) -> tuple[str, str, str]:
    """Return the figure, the difference and the document's figure as text, "" for none."""
    return _mean(entry, score), _gap(entry.difference, entry.p, score), _document(entry, score)


def _mean(entry: Entry, score: str) -> str:
    """Return mean and deviation; of steps to a target that some seeds never reached, how many."""
    found = entry.summary
    if found is None:
        return "-"
    if math.isinf(found.mean):
        reached = sum(math.isfinite(value) for value in entry.values.values())
        return f"reached {reached}/{found.n}" if reached else "not reached"
    text = figure(found.mean, score)
    return text if found.sd is None else f"{text} +- {figure(found.sd, score)}"


def _gap(gap: Interval | None, p: float | None, score: str) -> str:
    if gap is None or p is None:
        return ""
    low, high = (_signed(value, score) for value in (gap.low, gap.high))
    chance = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    return f"{_signed(gap.mean, score)} [{low}, {high}], {chance}"


def _signed(value: float, score: str) -> str:
    text = figure(abs(value), score)
    return f"-{text}" if value < 0 else f"+{text}"


def _document(entry: Entry, score: str) -> str:
    """Return what the document says of the same data, with the distance from it."""
    value = entry.document
    if value is None or isinstance(value, str):
        return "" if value is None else f"document: {value}"
    apart = math.nan if entry.summary is None else entry.summary.mean - value
    distance = f" ({_signed(apart, score)})" if math.isfinite(apart) else ""
    return f"document: {_spelled(value)}{distance}"


def _markdown_entry(entry: Entry, score: str) -> str:
    text, gap, document = parts(entry, score)
    text = f"**{text}**" if entry.best else text
    cells = (text, f"({gap})" if gap else "", in_markdown(document))
    return "<br>".join(cell for cell in cells if cell)


def _latex_entry(entry: Entry, score: str) -> str:
    text, gap, document = parts(entry, score)
    text = _escaped(text).replace(" +- ", r" $\pm$ ")
    text = rf"\textbf{{{text}}}" if entry.best else text
    small = [rf"{{\scriptsize {_escaped(part)}}}" for part in (gap, document) if part]
    stacked = r"\\".join([text, *small])
    return rf"\shortstack[r]{{{stacked}}}" if small else text


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    return one_line(text).translate(_LATEX)


def _rounded(value: float | None) -> object:
    """Return a computed figure without the last digits, which libraries round each in its way."""
    return "" if value is None else float(f"{value:.12g}")


def _blank(value: object) -> object:
    return "" if value is None else value


def figure(value: float, score: str) -> str:
    """Write a value with the digits that its kind is read to, and a huge one with three."""
    if "_to/" in score and abs(value) < _MOST_STEPS:  # steps and tokens
        return f"{value:,.0f}"
    read_to_three = any(word in score for word in ("loss", "accuracy", "bits", "stability"))
    return f"{value:.3g}" if abs(value) >= _HUGE else f"{value:.{3 if read_to_three else 2}f}"


def _spelled(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,.10g}"
