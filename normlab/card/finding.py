"""What an examination of a card finds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from normlab.health import subject

Cell = str | float | int | None


@dataclass(frozen=True)
class Finding:
    """The answer to one question about a norm.

    Attributes:
        question, answer: one line each.
        figures: all figures as plain values.
        columns, rows: those of them that a person reads, as a table.
        cells: what the board of all norms shows, by the title of the column.
        why_not: why the question does not apply; then there are no figures.
    """

    question: str
    answer: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    cells: Mapping[str, Cell] = field(default_factory=dict)
    why_not: str | None = None

    @classmethod
    def none(cls, question: str, why_not: str) -> "Finding":
        """Return the finding of a question that does not apply."""
        return cls(question, f"does not apply: {why_not}", why_not=why_not)

    @classmethod
    def of_sheet(cls, found: subject.Finding, cells: Mapping[str, Cell]) -> "Finding":
        """Return what an examination of the health sheet found, with cells for the board."""
        own = {} if found.why_not else cells
        return cls(
            found.question,
            found.answer,
            found.figures,
            found.columns,
            found.rows,
            own,
            found.why_not,
        )
