r"""A table in LaTeX for a paper: booktabs, readable names, the table's bold entries, a label.

The paper needs `\usepackage{booktabs}`. A grid of one axis and one score has a column for each
value of the axis; other grids have a group of rows for each point.
"""

import re
from collections.abc import Sequence
from typing import Literal

from normlab.records.labels import one_line
from normlab.reports.headings import heading
from normlab.reports.sweep import axes_of, values_at
from normlab.reports.table import Entry, ScoreRow, ScoreTable

Marks = Literal["", "stars", "intervals"]
"""How differences from the baseline are shown: not at all, as stars for p, or with intervals."""
_STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
_SPECIAL = str.maketrans(
    {character: rf"\{character}" for character in "%_&#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": "$<$", ">": "$>$", "|": "$|$"}
)


def escaped(text: str) -> str:
    """Return text for LaTeX, on one line."""
    return one_line(text).translate(_SPECIAL)


def latex(
    table: ScoreTable, *, baseline: str = "the baseline", marks: Marks = "", number: int = 1
) -> str:
    """Return a table in LaTeX, with its notes as comments below it.

    The `number` of the table in its file makes its label unique.
    """
    axes = axes_of(table)
    pivoted = len(axes) == 1 and len(table.columns) == 1 and len(table.axes) == 1
    body = _pivot(table, marks) if pivoted else _grouped(table, marks)
    name = heading(table.columns[0]) if pivoted else re.split(",| on ", table.title)[0]
    counted = [str(number)] if number > 1 else []
    axis_names = [axis.name for axis in axes if axis.name not in name]
    label = "-".join([name, *axis_names, *counted])
    label = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
    out = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_caption(table, baseline, marks, pivoted)}}}",
        rf"\label{{tab:{label}}}",
        *body,
        r"\end{table}",
        *(f"% {one_line(' '.join(note.split()))}" for note in table.notes),
    ]
    return "\n".join(out) + "\n"


def _caption(table: ScoreTable, baseline: str, marks: Marks, pivoted: bool) -> str:
    """Return the title, and an explanation of the numbers, stars, brackets and bold entries."""
    scored = pivoted and not table.says_score
    title = f"{table.heading(table.columns[0])}: {table.title}" if scored else table.title
    entries = [entry for row in table.rows for entry in row.entries.values()]
    counts = sorted({len(entry.scores) for entry in entries if entry.scores})
    sentences = [escaped(title)]
    if counts:
        span = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        seeds = f"{span} seed{'' if counts == [1] else 's'}"
        sentences.append(seeds if counts == [1] else rf"Mean $\pm$ standard deviation over {seeds}")
    if any(entry.best for entry in entries):
        sentences.append("Bold: better than every other row at its point (Holm)")
    if marks and any(entry.gap for entry in entries):
        than = f"difference from {escaped(baseline)}, paired by seed"
        stars = r"$^{*}p<0.05$, $^{**}p<0.01$, $^{***}p<0.001$"
        sentences.append(
            f"{stars}: {than}" if marks == "stars" else rf"In brackets: {than}, 95\,\%"
        )
    return ". ".join(sentences)


def _tabular(form: str, head: Sequence[str], lines: Sequence[str]) -> list[str]:
    top = [rf"\begin{{tabular}}{{{form}}}", r"\toprule", " & ".join(head) + r" \\", r"\midrule"]
    return [*top, *lines, r"\bottomrule", r"\end{tabular}"]


def _pivot(table: ScoreTable, marks: Marks) -> list[str]:
    """Return one line per row and one column per value of the only axis."""
    (axis,), (column,) = axes_of(table), table.columns
    places = {
        (row.name, values_at(row.point, table.axes)[axis.key]): row.entries[column]
        for row in table.rows
    }
    lines: list[str] = []
    for name in dict.fromkeys(row.name for row in table.rows):
        entries = [places.get((name, value)) for value in axis.values]
        lines += _row(name, entries, marks)
    head = [escaped(axis.name), *(escaped(value) for value in axis.values)]
    return _tabular(f"l{'r' * len(axis.values)}", head, lines)


def _grouped(table: ScoreTable, marks: Marks) -> list[str]:
    """Return one line per row, in groups by point, and one column per score."""
    ended = any(not _whole(row) for row in table.rows)
    more = [*(["stability"] if ended else []), *filter(None, [table.apart])]
    head = ["", *(escaped(table.heading(name)) for name in table.columns), *map(escaped, more)]
    lines: list[str] = []
    before = ""
    for row, entries, last in table.lines:
        if row.point != before:
            lines += [r"\addlinespace"] if lines else []
            lines.append(rf"\multicolumn{{{len(head)}}}{{l}}{{\textit{{{escaped(row.at)}}}}} \\")
        before = row.point
        texts = [*(last[:1] if ended else []), *last[1:]]
        lines += _row(row.name, entries, marks, texts)
    return _tabular(f"l{'r' * len(table.columns)}{'l' * len(more)}", head, lines)


def _row(
    name: str, entries: Sequence[Entry | None], marks: Marks, texts: Sequence[str] = ()
) -> list[str]:
    """Return the line of a row and, with intervals, a second line with its differences."""
    cells = ["--" if entry is None else _cell(entry, marks) for entry in entries]
    lines = [" & ".join([escaped(name), *cells, *map(escaped, texts)]) + r" \\"]
    gaps = ["" if entry is None else entry.gap for entry in entries]
    if marks == "intervals" and any(gaps):
        small = [rf"{{\scriptsize {_signs(escaped(gap))}}}" if gap else "" for gap in gaps]
        lines.append(" & ".join(["", *small, *("" for _ in texts)]) + r" \\")
    return lines


def _signs(text: str) -> str:
    """Return text with minus signs, which are wider than hyphens, before numbers."""
    return re.sub(r"(?<![\w-])-(?=[\d.])", "$-$", text)


def _whole(row: ScoreRow) -> bool:
    """Return whether all seeds of a row finished."""
    return bool(row.records) and all(record.finished for record in row.records)


def _cell(entry: Entry, marks: Marks) -> str:
    """Return a mean with its deviation, bold if it is the best, and the stars of its difference."""
    if entry.value == "-":
        return "--"
    text = _signs(escaped(entry.value)).replace(" +- ", r" $\pm$ ")
    text = rf"\textbf{{{text}}}" if entry.best else text
    if marks == "stars" and entry.p is not None:
        stars = next((each for limit, each in _STARS if entry.p < limit), "")
        return f"{text}$^{{{stars}}}$" if stars else text
    return text
