"""The registry of questions about norms and models, and the format of an answer."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar

from normlab.any_model.finding import NO_TABLE, AnswerTable, Cell
from normlab.any_model.summary import Verdict
from normlab.errors import UserError

Of = Literal["norm", "model", "card", "claim"]
Ask = TypeVar("Ask", bound=Callable[..., Any])


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    `values` has all numbers behind the `answer`, `table` those to display, and `board` the entries
    for the board that compares norms, by column. `holds` is whether the norm satisfies this part of
    the contract. `why_not` says why the question does not apply, and is empty if it does. The
    `verdict` on a model compares `value` with `threshold`; without a threshold it is `fine`.
    `str()` of an answer is its text, `answer`.
    """

    answer: str
    values: Mapping[str, Any] = field(default_factory=dict)
    table: AnswerTable = NO_TABLE
    holds: bool | None = None
    why_not: str = ""
    board: Mapping[str, Cell] = field(default_factory=dict)
    verdict: Verdict = "fine"
    value: float | None = None
    threshold: float | None = None

    def __str__(self) -> str:
        return self.answer

    @classmethod
    def none(cls, why_not: str) -> "Answer":
        """Return the answer to a question that does not apply."""
        return cls(f"does not apply: {why_not}", why_not=why_not, verdict="does not apply")

    def plain(self, question: "Question") -> dict[str, Any]:
        """Return the answer's entry in `inspect.json` or `card.json`."""
        return {
            "question": question.text,
            "answer": self.answer,
            "figures": self.values,
            "columns": self.table.columns,
            "rows": self.table.rows,
            "why_not": self.why_not or None,
            "applies": not self.why_not,
            "cells": self.board,
        }


class Answers(dict[str, Answer]):
    """Answers by the name of their question; printed one per line."""

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {answer.answer}" for name, answer in self.items())


@dataclass(frozen=True)
class Question:
    """A registered question: its name, the kind of subject it is about, its text and function.

    Questions about `trained` models tell nothing about a model at initialization.
    """

    name: str
    of: Of
    text: str
    ask: Callable[..., Any]
    trained: bool = False


_REGISTRY: dict[tuple[Of, str], Question] = {}


def question(name: str, *, of: Of, trained: bool = False) -> Callable[[Ask], Ask]:
    """Register a function as a question; the first line of its docstring is the question's text."""

    def register(ask: Ask) -> Ask:
        text = (inspect.getdoc(ask) or "").partition("\n")[0]
        _REGISTRY[of, name] = Question(name, of, text, ask, trained)
        return ask

    return register


def questions(*of: Of, names: Sequence[str] = ()) -> list[Question]:
    """Return all questions about these kinds, or the named ones; UserError if one is unknown."""
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("[a-z]*.py")):
        name = path.relative_to(folder).with_suffix("").as_posix().replace("/", ".")
        import_module(f"normlab.inspection.{name}")
    by_name = {name: question for (kind, name), question in _REGISTRY.items() if kind in of}
    for name in names:
        if name not in by_name:
            raise UserError(f"no question {name!r:.60}; choose from {', '.join(sorted(by_name))}")
    in_order = sorted(by_name.values(), key=lambda each: each.ask.__module__)  # by file name
    return [each for each in in_order if not names or each.name in names]
