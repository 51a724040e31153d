r"""A table in LaTeX for a paper: booktabs, readable names, the table's bold entries, a label.

The paper needs `\usepackage{booktabs}`. A grid of one axis and one score has a column for each
value of the axis; other grids have a group of rows for each point. A table that is wider than a
page gets smaller letters and folded names of rows and, if that is not enough, is split into
several, one below the other; one that is taller than a page is a `longtable`, which breaks between
pages.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from normlab.metrics.score_text import heading
from normlab.records.labels import one_line
from normlab.reports.tables.axes import table_axes, values_at
from normlab.reports.tables.table import Entry, ScoreRow, ScoreTable

Uncertainty = Literal["", "stars", "intervals"]
"""How differences from the baseline are shown: not at all, as stars for p, or with intervals."""
_STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
_SPECIAL = str.maketrans(
    {character: rf"\{character}" for character in "%_&#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": "$<$", ">": "$>$", "|": "$|$"}
)
_ROOM = 345.0
"""Points: the width of text in LaTeX's article class, the narrowest of its usual pages."""
PAGE_HEIGHT = 500.0
"""Points: the height of text on such a page, without the caption."""
_BREAK, _STACK = r"\\", r"\shortstack[l]{"
_NARROW = frozenset(" .,:;()[]|'!ijlt")


class _Letters(NamedTuple):
    """A font size: its LaTeX command, and in points the digit width, leading and column gap."""

    latex: tuple[str, ...]
    digit: float
    leading: float
    gap: float


_SIZES = (
    _Letters((), 5.0, 12.0, 12.0),
    _Letters((r"\footnotesize\setlength{\tabcolsep}{3pt}",), 4.25, 9.5, 6.0),
)
_SCRIPT = 4.1
"""The width of a digit of an interval."""
_BOLD = 1.15
"""How much wider bold digits are."""
_SHORTEST = 15
"""The characters that a line of a heading may always have."""
_FOLDED = 18
"""The characters in a line of a folded name of a row."""


class _Line(NamedTuple):
    """A line of a table: the row's name, and a cell for each column.

    A `title` is a line across all columns instead, above the rows of a point.
    """

    name: str
    cells: tuple[str, ...] = ()
    title: bool = False


def escaped(text: str) -> str:
    """Return text for LaTeX, on one line."""
    return one_line(text).translate(_SPECIAL)


def latex(
    table: ScoreTable,
    *,
    baseline: str = "the baseline",
    uncertainty: Uncertainty = "",
    number: int = 1,
) -> str:
    """Return a table in LaTeX, with its notes as comments below it.

    The `number` of the table in its file makes its label unique.
    """
    axes = table_axes(table)
    pivoted = len(axes) == 1 and len(table.columns) == 1 and len(table.axes) == 1
    body = _pivot(table, uncertainty) if pivoted else _grouped(table, uncertainty)
    scored = pivoted or table.says_score
    name = heading(table.columns[0]) if scored else re.split(",| on ", table.title)[0]
    counted = [str(number)] if number > 1 else []
    axis_names = [axis.name for axis in axes if axis.name not in name]
    label = "-".join([name, *axis_names, *counted])
    label = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
    top = [
        rf"\caption{{{_caption(table, baseline, uncertainty, pivoted)}}}",
        rf"\label{{tab:{label}}}",
    ]
    notes = (*table.notes, *_left_out(table, uncertainty))
    out = [*_on_pages(top, *body), *(f"% {one_line(' '.join(note.split()))}" for note in notes)]
    return "\n".join(out) + "\n"


def _left_out(table: ScoreTable, uncertainty: Uncertainty) -> Iterator[str]:
    """Yield what the table does not show: differences with intervals, and the article's values."""
    for row, entries, last in table.lines:
        gaps = [f"{table.heading(each.score)} {each.gap}" for each in entries if each.gap]
        if uncertainty != "intervals" and gaps:
            yield f"{row.label}: {'; '.join(gaps)}"
        if last[1:] not in ([], ["-"]):
            yield f"{table.article_heading}, {row.label}: {last[1]}"


def _caption(table: ScoreTable, baseline: str, uncertainty: Uncertainty, pivoted: bool) -> str:
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
    if any(
        entry.p is not None if uncertainty == "stars" else entry.gap
        for entry in entries
        if uncertainty
    ):
        than = f"difference from {escaped(baseline)}, paired by seed"
        stars = r"$^{*}p<0.05$, $^{**}p<0.01$, $^{***}p<0.001$"
        sentences.append(
            f"{stars}: {than}" if uncertainty == "stars" else rf"In brackets: {than}, 95\,\%"
        )
    return ". ".join(sentences)


