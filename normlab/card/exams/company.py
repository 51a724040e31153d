"""Do padding and the other sentences of the batch change what a sentence becomes?

The health sheet's `padding` and `batch_mates`, on the trained translation model. Claims 7, 8, 16.
"""

from normlab.card.finding import Finding
from normlab.card.runs import diverged, trained
from normlab.card.subject import Examined
from normlab.health import batch_mates, padding

QUESTION = "Do padding, and the other sentences of the batch, change what a sentence becomes?"
COLUMNS = ("moved by", "in training", "in evaluation")
MODES = ("training", "eval")


def examine(examined: Examined) -> Finding:
    """Say how far a sentence's values move, relative to their size, at most over stacks."""
    subject = trained(examined)
    if subject is None:
        return diverged(QUESTION)
    mates, padded = batch_mates.examine(subject), padding.examine(subject)
    by_mates: dict[str, float] = {}
    by_padding: dict[str, float] = {}
    for mode in MODES:
        if not mates.why_not:
            by_mates[mode] = max(mates.figures["values"][mode].values())
        if not padded.why_not:
            by_padding[mode] = max(x[-1] for x in padded.figures["moved"][mode].values())
    rows = [
        ("other sentences", *(by_mates.get(mode) for mode in MODES)),
        ("padding", *(by_padding.get(mode) for mode in MODES)),
    ]
    figures = {"batch_mates": mates.figures, "padding": padded.figures}
    answer = f"other sentences: {mates.answer}; padding: {padded.answer}"
    cells = {"mates": by_mates.get("training"), "padding": by_padding.get("training")}
    return Finding(QUESTION, answer, figures, COLUMNS, rows, cells)
