"""The registry of questions: each is a function that returns what it finds out about a subject."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from normlab.errors import UserError

Of = Literal["norm", "model", "card", "claim", "module"]
"""What a question is about: a norm by itself, a model that normlab built, a norm's report card, a
claim of the articles, or any `nn.Module`.
"""
Ask = TypeVar("Ask", bound=Callable[..., Any])


@dataclass(frozen=True)
class Question:
    """A registered question: its name, the kind of subject it is about, its text and function.

    Questions about `trained` models tell nothing about a model at initialization. A `slow` question
    is asked only if the user asks for it.
    """

    name: str
    of: Of
    text: str
    ask: Callable[..., Any]
    trained: bool = False
    slow: bool = False


_REGISTRY: dict[tuple[Of, str], Question] = {}


def question(
    name: str, *, of: Of, trained: bool = False, slow: bool = False
) -> Callable[[Ask], Ask]:
    """Register a function as a question; the first line of its docstring is the question's text."""

    def register(ask: Ask) -> Ask:
        text = (inspect.getdoc(ask) or "").partition("\n")[0]
        _REGISTRY[of, name] = Question(name, of, text, ask, trained, slow)
        return ask

    return register


def registered(*of: Of, modules: Sequence[str], names: Sequence[str] = ()) -> list[Question]:
    """Return all questions about these kinds, or the named ones, in the order of their `modules`.

    Raises UserError for an unknown name.
    """
    by_name = {name: question for (kind, name), question in _REGISTRY.items() if kind in of}
    for name in names:
        if name not in by_name:
            raise UserError(f"no question {name!r:.60}; choose from {', '.join(sorted(by_name))}")
    in_order = sorted(by_name.values(), key=lambda question: modules.index(question.ask.__module__))
    return [question for question in in_order if not names or question.name in names]