def _on_pages(top: Sequence[str], head: Sequence[str], lines: Sequence[_Line]) -> list[str]:
    """Return a table that fits on pages.

    It stays as it is, gets smaller letters and folded names of rows, or is divided or breaks.

    `top` are its caption and label; `head` has the name of the first column, then those of the
    others, as plain text.
    """
    folded = [line if line.title else line._replace(name=_folded(line.name)) for line in lines]
    ways = [*((size, lines) for size in _SIZES), (_SIZES[-1], folded)]
    fitting = (way for way in ways if len(_blocks(head, way[1], way[0])) == 1)
    size, lines = next(fitting, (_SIZES[-1], lines))
    tables = [_part(head, lines, block, size) for block in _blocks(head, lines, size)]
    heights = (3 + sum(max(1, line.count(_BREAK)) for line in body) for *_, body in tables)
    if size.leading * sum(heights) > PAGE_HEIGHT:
        first, *others = tables
        long = [
            *long_table(*first, top=top),
            *(line for each in others for line in long_table(*each)),
        ]
        return [r"% needs \usepackage{longtable}", "{", *size.latex, *long, "}"]
    out = [r"\begin{table}", r"\centering", *top, *size.latex]
    for number, each in enumerate(tables):
        out += [r"\par\medskip"] if number else []
        out += tabular(*each)
    return [*out, r"\end{table}"]


def tabular(form: str, head: str, body: Sequence[str]) -> list[str]:
    """Return a `tabular` from its column types, the line of its head, and its other lines."""
    top = [rf"\begin{{tabular}}{{{form}}}", r"\toprule", head, r"\midrule"]
    return [*top, *body, r"\bottomrule", r"\end{tabular}"]


def long_table(form: str, head: str, body: Sequence[str], *, top: Sequence[str] = ()) -> list[str]:
    """Return a `longtable`, whose head is repeated on each page; `top` is above the first."""
    repeated = [r"\toprule", head, r"\midrule"]
    out = [rf"\begin{{longtable}}{{{form}}}"]
    out += [*top, r"\\", *repeated, r"\endfirsthead"] if top else []
    out += [*repeated, r"\endhead", r"\bottomrule", r"\endfoot"]
    return [*out, *body, r"\end{longtable}"]


def _part(
    head: Sequence[str], lines: Sequence[_Line], block: range, size: _Letters
) -> tuple[str, str, list[str]]:
    """Return a block of columns: its column types, its head, and its lines with any text."""
    headings = [escaped(head[0]), *(_stacked(head[n + 1], lines, n, size.digit) for n in block)]
    body: list[str] = []
    for number, line in enumerate(lines):
        cells = [line.cells[n] for n in block if line.cells]
        if line.title:
            body += [r"\addlinespace"] if number else []
            body.append(rf"\multicolumn{{{len(headings)}}}{{l}}{{\textit{{{line.name}}}}} \\")
        elif any(cells):
            body.append(" & ".join([line.name, *cells]) + r" \\")
    return f"l{'r' * len(block)}", " & ".join(headings) + r" \\", body


def _blocks(head: Sequence[str], lines: Sequence[_Line], size: _Letters) -> list[range]:
    """Return the columns in groups that fit on a page, one group below the other; none is empty."""
    names = [escaped(head[0]), *(line.name for line in lines if not line.title)]
    room = _ROOM - size.gap - max(_width(text, size.digit) for text in names)
    blocks, start, used = list[range](), 0, 0.0
    for place, words in enumerate(head[1:]):
        parts = [escaped(each) for each in _parts(words, lines, place, size.digit)]
        width = max(
            _widest(lines, place, size.digit), *(_width(each, size.digit) for each in parts)
        )
        if place > start and used + width + size.gap > room:
            blocks.append(range(start, place))
            start, used = place, 0.0
        used += width + size.gap
    return [*blocks, range(start, len(head) - 1)]


def _folded(name: str) -> str:
    """Return the name of a row, in two or more lines if it is long."""
    parts = textwrap.wrap(name, _FOLDED, break_long_words=False, break_on_hyphens=False)
    stack = _BREAK.join(parts)
    return rf"{_STACK}{stack}}}" if len(parts) > 1 else name


