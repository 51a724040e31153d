"""All questions about norms and about normlab's models, and the entry of a finding in a JSON file.

A question is a function with the decorator `question` in any file below this folder.
"""

from collections.abc import Sequence
from typing import Any

from normlab.findings.finding import Finding
from normlab.findings.question import Of, Question, questions_below


def questions(*of: Of, names: Sequence[str] = ()) -> list[Question]:
    """Return all questions about these kinds of subjects, or the named ones, ordered by file.

    Raises UserError if a name is unknown.
    """
    return questions_below(__package__ or "", *of, names=names)


def entry(question: Question, finding: Finding) -> dict[str, Any]:
    """Return a finding's entry in `inspect.json` or `card.json`."""
    return {
        "question": question.text,
        "answer": finding.answer,
        "values": finding.values,
        "columns": finding.table.columns,
        "rows": finding.table.rows,
        "why_not": finding.why_not or None,
        "applies": not finding.why_not,
        "board": finding.board,
    }
