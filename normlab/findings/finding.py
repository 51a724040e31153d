"""A finding: the answer to a question about a norm or a model, with its numbers and verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from normlab.findings.summary import Verdict

Cell = str | float | int | None


class AnswerTable(NamedTuple):
    """The columns and rows shown below an answer."""

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()


NO_TABLE = AnswerTable()


@dataclass(frozen=True)
class Finding:
    """The answer to a question, with its verdict. `str()` of a finding is its `answer`.

    `values` has all numbers behind the answer, `table` those to display below it, and `board` the
    entries for the board that compares norms, keyed by column. If there is a `threshold`, the
    verdict compares `value` with it; otherwise the question decides by several numbers. `module` is
    the path of the module at fault. `why_not` says why the question does not apply, and is "" if it
    does. `name` is the name of the question; it is set only in the report on a module.
    """

    answer: str
    values: Mapping[str, Any] = field(default_factory=dict)
    table: AnswerTable = NO_TABLE
    verdict: Verdict = "fine"
    value: float | None = None
    threshold: float | None = None
    module: str | None = None
    why_not: str = ""
    board: Mapping[str, Cell] = field(default_factory=dict)
    name: str = ""

    def __str__(self) -> str:
        return self.answer

    @classmethod
    def none(cls, why_not: str) -> "Finding":
        """Return the finding for a question that does not apply."""
        return cls(f"does not apply: {why_not}", why_not=why_not, verdict="does not apply")


class Findings(dict[str, Finding]):
    """Findings, keyed by the name of their question. They are printed one per line."""

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {finding.answer}" for name, finding in self.items())
