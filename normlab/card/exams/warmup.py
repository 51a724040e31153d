"""What does it lose without a warm-up of the learning rate? Claims 26 to 28."""

from normlab.card.finding import Finding
from normlab.card.rerun import against_usual
from normlab.card.subject import Examined

QUESTION = "Does it train without a warm-up of the learning rate?"


def examine(examined: Examined) -> Finding:
    """Train the translation run again from the full rate on."""
    changed = ["schedule.warmup=0"]
    return against_usual(examined, QUESTION, "with warm-up", "without", changed, "no warm-up")
