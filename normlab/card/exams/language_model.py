"""How well does a short run of a causal language model go, on Python's documentation?"""

from normlab.card.finding import Finding
from normlab.card.runs import short_runs
from normlab.card.subject import Examined

QUESTION = "How well does a causal language model learn in a short run (task=lm)?"
TITLES = {"test/loss": "lm loss"}


def examine(examined: Examined) -> Finding:
    """Train a causal language model."""
    return short_runs(examined, "language_model", QUESTION, TITLES)
