"""The registry of questions. A question is a function that returns a finding about its subject."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from normlab.errors import UserError

Of = Literal["norm", "model", "card", "claim", "module"]
"""The subject of a question: a norm by itself, a model that normlab built, a norm's report card, a
claim of the articles, or any `nn.Module`.
"""
Ask = TypeVar("Ask", bound=Callable[..., Any])


@dataclass(frozen=True)
class Question:
    """A registered question: its name, the kind of its subject, its text and its function.

    Questions about `trained` models do not apply to a model at initialization. A `slow` question is
    skipped unless the user selects it.
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
    """Register a function as a question, whose text is the first line of the docstring."""

    def register(ask: Ask) -> Ask:
        text = (inspect.getdoc(ask) or "").partition("\n")[0]
        _REGISTRY[of, name] = Question(name, of, text, ask, trained, slow)
        return ask

    return register


def registered(*of: Of, modules: Sequence[str], names: Sequence[str] = ()) -> list[Question]:
    """Return the questions about some kinds of subjects, in the order of their `modules`.

    If `names` are given, only these are returned; an unknown name raises UserError.
    """
    by_name = {name: question for (kind, name), question in _REGISTRY.items() if kind in of}
    for name in names:
        if name not in by_name:
            raise UserError(f"no question {name!r:.60}; choose from {', '.join(sorted(by_name))}")
    in_order = sorted(by_name.values(), key=lambda question: modules.index(question.ask.__module__))
    return [question for question in in_order if not names or question.name in names]
