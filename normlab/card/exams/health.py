"""What does the rest of the health sheet say of the trained translation model?"""

from normlab.card.finding import Finding
from normlab.card.runs import diverged, trained
from normlab.card.subject import Examined
from normlab.health import sheet

QUESTION = "What does the rest of the health sheet say of the trained model?"
NAMES = ("gradients", "leak", "batch_mean", "outlier", "order")
COLUMNS = ("examination", "answer")


def examine(examined: Examined) -> Finding:
    """Carry out the examinations of `normlab inspect` that no other part of the card has."""
    subject = trained(examined)
    if subject is None:
        return diverged(QUESTION)
    found = dict(sheet.examine(subject, NAMES))
    rows = [(f"{name}: {each.question}", each.answer) for name, each in found.items()]
    figures = {name: each.figures for name, each in found.items()}
    return Finding(QUESTION, found["leak"].answer, figures, COLUMNS, rows)
