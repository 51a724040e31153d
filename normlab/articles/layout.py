"""An article's table as text for a terminal, Markdown, LaTeX and HTML.

Each row has the article's words and, under them, our findings. Notes give the judged statements in
full.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from rich.cells import cell_len  # the width of text in columns; a Chinese character takes two

from normlab.articles.article import Article, ArticleTable
from normlab.articles.language import Locale
from normlab.articles.results import Results
from normlab.formats import pipes
from normlab.records.labels import in_markdown, in_prose, one_line
from normlab.reports.latex import PAGE_HEIGHT, escaped, long_table, tabular
from normlab.templates import environment

_GAP = 2
_NAME = 18  # maximum columns for row names
_ROWS_SMALL = 6  # a LaTeX table with more rows is in smaller letters, to fit on a page
_NAME_PART = 0.18
"""The part of a LaTeX line that the rows' names have."""
_LINE = 88
"""Characters in a line of LaTeX's footnotesize; a Chinese character takes two."""
_LEADING = {"en": 9.5, "zh": 12.4}
"""Points from one line of footnotesize to the next; ctex puts Chinese lines further apart."""
_NARROW = 10  # minimum columns for a cell
_CHINESE = "[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]"
_OPENING = f'(?:[（「『《]|"(?={_CHINESE}))'
_MARKS = "，。；：、）」』》\uff1f\uff01"
_CLOSING = rf'(?:[{_MARKS}]|"(?![^\s{_MARKS}]))'
_SIGNS = (
    *(("\u2705", r"$\surd$"), ("\u274c", r"$\times$"), ("\u26a0\ufe0f", "(!)")),
    (" +- ", r" $\pm$ "),
)
_PIECE = re.compile(
    rf" +|\[[\w.]+ \d+\]|{_OPENING}*(?:{_CHINESE}|(?:(?!{_CHINESE})\S)+){_CLOSING}*"
)


_PLACE = re.compile(r" \[[\w.]+( \d+)?\]$")
"""The part of a claim, such as `[2.1]`, or the computed check after a verdict."""


