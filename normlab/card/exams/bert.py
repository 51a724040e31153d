"""How well does a short run of BERT's pretraining go, on Python's documentation?"""

from normlab.card.finding import Finding
from normlab.card.runs import short_runs
from normlab.card.subject import Examined

QUESTION = "How well does BERT learn in a short run (task=mlm)?"
TITLES = {"test/mlm_loss": "bert loss"}


def examine(examined: Examined) -> Finding:
    """Train a masked language model with its next-sentence head."""
    return short_runs(examined, "bert", QUESTION, TITLES)
