"""A comparison table, and its text of fixed bytes: Markdown, LaTeX (booktabs), CSV.

Pages (`study_page.py`) and terminals write the same `lines`.
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

    summary: Summary | None = None
    values: Mapping[int, float] = field(default_factory=dict[int, float])
    higher_is_better: bool = True
    document: str | float | None = None
    difference: Interval | None = None
    best: bool = False

    @property
    def p(self) -> float | None:
        """Return the p value of no difference."""
        return None if self.difference is None else p_value(self.difference)


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


class Shown(NamedTuple):
    """A score of a row as text: the value, the difference, what the document says; "" for none."""

    value: str
    difference: str
    document: str
    best: bool


class Line(NamedTuple):
    """A row as text, the same in every format; `apart` is the cell on the document's other data."""

    name: str
    point: str
    scores: tuple[Shown, ...]
    stability: tuple[str, ...]
    apart: tuple[str, ...]
    problem: str | None


def header(table: Table) -> list[str]:
    """Return the heads of the columns."""
    return ["setting", "at", *table.columns, "stability", *filter(None, [table.apart])]


def lines(table: Table) -> list[Line]:
    """Return the rows of a table as text."""
    found: list[Line] = []
    for row in table.rows:
        scores = [shown(row.entries[name], name, apart=table.apart) for name in table.columns]
        apart, stability = (), [row.stability]
        if table.apart:
            documents = {name: row.entries[name].document for name in table.columns}
            documents["stability"] = row.said
            said = [f"{name} {_spelled(v)}" for name, v in documents.items() if v is not None]
            apart = ("; ".join(said) or "-",)
        elif row.said is not None:
            stability.append(f"document: {_spelled(row.said)}")
        line = Line(row.name, row.point, (*scores,), (*stability,), apart, row.problem)
        found.append(line)
    return found


def shown(entry: Entry, score: str, *, apart: str = "") -> Shown:
    """Return a score as text, with what the document says unless that is `apart`."""
    gap, document, value = entry.difference, "", "-"
    if (found := entry.summary) is not None and math.isinf(found.mean):  # of steps to a target
        reached = sum(map(math.isfinite, entry.values.values()))
        value = f"reached {reached}/{found.n}" if reached else "not reached"
    elif found is not None:
        sd = "" if found.sd is None else f" +- {figure(found.sd, score)}"
        value = figure(found.mean, score) + sd
    if entry.document is not None and not apart:
        document = f"document: {_spelled(entry.document)}"
        if found is not None and math.isfinite(found.mean) and not isinstance(entry.document, str):
            document += f" ({_signed(found.mean - entry.document, score)})"
    difference = ""
    if gap is not None and entry.p is not None:
        chance = "p < 0.001" if entry.p < 0.001 else f"p = {entry.p:.3f}"
        mean, low, high = (_signed(each, score) for each in (gap.mean, gap.low, gap.high))
        difference = f"{mean} [{low}, {high}], {chance}"
    return Shown(value, difference, document, entry.best)


def markdown(table: Table) -> str:
    """Return a table in Markdown, its notes as a list beneath."""
    head = [in_markdown(name) for name in header(table)]
    rows: list[list[str]] = []
    for line in lines(table):
        cells = [in_markdown(line.name), in_markdown(line.point or "-")]
        for each in line.scores:
            value = f"**{each.value}**" if each.best else each.value
            gap = f"({each.difference})" if each.difference else ""
            cells.append("<br>".join(filter(None, (value, gap, in_markdown(each.document)))))
        cells.append("<br>".join(map(in_markdown, line.stability)))
        rows.append([*cells, *map(in_markdown, line.apart)])
    title, notes = f"**{in_prose(table.title)}**\n", (in_prose(note) for note in table.notes)
    return "\n".join([title, *pipes(head, rows, words=len(head), notes=notes), ""])


def pipes(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int, notes: Iterable[str]
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
        " & ".join(map(_escaped, header(table))) + r" \\",
        r"\midrule",
    ]
    before = None
    for line in lines(table):
        if before not in (None, line.point):
            out.append(r"\midrule")
        before = line.point
        cells = [_escaped(line.name), _escaped(line.point) or "-", *map(_in_latex, line.scores)]
        cells += map(_escaped, ("; ".join(line.stability), *line.apart))
        out.append(" & ".join(cells) + r" \\")
    out += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    out += [f"% {one_line(' '.join(note.split()))}" for note in table.notes]
    return "\n".join(out) + "\n"


def _in_latex(score: Shown) -> str:
    text = _escaped(score.value).replace(" +- ", r" $\pm$ ")
    text = rf"\textbf{{{text}}}" if score.best else text
    below = [each for each in (score.difference, score.document) if each]
    stacked = r"\\".join([text, *(rf"{{\scriptsize {_escaped(each)}}}" for each in below)])
    return rf"\shortstack[r]{{{stacked}}}" if below else text


def comma_separated(table: Table) -> str:
    """Return a table as CSV with full precision, a line a score of a row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV)
    for row in table.rows:
        for column in table.columns:
            entry = row.entries[column]
            found, gap = entry.summary, entry.difference
            cells = [
                *(row.name, row.point, column),
                *(("", "", 0) if found is None else (found.mean, _rounded(found.sd), found.n)),
                " ".join(map(str, sorted(entry.values))),
                *(("", "", "") if gap is None else map(_rounded, (gap.mean, gap.low, gap.high))),
                *("" if value is None else value for value in (entry.p, entry.document)),
                *(int(entry.best), row.outcome, row.stability),
            ]
            writer.writerow(map(in_sheet, cells))
    return out.getvalue()


def figure(value: float, score: str) -> str:
    """Write a value with the digits that its kind is read to, and a huge one with three."""
    if "_to/" in score and abs(value) < _MOST_STEPS:  # steps and tokens
        return f"{value:,.0f}"
    read_to_three = any(word in score for word in ("loss", "accuracy", "bits", "stability"))
    return f"{value:.3g}" if abs(value) >= _HUGE else f"{value:.{3 if read_to_three else 2}f}"


def _signed(value: float, score: str) -> str:
    return f"{'-' if value < 0 else '+'}{figure(abs(value), score)}"


def _spelled(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,.10g}"


def _escaped(text: str) -> str:
    return one_line(text).translate(_LATEX)


def _rounded(value: float | None) -> object:
    """Return a computed figure without the last digits, which libraries round each in its way."""
    return "" if value is None else float(f"{value:.12g}")
