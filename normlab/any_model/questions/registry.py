"""All questions about a module, in the order in which they are asked."""

from importlib import import_module

from normlab.findings.question import Question, registered

_FILES = (
    *("modes", "padding", "norms", "forward", "batch_mates", "future"),
    *("precision", "worth", "depth", "channels", "sinks", "statistics"),
)


def questions(*names: str, slow: bool = False) -> list[Question]:
    """Return the named questions, or all quick ones, and with `slow` the slow ones too.

    Raises UserError if a name is unknown.
    """
    modules = [import_module(f"{__package__}.{file}").__name__ for file in _FILES]
    known = registered("module", modules=modules, names=names)
    by_name = {question.name: question for question in known}
    if names:
        return [by_name[name] for name in names]
    return [question for question in by_name.values() if slow or not question.slow]