class ShownRow(NamedTuple):
    """A row as displayed: its name, the article's cells, and all findings on each."""

    name: str
    article: list[str]
    measured: list[list[str]]

    def cells(self, head: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
        """Yield each cell after the name: its column, the article's words, and what was found."""
        return zip(head[1:], self.article, self.measured, strict=True)


class ShownTable(NamedTuple):
    """A table in one language: what every format prints."""

    caption: str
    label: str
    head: list[str]
    rows: list[ShownRow]
    below: list[str]
    notes: list[str]
    language: Locale


def shown(
    article: Article, name: str, results: Results, language: Locale, *, notes: bool = True
) -> ShownTable:
    """Return a table with all its evidence; UserError if something does not exist."""
    table = article.table(name)
    rows = [
        ShownRow(
            cells[0].text(language),
            [cell.text(language) for cell in cells[1:]],
            [[item.short(results, language) for item in cell.ours] for cell in cells[1:]],
        )
        for cells in table.rows
    ]
    title = table.title.text(language)
    caption = language.caption.format(title=title, id=article.id, section=table.section)
    below = [item.short(results, language) for item in table.below]
    head = [words.text(language) for words in table.columns]
    notes_shown = _notes(table, results, language) if notes else []
    label = f"article-{article.id}-{name}"
    return ShownTable(caption, label, head, rows, below, notes_shown, language)


def _notes(table: ArticleTable, results: Results, language: Locale) -> list[str]:
    notes = [item.note(results, language) for item in table.items]
    return [*dict.fromkeys(filter(None, notes))]


def text(table: ShownTable, width: int) -> str:
    """Return a table for a terminal of `width` columns; too wide a table raises no error."""
    lead = max(cell_len(word) for word in (table.language.article, table.language.measured))
    names = [table.head[0], *(row.name for row in table.rows)]
    name = min(_NAME, max(map(cell_len, names)), width // 4)
    cells = len(table.head) - 1
    room = width - name - lead - _GAP * (cells + 1)
    every = [
        [head, *(t for row in table.rows for t in (row.article[place], *row.measured[place]))]
        for place, head in enumerate(table.head[1:])
    ]
    widths = [name, lead, *_widths([max(map(cell_len, texts)) for texts in every], room)]
    head = [folded(c, w) for c, w in zip([table.head[0], "", *table.head[1:]], widths, strict=True)]
    lines = [*_joined(head, widths)]
    lines.append("\u2500" * min(width, sum(widths) + _GAP * (len(widths) - 1)))
    for row in table.rows:
        article = [[table.language.article], *([cell] for cell in row.article)]
        measured = [[table.language.measured], *row.measured]
        first, second = (
            [
                [line for piece in cell for line in folded(piece, w)]
                for cell, w in zip(half, widths[1:], strict=True)
            ]
            for half in (article, measured)
        )
        label, height = folded(row.name, name), max(map(len, first))
        lines += _joined([label[:height], *first], widths)
        lines += _joined([label[height:], *second], widths)
    title = folded(table.caption, width)
    below = [line for piece in table.below for line in folded(piece, width, hang=2)]
    notes = [line for note in table.notes for line in folded(note, width, hang=2)]
    parts = [part for part in (title, lines, below, notes) if part]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _widths(most: Sequence[int], room: int) -> list[int]:
    """Return the widths of columns that need at most `most`; the widest are narrowed to fit."""
    for level in range(max(most), _NARROW, -1):
        widths = [min(each, level) for each in most]
        if sum(widths) <= room:
            return widths
    return [min(each, _NARROW) for each in most]


def _joined(cells: Sequence[list[str]], widths: Sequence[int]) -> Iterator[str]:
    for line in zip_longest(*cells, fillvalue=""):
        padded = [part + " " * (w - cell_len(part)) for part, w in zip(line, widths, strict=True)]
        yield (" " * _GAP).join(padded).rstrip()


def folded(text: str, width: int, *, hang: int = 0) -> list[str]:
    """Fold text at spaces and between Chinese characters; `hang` indents all lines but the first.

    A closing mark stays with the character before it, an opening one with that after it, and the
    number of a check with its name; a word longer than a line is cut.
    """
    lines, line = [], ""
    pieces = [
        part for piece in _PIECE.findall(one_line(text)) for part in _cut(piece, width - hang)
    ]
    for piece in pieces:
        if line.strip() and cell_len(line + piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = " " * hang
        if piece.strip() or line.strip():
            line += piece
    return [*lines, line.rstrip()]


def _cut(piece: str, width: int) -> list[str]:
    """Return a word in parts that fit into a line, cut after dots where possible."""
    if cell_len(piece) <= width or not piece.strip():
        return [piece]
    parts = re.findall(r"[^.]+\.*|\.+", piece)
    return [part[at : at + width] for part in parts for at in range(0, len(part), width)]


def markdown(table: ShownTable) -> str:
    """Return a table in Markdown: the article's words, and under them, in bold, what was found."""
    lines = [
        [in_markdown(row.name)]
        + [
            "<br>".join(
                [in_markdown(article), *(f"**{in_markdown(answer)}**" for answer in measured)]
            )
            for article, measured in zip(row.article, row.measured, strict=True)
        ]
        for row in table.rows
    ]
    head = [in_markdown(name) for name in table.head]
    notes = [in_prose(note) for note in (*table.below, table.language.cells, *table.notes)]
    title = f"**{in_prose(table.caption)}**\n"
    return "\n".join([title, *pipes(head, lines, words=len(head), notes=notes)]).rstrip() + "\n"


def latex(table: ShownTable) -> str:
    r"""Return a table in LaTeX; a comment names the packages that the document needs.

    A comment after a row names the parts that its verdicts are about. A table that is taller than a
    page is a `longtable`, which breaks between pages.
    """
    columns = len(table.head) - 1
    width = (0.82 - 0.036 * columns) / columns  # without the gaps between columns
    ragged = r">{\raggedright\arraybackslash}"
    column = rf"{ragged}p{{{width:.3f}\linewidth}}"
    form = rf"@{{}}{ragged}p{{{_NAME_PART}\linewidth}}{column * columns}@{{}}"
    head = " & ".join(map(_in_latex, table.head)) + r" \\"
    body: list[str] = []
    for number, row in enumerate(table.rows):
        body += [r"\addlinespace"] if number else []
        body.append(" & ".join(map(_in_latex, [row.name, *row.article])) + r" \\")
        measured = [
            r" \newline ".join(_italic(_PLACE.sub("", text)) for text in cell)
            for cell in row.measured
        ]
        places = [
            place[0].strip()
            for cell in row.measured
            for text in cell
            if (place := _PLACE.search(text))
        ]
        comment = f" % {' '.join(places)}" if places else ""
        body.append(" & ".join(["", *measured]) + r" \\" + comment)
    top = [rf"\caption{{{escaped(table.caption)}}}", rf"\label{{tab:{table.label}}}"]
    cells = re.split("; |；", table.language.cells)[0] + table.language.stop  # without brackets
    below = [_in_latex(words) for words in (*table.below, cells)]
    tall = _height(table, width) > PAGE_HEIGHT
    packages = "array, booktabs"
    packages += ", ctex" if table.language.code == "zh" else ""
    packages += ", longtable" if tall else ""
    out = [rf"% needs \usepackage{{{packages}}}"]
    if tall:
        out += [r"{\footnotesize", *long_table(form, head, body, top=top)]
        out += [*(rf"\noindent {words}\par" for words in below), "}"]
    else:
        size = "footnotesize" if len(table.rows) > _ROWS_SMALL else "small"
        out += [r"\begin{table}", rf"\centering\{size}", *top, *tabular(form, head, body)]
        out += [*(rf"\par\smallskip {words}" for words in below), r"\end{table}"]
    return "\n".join([*out, *(f"% {one_line(note)}" for note in table.notes)]) + "\n"


def _height(table: ShownTable, width: float) -> float:
    """Estimate the height of a table in footnotesize in points, with columns of `width` lines."""

    def lines(cells: Iterable[tuple[Sequence[str], float]]) -> int:
        return max(
            sum(len(folded(text, int(part * _LINE))) for text in texts) for texts, part in cells
        )

    halves = [
        half
        for row in table.rows
        for half in (
            [([row.name], _NAME_PART), *(([cell], width) for cell in row.article)],
            [(cell, width) for cell in row.measured],
        )
    ]
    below = [([words], 1.0) for words in (*table.below, table.language.cells)]
    count = sum(map(lines, halves)) + sum(lines([each]) for each in below)
    return (count + len(table.rows) / 2) * _LEADING[table.language.code]


def _italic(text: str) -> str:
    return rf"\textit{{{_in_latex(text)}}}"


def _in_latex(text: str) -> str:
    """Return text for LaTeX, whose fonts lack the articles' emoji for ticks and crosses."""
    return functools.reduce(lambda line, pair: line.replace(*pair), _SIGNS, escaped(text))


def page(tables: Sequence[ShownTable]) -> str:
    """Return tables as an HTML page that needs no other file."""
    return filled("tables.html", {"tables": tables})


def filled(template: str, values: Mapping[str, Any]) -> str:
    """Return a template of this package; values of an HTML page are escaped and put on one line.

    Raises jinja2's UndefinedError if the template uses a name that is not in `values`.
    """
    html = template.endswith(".html")
    jinja = environment(
        "normlab.articles",
        autoescape=html,
        finalize=lambda value: one_line(value) if html and type(value) is str else value,
    )
    return jinja.get_template(template).render(values)
