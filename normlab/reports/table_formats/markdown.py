"""A table in Markdown, followed by its notes."""

from collections.abc import Mapping

from normlab.formats import pipes
from normlab.records.labels import in_markdown, in_prose
from normlab.reports.tables.score_table import ScoreTable


def markdown_table(table: ScoreTable) -> str:
    """Return a table in Markdown, followed by its notes as a list."""
    rows: list[list[str]] = []
    for row, entries, article in table.lines:
        cells = [in_markdown(row.name), in_markdown(row.at or "-")]
        for each in entries:
            value = f"**{each.value}**" if each.best else each.value
            cells.append(f"{value}<br>({each.gap})" if each.gap else value)
        last = [row.stability] if article is None else [row.stability, article or "-"]
        rows.append([*cells, *map(in_markdown, last)])
    head = [in_markdown(name) for name in table.head]
    title = f"**{in_prose(table.title)}**\n"
    notes = [in_prose(note.text) for note in table.notes]
    return "\n".join([title, *pipes(head, rows, words=len(head), notes=notes), ""])


def averaged(statistics: Mapping[str, float | None] | None) -> str:
    """Format the `mean` and `sd` of several inspected runs, or return a dash if there are none."""
    if statistics is None:
        return "-"
    return f"{statistics['mean']:.3g}" + (
        "" if statistics["sd"] is None else f" +- {statistics['sd']:.2g}"
    )
