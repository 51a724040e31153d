r"""A table in LaTeX for a paper: booktabs, readable names, bold best entries, and a label.

The paper needs `\usepackage{booktabs}`. A grid of one axis and one score has a column for each
value of the axis; other grids have a group of rows for each point. `latex_layout.py` fits the table
on pages, and `templates/table.tex` writes it.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from normlab.records.labels import one_line
from normlab.reports.table_formats.latex_layout import (
    Cell,
    DifferenceCell,
    LatexRow,
    MissingCell,
    ScoreCell,
    TextCell,
    laid_out,
)
from normlab.reports.tables.axes import table_axes, values_at
from normlab.reports.tables.score_table import Entry, ScoreRow, ScoreTable
from normlab.templates import latex_environment

if TYPE_CHECKING:
    from jinja2 import Environment

Uncertainty = Literal["", "stars", "intervals"]
"""How differences from the baseline are shown: not at all, as stars for p, or with intervals."""
_STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
_MINUS = "\u2212"
_SPECIAL = str.maketrans(
    {character: rf"\{character}" for character in "%_&#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": "$<$", ">": "$>$", "|": "$|$", _MINUS: "$-$"}
)


def escaped(text: str) -> str:
    """Escape text for LaTeX. The result is on one line."""
    return one_line(text).translate(_SPECIAL)


class Caption(NamedTuple):
    """The content of a caption: the title, the numbers of seeds, and the marks in the table.

    `ended` is an example of the mark of entries whose seeds did not all finish, or "".
    """

    title: str
    seeds: tuple[int, ...]
    ended: str
    has_best: bool
    uncertainty: Uncertainty
    baseline: str


def latex_table(
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
    head, lines = _pivot(table, uncertainty) if pivoted else _grouped(table, uncertainty)
    notes = (*(note.text for note in table.notes), *_left_out(table, uncertainty))
    return (
        _environment()
        .get_template("table.tex")
        .render(
            caption=_caption(table, baseline, uncertainty, pivoted),
            label=table.key + (f"-{number}" if number > 1 else ""),
            layout=laid_out(head, lines),
            notes=[one_line(" ".join(note.split())) for note in notes],
        )
    )


@cache
def _environment() -> "Environment":
    jinja = latex_environment("normlab.reports.table_formats")
    jinja.filters["tex"] = escaped
    kinds = {"score": ScoreCell, "difference": DifferenceCell, "missing": MissingCell}
    jinja.tests |= {name: partial(_is_a, kind) for name, kind in kinds.items()}
    return jinja


def _is_a(kind: type, cell: Cell) -> bool:
    return isinstance(cell, kind)


def _left_out(table: ScoreTable, uncertainty: Uncertainty) -> Iterator[str]:
    """Yield what the table does not show: differences with intervals, and the article's values."""
    for row, entries, article in table.lines:
        gaps = [f"{table.heading(each.score)} {each.gap}" for each in entries if each.gap]
        if uncertainty != "intervals" and gaps:
            yield f"{row.label}: {'; '.join(gaps)}"
        if article:
            yield f"{table.article_heading}, {row.label}: {article}"


def _caption(table: ScoreTable, baseline: str, uncertainty: Uncertainty, pivoted: bool) -> Caption:
    """Return the content of the caption. `uncertainty` is "" if no entry shows any."""
    scored = pivoted and not table.says_score
    title = f"{table.heading(table.columns[0])}: {table.title}" if scored else table.title
    entries = [entry for row in table.rows for entry in row.entries.values()]
    compared = [e for e in entries if (e.p if uncertainty == "stars" else e.shown_difference)]
    counts = sorted({len(entry.scores) for entry in entries if entry.scores})
    return Caption(
        title,
        tuple(dict.fromkeys((counts[0], counts[-1]))) if counts else (),
        next(filter(None, map(_ended, table.rows)), "") if pivoted else "",
        any(entry.best for entry in entries),
        uncertainty if compared else "",
        baseline,
    )


def _pivot(table: ScoreTable, uncertainty: Uncertainty) -> tuple[list[str], list[LatexRow]]:
    """Return the header and the lines: one per row, with a column per value of the only axis."""
    (axis,), (column,) = table_axes(table), table.columns
    places = {
        (row.name, values_at(row.point, table.axes)[axis.key]): (row.entries[column], _ended(row))
        for row in table.rows
    }
    lines: list[LatexRow] = []
    for name in dict.fromkeys(row.name for row in table.rows):
        of_row = [places.get((name, value), (None, "")) for value in axis.values]
        entries, ended = zip(*of_row, strict=True)
        lines += _lines_of_row(name, entries, uncertainty, ended=ended)
    return [table.axis_name(axis.key), *axis.values], lines


def _grouped(table: ScoreTable, uncertainty: Uncertainty) -> tuple[list[str], list[LatexRow]]:
    """Return the header and the lines: one per row, grouped by point, with a column per score."""
    ended = any(not _whole(row) for row in table.rows)
    lines: list[LatexRow] = []
    before = ""
    for row, entries, _ in table.lines:
        if row.point != before:
            lines.append(LatexRow((row.at,), title=True))
        before = row.point
        lines += _lines_of_row(row.name, entries, uncertainty, [row.outcome] if ended else [])
    return ["", *map(table.heading, table.columns), *(["runs"] if ended else [])], lines


def _lines_of_row(
    name: str,
    entries: Sequence[Entry | None],
    uncertainty: Uncertainty,
    texts: Sequence[str] = (),
    ended: Sequence[str] = (),
) -> list[LatexRow]:
    """Return the line of a row and, with intervals, a second line with its differences.

    `texts` are in cells at the end. `ended` says for each entry how many of its seeds finished.
    """
    cells = [
        _score_cell(entry, uncertainty, how)
        for entry, how in zip(entries, ended or [""] * len(entries), strict=True)
    ]
    lines = [LatexRow((name,), (*cells, *map(TextCell, texts)))]
    differences = [_difference_cell(entry) for entry in entries]
    if uncertainty == "intervals" and any(type(each) is DifferenceCell for each in differences):
        lines.append(LatexRow(("",), (*differences, *(TextCell("") for _ in texts))))
    return lines


def _score_cell(entry: Entry | None, uncertainty: Uncertainty, ended: str) -> Cell:
    """Return the cell of a mean: its standard deviation, stars, and whether it is the best."""
    if entry is None or (value := entry.shown_value) is None:
        return TextCell(f"({ended})") if ended else MissingCell()
    stars = ""
    if uncertainty == "stars" and (p := entry.p) is not None:
        stars = next((each for limit, each in _STARS if p < limit), "")
    return ScoreCell(_signed(value.mean), value.sd, entry.best, stars, ended)


def _difference_cell(entry: Entry | None) -> Cell:
    """Return the cell of a difference with its interval, or an empty cell if there is none."""
    if entry is None or (difference := entry.shown_difference) is None:
        return TextCell("")
    mean, low, high = map(_signed, (difference.mean, difference.low, difference.high))
    return DifferenceCell(mean, low, high, difference.p)


def _signed(number: str) -> str:
    """Return a number with its leading hyphen replaced by a minus sign, which is wider."""
    return number.replace("-", _MINUS, 1) if number.startswith("-") else number


def _whole(row: ScoreRow) -> bool:
    """Return whether all seeds of a row finished."""
    return bool(row.records) and all(record.finished for record in row.records)


def _ended(row: ScoreRow) -> str:
    """Return how many seeds of a row finished, such as `2/5`, or "" if all did or none ran."""
    if not row.records or _whole(row):
        return ""
    return f"{sum(record.finished for record in row.records)}/{len(row.records)}"
