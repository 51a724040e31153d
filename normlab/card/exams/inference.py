"""What do running statistics cost against the batch's own, which training had? Claims 12 to 15."""

from normlab.card.finding import Finding
from normlab.card.runs import diverged, trained
from normlab.card.subject import Examined
from normlab.health import statistics


def examine(examined: Examined) -> Finding:
    """Compare the losses of the trained translation model under each kind of statistics."""
    subject = trained(examined)
    if subject is None:
        return diverged(statistics.QUESTION)
    found = statistics.examine(subject)
    return Finding.of_sheet(found, {"train-eval gap": found.figures.get("gap", 0.0)})