def _stacked(words: str, lines: Sequence[_Line], place: int, digit: float) -> str:
    """Return a column's heading, in several lines if it is wider than the column's cells."""
    parts = [escaped(part) for part in _parts(words, lines, place, digit)]
    stack = _BREAK.join(parts)
    return rf"\shortstack[r]{{{stack}}}" if len(parts) > 1 else stack


def _parts(words: str, lines: Sequence[_Line], place: int, digit: float) -> list[str]:
    """Return a heading in parts that are no wider than the column's cells, where possible."""
    width = max(_SHORTEST, int(_widest(lines, place, digit) / digit))
    return textwrap.wrap(words, width, break_long_words=False, break_on_hyphens=False) or [""]


def _widest(lines: Sequence[_Line], place: int, digit: float) -> float:
    """Return the width of the widest cell of a column."""
    return max((_width(line.cells[place], digit) for line in lines if line.cells), default=0.0)


def _width(text: str, digit: float) -> float:
    """Estimate the width in points of a piece of LaTeX, from the width of a digit."""
    if text.startswith(_STACK):
        parts = text.removeprefix(_STACK).removesuffix("}").split(_BREAK)
        return max(_width(part, digit) for part in parts)
    if r"\scriptsize" in text:
        digit = _SCRIPT
    stars = text.count("*")
    plain = re.sub(r"\\[a-zA-Z]+ ?|[\\{}$^*]", "", text.replace(r"\pm", "+"))
    narrow = sum(letter in _NARROW for letter in plain)
    wide = plain.count("+") + text.count("$-$")
    digits = len(plain) - 0.36 * narrow + 0.56 * wide + stars
    return digits * digit * (_BOLD if r"\textbf" in text else 1)


def _pivot(table: ScoreTable, uncertainty: Uncertainty) -> tuple[list[str], list[_Line]]:
    """Return the head, one line per row and one column per value of the only axis."""
    (axis,), (column,) = table_axes(table), table.columns
    places = {
        (row.name, values_at(row.point, table.axes)[axis.key]): row.entries[column]
        for row in table.rows
    }
    lines: list[_Line] = []
    for name in dict.fromkeys(row.name for row in table.rows):
        entries = [places.get((name, value)) for value in axis.values]
        lines += _row(name, entries, uncertainty)
    return [table.axis_name(axis.key), *axis.values], lines


def _grouped(table: ScoreTable, uncertainty: Uncertainty) -> tuple[list[str], list[_Line]]:
    """Return the head and one line per row, in groups by point, and one column per score."""
    ended = any(not _whole(row) for row in table.rows)
    lines: list[_Line] = []
    before = ""
    for row, entries, _ in table.lines:
        if row.point != before:
            lines.append(_Line(escaped(row.at), title=True))
        before = row.point
        lines += _row(row.name, entries, uncertainty, [escaped(row.outcome)] if ended else [])
    return ["", *map(table.heading, table.columns), *(["runs"] if ended else [])], lines


def _row(
    name: str, entries: Sequence[Entry | None], uncertainty: Uncertainty, texts: Sequence[str] = ()
) -> list[_Line]:
    """Return the line of a row and, with intervals, a second line with its differences."""
    cells = ["--" if entry is None else _cell(entry, uncertainty) for entry in entries]
    lines = [_Line(escaped(name), (*cells, *texts))]
    gaps = ["" if entry is None else entry.gap for entry in entries]
    if uncertainty == "intervals" and any(gaps):
        small = [rf"{{\scriptsize {_signs(escaped(gap))}}}" if gap else "" for gap in gaps]
        lines.append(_Line("", (*small, *("" for _ in texts))))
    return lines


def _signs(text: str) -> str:
    """Return text with minus signs, which are wider than hyphens, before numbers."""
    return re.sub(r"(?<![\w-])-(?=[\d.])", "$-$", text)


def _whole(row: ScoreRow) -> bool:
    """Return whether all seeds of a row finished."""
    return bool(row.records) and all(record.finished for record in row.records)


def _cell(entry: Entry, uncertainty: Uncertainty) -> str:
    """Return a mean with its deviation, bold if it is the best, and the stars of its difference."""
    if entry.value == "-":
        return "--"
    text = _signs(escaped(entry.value)).replace(" +- ", r" $\pm$ ")
    text = rf"\textbf{{{text}}}" if entry.best else text
    if uncertainty == "stars" and entry.p is not None:
        stars = next((each for limit, each in _STARS if entry.p < limit), "")
        return f"{text}$^{{{stars}}}$" if stars else text
    return text
