"""All questions about norms and about normlab's models, and the JSON entry of a finding.

A question is a function decorated with `@question`, in any file below this folder.
"""

from collections.abc import Sequence
from typing import Any

from normlab.findings.finding import Finding
from normlab.findings.question import Of, Question, questions_below


def questions(*of: Of, names: Sequence[str] = ()) -> list[Question]:
    """Return the questions about these kinds of subjects, ordered by file.

    If `names` is set, only those are returned. Raises UserError if a name is unknown.
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
