"""`normlab explain NORM --table marks`: works through the articles' analogy of marks in a class."""

from normlab.config.registry import Option
from normlab.findings.finding import AnswerTable
from normlab.inspection.examples.articles import CLASS_MARKS, PUPILS, SUBJECTS, marks_of_a_class
from normlab.inspection.explain.section import Section
from normlab.inspection.norm.norm_calls import run
from normlab.norms.make import make_norm


def of_class(option: Option) -> Section:
    """Show what a norm does to the marks of a class. Pupils are tokens, and subjects features."""
    norm = make_norm(option.name, len(SUBJECTS)).double().train()
    result = run(norm, marks_of_a_class())[0]
    rows = [
        (pupil, *(f"{mark:g}" for mark in before), *map(_signed, after.tolist()))
        for pupil, before, after in zip(PUPILS, CLASS_MARKS, result, strict=True)
    ]
    rows.append(("mean", *[""] * len(SUBJECTS), *map(_signed, result.mean(0).tolist())))
    columns = ("pupil", *SUBJECTS, *(f"{option.name}: {subject}" for subject in SUBJECTS))
    text = (
        "Made-up marks of three pupils, and the norm's output. A mean of 0 below a column means "
        "that this subject is compared over the class. A row that sums to 0 means that a pupil's "
        "own subjects are compared."
    )
    return Section(f"{option.name}: {option.description}", text, table=AnswerTable(columns, rows))


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0:+.2f}"
