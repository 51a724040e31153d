"""All questions about norms and about our models, and a finding's entry in a JSON file.

A question is a function with the decorator `question`. There is no list of them: every file below
this folder is imported, so a question in a new file is found.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from normlab.findings.finding import Finding
from normlab.findings.question import Of, Question, registered


def questions(*of: Of, names: Sequence[str] = ()) -> list[Question]:
    """Return all questions about these kinds, or the named ones, ordered by file.

    Raises UserError if a name is unknown.
    """
    folder = Path(__file__).parent
    paths = (path.relative_to(folder).with_suffix("") for path in folder.rglob("[a-z]*.py"))
    modules = sorted(f"{__package__}.{path.as_posix().replace('/', '.')}" for path in paths)
    for module in modules:
        import_module(module)
    return registered(*of, modules=modules, names=names)


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
