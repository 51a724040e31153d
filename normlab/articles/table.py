"""Formats an article's table in one language, as Markdown, LaTeX or HTML (terminal: `table_text`).

A cell has the article's words and, below them, what was found. Notes quote the judged statements in
full. The templates of LaTeX and HTML are `table.tex` and `tables.html` in `templates/`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from normlab.articles.article import Article
from normlab.articles.evidence_kinds import CellText
from normlab.articles.results import Results
from normlab.claims.in_words.language import Locale
from normlab.formats import pipes
from normlab.records.labels import in_markdown, in_prose, one_line
from normlab.reports.table_formats.latex import escaped
from normlab.reports.table_formats.latex_layout import PAGE_HEIGHT
from normlab.templates import environment, latex_environment
from normlab.terminal import wrapped

_MANY_ROWS = 6  # LaTeX tables with more rows use a smaller font, to fit on a page
_NAME_WIDTH = 0.18
"""The width of the column of row names in LaTeX, as a share of the line."""
_LINE = 88
"""The number of characters in a line of LaTeX's footnotesize. A Chinese one counts as two."""
_LATEX_SIGNS = {
    "\u2705": r"$\surd$",
    "\u274c": r"$\times$",
    "\u26a0\ufe0f": "(!)",
    " \u00b1 ": r" $\pm$ ",
    "\u2212": "$-$",
}
"""Commands for signs that LaTeX's fonts lack, such as the articles' ticks and crosses."""


class ShownRow(NamedTuple):
    """A row as displayed: its name, the article's cells, and what was found on each cell."""

    name: str
    article: list[str]
    measured: list[list[CellText]]

    def cells(self, head: Sequence[str]) -> Iterator[tuple[str, str, list[CellText]]]:
        """Yield the column, the article's words and what was found for each cell after the name."""
        return zip(head[1:], self.article, self.measured, strict=True)

    @property
    def places(self) -> list[str]:
        """The parts and findings that the row's verdicts come from, such as `2.1`."""
        return [each.place for cell in self.measured for each in cell if each.place]


class ShownTable(NamedTuple):
    """A table in one language, ready to be printed in any format."""

    caption: str
    label: str
    head: list[str]
    rows: list[ShownRow]
    below: list[str]
    notes: list[str]
    language: Locale

    @property
    def legend(self) -> str:
        """The explanation of what cells and brackets contain."""
        words, phrasing = self.language.table, self.language.phrasing
        return words.cells + phrasing.between + words.brackets + phrasing.stop


def shown_table(
    article: Article, name: str, results: Results, language: Locale, *, notes: bool = True
) -> ShownTable:
    """Return a table with all its evidence, given the table's name.

    Raises UserError if evidence does not exist.
    """
    table = article.table(name)
    rows = [
        ShownRow(
            cells[0].text(language),
            [cell.text(language) for cell in cells[1:]],
            [[each.cell(results, language) for each in cell.evidence] for cell in cells[1:]],
        )
        for cells in table.rows
    ]
    title = table.title.text(language)
    all_notes = [each.cell_text(results, language).note for each in table.evidence] if notes else []
    if any(all_notes):
        all_notes.append(language.table.differences + language.phrasing.stop)
    return ShownTable(
        caption=language.table.caption.format(title=title, id=article.id, section=table.section),
        label=f"article-{article.id}-{name}",
        head=[words.text(language) for words in table.columns],
        rows=rows,
        below=[each.cell(results, language).line for each in table.below],
        notes=[*dict.fromkeys(filter(None, all_notes))],
        language=language,
    )


def markdown_of(table: ShownTable) -> str:
    """Return a table in Markdown. What was found is in bold below the article's words."""
    rows = [
        [in_markdown(row.name), *map(_markdown_cell, row.article, row.measured)]
        for row in table.rows
    ]
    head = [in_markdown(name) for name in table.head]
    notes = [in_prose(note) for note in (*table.below, table.legend, *table.notes)]
    title = f"**{in_prose(table.caption)}**\n"
    return "\n".join([title, *pipes(head, rows, words=len(head), notes=notes)]).rstrip() + "\n"


def _markdown_cell(words: str, measured: Sequence[CellText]) -> str:
    return "<br>".join(
        [in_markdown(words), *(f"**{in_markdown(each.line)}**" for each in measured)]
    )


def html_of(tables: Sequence[ShownTable]) -> str:
    """Return tables as an HTML page that needs no other file."""
    jinja = environment(
        "normlab.articles",
        autoescape=True,
        finalize=lambda value: one_line(value) if type(value) is str else value,
    )
    return jinja.get_template("tables.html").render(tables=tables)


def latex_of(table: ShownTable) -> str:
    r"""Return a table in LaTeX.

    A comment lists the packages that the document needs, and a comment after each row lists the
    parts that its verdicts come from. A table that is taller than a page is a `longtable`, which
    may break across pages.
    """
    columns = len(table.head) - 1
    width = (0.82 - 0.036 * columns) / columns  # without the gaps between columns
    jinja = latex_environment("normlab.articles")
    jinja.filters["tex"], jinja.filters["one_line"] = _in_latex, one_line
    values = {
        "table": table,
        "columns": columns,
        "name_width": _NAME_WIDTH,
        "width": f"{width:.3f}",
        "tall": _height(table, width) > PAGE_HEIGHT,
        "size": "footnotesize" if len(table.rows) > _MANY_ROWS else "small",
        "below": [*table.below, table.language.table.cells + table.language.phrasing.stop],
    }
    return jinja.get_template("table.tex").render(values)


def _height(table: ShownTable, width: float) -> float:
    """Estimate the height of a table in footnotesize, in points.

    `width` is the width of a column, as a share of the line.
    """

    def lines(texts: Sequence[str], share: float) -> int:
        """Return how many lines the texts take in a column with this share of the line."""
        return sum(len(wrapped(one_line(text), int(share * _LINE), cut=True)) for text in texts)

    count = 0
    for row in table.rows:
        name = lines([row.name], _NAME_WIDTH)
        count += max(name, *(lines([words], width) for words in row.article))
        count += max(lines([each.line for each in cell], width) for cell in row.measured)
    count += sum(lines([words], 1.0) for words in (*table.below, table.legend))
    return (count + len(table.rows) / 2) * table.language.table.leading


def _in_latex(text: str) -> str:
    """Escape text for LaTeX, with commands for signs that its fonts lack."""
    line = escaped(text)
    for sign, command in _LATEX_SIGNS.items():
        line = line.replace(sign, command)
    return line
