"""All questions about a module, in the order in which they are asked."""

from normlab.findings.question import Question, questions_below

_ORDER = (
    *("forward", "modes", "padding", "norms", "batch_mates", "future"),
    *("precision", "worth", "depth", "channels", "sinks", "statistics"),
)
"""The order of the questions. Questions that are not in this list are asked last."""


def questions(*names: str, slow: bool = False) -> list[Question]:
    """Return the named questions, in the order of the names.

    Without names, return all quick questions and, if `slow`, the slow ones as well. Raises
    UserError if a name is unknown.
    """
    selected = questions_below(__package__ or "", "module", names=names)
    if names:
        by_name = {question.name: question for question in selected}
        return [by_name[name] for name in names]
    quick_or_slow = [question for question in selected if slow or not question.slow]
    return sorted(quick_or_slow, key=lambda question: (*_ORDER, question.name).index(question.name))
