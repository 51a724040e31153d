"""The registry of questions. A question is a function that returns a finding about its subject."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar

from normlab.docstrings import summary
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
    """Register a function as a question. The first line of its docstring is the question's text."""

    def register(ask: Ask) -> Ask:
        _REGISTRY[of, name] = Question(name, of, summary(ask), ask, trained, slow)
        return ask

    return register


def questions_below(package: str, *of: Of, names: Sequence[str] = ()) -> list[Question]:
    """Return the questions in a package about the given kinds of subjects, in order of files.

    Every file is imported, so a question in a new file is found without being listed anywhere. If
    `names` are given, only these questions are returned. An unknown name raises UserError.
    """
    modules = _modules_below(package)
    for module in modules:
        import_module(module)
    by_name = {
        question.name: question
        for (kind, _), question in _REGISTRY.items()
        if kind in of and question.ask.__module__ in modules
    }
    for name in names:
        if name not in by_name:
            raise UserError(
                f"{name!r:.60} is not a question; choose from {', '.join(sorted(by_name))}"
            )
    in_order = sorted(by_name.values(), key=lambda question: modules.index(question.ask.__module__))
    return [question for question in in_order if not names or question.name in names]


def _modules_below(package: str) -> list[str]:
    """Return the names of all modules in a package and in the folders below it, sorted."""
    folder = Path(import_module(package).__file__ or "").parent
    paths = (path.relative_to(folder).with_suffix("") for path in folder.rglob("[a-z]*.py"))
    return sorted(f"{package}.{path.as_posix().replace('/', '.')}" for path in paths)
