"""A comparison table, and its text of fixed bytes: Markdown, LaTeX (booktabs), CSV.

Pages (`study_page.py`) and terminals (`normlab compare`) write the same entries.
"""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from normlab.metrics.spread import Interval, p_value
from normlab.records.aggregate import Summary
from normlab.records.labels import in_markdown, in_prose, in_sheet, one_line

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
    """A score of a row: its summary and values by seed, the difference to the baseline.

    `document` is the document's value, `apart` if it is of other data, so that it has a column of
    its own and no difference to it is made.
    """

    score: str
    summary: Summary | None = None
    values: Mapping[int, float] = field(default_factory=dict[int, float])
    higher_is_better: bool = True
    document: str | float | None = None
    apart: bool = False
    difference: Interval | None = None
    best: bool = False

    @property
    def p(self) -> float | None:
        """Return the p value of no difference."""
        return None if self.difference is None else p_value(self.difference)

    @property
    def value(self) -> str:
        """Return the mean with its standard deviation as text."""
        found = self.summary
        if found is None:
            return "-"
        if math.isinf(found.mean):  # of steps to a target
            reached = sum(map(math.isfinite, self.values.values()))
            return f"reached {reached}/{found.n}" if reached else "not reached"
        sd = "" if found.sd is None else f" +- {figure(found.sd, self.score)}"
        return figure(found.mean, self.score) + sd

    @property
    def gap(self) -> str:
        """Return the difference with its interval and p value as text, "" for none."""
        if (gap := self.difference) is None or (p := self.p) is None:
            return ""
        chance = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
        mean, low, high = (_signed(each, self.score) for each in (gap.mean, gap.low, gap.high))
        return f"{mean} [{low}, {high}], {chance}"

    @property
    def said(self) -> str:
        """Return what the document says of the same data and the distance from it, "" for none."""
        if self.document is None or self.apart:
            return ""
        text = f"document: {_spelled(self.document)}"
        if self.summary is None or isinstance(self.document, str):
            return text
        mean = self.summary.mean
        return f"{text} ({_signed(mean - self.document, self.score)})" if mean < math.inf else text


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
    stability: str = "-"
    said: str | float | None = None
    problem: str | None = None

    @property
    def label(self) -> str:
        """Return name and point."""
        return f"{self.name} {self.point}".strip()


class Line(NamedTuple):
    """A row of a table as it is shown: its last cells are `ended` and, if there is one, `apart`."""

    row: Row
    entries: list[Entry]
    ended: list[str]
    apart: list[str]


@dataclass(frozen=True)
class Table:
    """A study's table: its caption, its columns, its rows, and what a reader must know.

    `details` are further notes, for the study's page. `apart` heads the column of what the document
    says of other data; "" where the data are the document's own.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    apart: str = ""

    @property
    def head(self) -> list[str]:
        """Return the heads of the columns."""
        return ["setting", "at", *self.columns, "stability", *filter(None, [self.apart])]

    @property
    def lines(self) -> list[Line]:
        """Return the rows as they are shown."""
        return [self._line(row) for row in self.rows]

    def _line(self, row: Row) -> Line:
        entries = [row.entries[name] for name in self.columns]
        if not self.apart:
            said = [] if row.said is None else [f"document: {_spelled(row.said)}"]
            return Line(row, entries, [row.stability, *said], [])
        documents = {**{each.score: each.document for each in entries}, "stability": row.said}
        said = (f"{name} {_spelled(v)}" for name, v in documents.items() if v is not None)
        return Line(row, entries, [row.stability], ["; ".join(said) or "-"])


def markdown(table: Table) -> str:
    """Return a table in Markdown, its notes as a list beneath."""
    head = [in_markdown(name) for name in table.head]
    rows: list[list[str]] = []
    for row, entries, ended, apart in table.lines:
        cells = [in_markdown(row.name), in_markdown(row.point or "-")]
        for each in entries:
            value = f"**{each.value}**" if each.best else each.value
            gap = each.gap and f"({each.gap})"
            cells.append("<br>".join(filter(None, (value, gap, in_markdown(each.said)))))
        cells.append("<br>".join(map(in_markdown, ended)))
        rows.append([*cells, *map(in_markdown, apart)])
    title, notes = f"**{in_prose(table.title)}**\n", (in_prose(note) for note in table.notes)
    return "\n".join([title, *pipes(head, rows, words=len(head), notes=notes), ""])


def pipes(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int, notes: Iterable[str] = ()
) -> list[str]:
    """Return lines of Markdown: a table, numbers from column `words` on, and a list of notes."""
    rules = [*["---"] * words, *["---:"] * (len(head) - words)]
    table = ["| " + " | ".join(cells) + " |" for cells in (head, rules, *rows)]
    return [*table, "", *(f"- {note}" for note in notes)]


def latex(table: Table) -> str:
    r"""Return a table for LaTeX; the document needs \usepackage{booktabs}."""
    columns = f"ll{'r' * len(table.columns)}l{'l' if table.apart else ''}"
    out = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escaped(table.title)}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(map(_escaped, table.head)) + r" \\",
        r"\midrule",
    ]
    before = None
    for row, entries, ended, apart in table.lines:
        if before not in (None, row.point):
            out.append(r"\midrule")
        before = row.point
        cells = [_escaped(row.name), _escaped(row.point) or "-"]
        for each in entries:
            text = _escaped(each.value).replace(" +- ", r" $\pm$ ")
            text = rf"\textbf{{{text}}}" if each.best else text
            below = [rf"\\{{\scriptsize {_escaped(t)}}}" for t in (each.gap, each.said) if t]
            cells.append(rf"\shortstack[r]{{{text}{''.join(below)}}}" if below else text)
        cells += map(_escaped, ("; ".join(ended), *apart))
        out.append(" & ".join(cells) + r" \\")
    out += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    out += [f"% {one_line(' '.join(note.split()))}" for note in table.notes]
    return "\n".join(out) + "\n"


def _escaped(text: str) -> str:
    return one_line(text).translate(_LATEX)


def comma_separated(table: Table) -> str:
    """Return a table as CSV with full precision, one line per score of a row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV)
    for row, entries, *_ in table.lines:
        for entry in entries:
            found, gap = entry.summary, entry.difference
            cells = [
                *(row.name, row.point, entry.score),
                *(("", "", 0) if found is None else (found.mean, _rounded(found.sd), found.n)),
                " ".join(map(str, sorted(entry.values))),
                *(("", "", "") if gap is None else map(_rounded, (gap.mean, gap.low, gap.high))),
                *("" if value is None else value for value in (entry.p, entry.document)),
                *(int(entry.best), row.outcome, row.stability),
            ]
            writer.writerow(map(in_sheet, cells))
    return out.getvalue()


def _rounded(value: float | None) -> object:
    """Return a computed value without the last digits, in which libraries differ."""
    return "" if value is None else float(f"{value:.12g}")


def figure(value: float, score: str) -> str:
    """Write a value with the digits that its kind is read to, and a huge one with three."""
    if "_to/" in score and abs(value) < 1e15:  # steps and tokens
        return f"{value:,.0f}"
    read_to_three = any(word in score for word in ("loss", "accuracy", "bits", "stability"))
    return f"{value:.3g}" if abs(value) >= 1e5 else f"{value:.{3 if read_to_three else 2}f}"


def _signed(value: float, score: str) -> str:
    return f"{'-' if value < 0 else '+'}{figure(abs(value), score)}"


def _spelled(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,.10g}"
