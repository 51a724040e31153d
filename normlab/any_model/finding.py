"""Registers questions about any model, and defines the format of their answers."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from normlab.any_model.summary import Verdict
from normlab.errors import UserError

Cell = str | float | int | None
Ask = TypeVar("Ask", bound=Callable[..., Any])


class AnswerTable(NamedTuple):
    """The columns and rows shown below an answer."""

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()


NO_TABLE = AnswerTable()


@dataclass(frozen=True)
class Finding:
    """The answer to a question, with its verdict.

    `values` has all numbers behind the `answer`, `table` those to display. `value` was compared
    with the `threshold`; `module` is the path of the module at fault. `why_not` says why the
    question does not apply, and is empty if it does. `normlab.inspect` sets the `name`.
    """

    answer: str
    values: Mapping[str, Any] = field(default_factory=dict)
    table: AnswerTable = NO_TABLE
    verdict: Verdict = "fine"
    value: float | None = None
    threshold: float | None = None
    module: str | None = None
    why_not: str = ""
    name: str = ""

    def __str__(self) -> str:
        return self.answer

    @classmethod
    def none(cls, why_not: str) -> "Finding":
        """Return the finding for a question that does not apply."""
        return cls(f"does not apply: {why_not}", why_not=why_not, verdict="does not apply")


@dataclass(frozen=True)
class Check:
    """A registered question: its name, its text and function, and whether it is slow."""

    name: str
    text: str
    ask: Callable[..., Finding]
    slow: bool


QUESTIONS: dict[str, Check] = {}
"""All registered questions by name, in the order of their definition."""


def question(name: str, *, slow: bool = False) -> Callable[[Ask], Ask]:
    """Register a function as a question; the first line of its docstring is the question's text."""

    def register(ask: Ask) -> Ask:
        text = (inspect.getdoc(ask) or "").partition("\n")[0]
        QUESTIONS[name] = Check(name, text, ask, slow)
        return ask

    return register


def questions(*names: str, slow: bool = False) -> list[Check]:
    """Return the named questions, or all quick ones, and with `slow` the slow ones too.

    Raises UserError if a name is unknown.
    """
    from normlab.any_model import modes, padding, questions, slow_questions, statistics

    assert modes and padding and questions and slow_questions and statistics
    for name in names:
        if name not in QUESTIONS:
            raise UserError(f"no question {name!r:.60}; choose from {', '.join(sorted(QUESTIONS))}")
    if names:
        return [QUESTIONS[name] for name in names]
    return [each for each in QUESTIONS.values() if slow or not each.slow]
