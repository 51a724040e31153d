"""How well does a short translation run go, on sentences that a small grammar generates?

The published cards used the earlier built-in corpus; a new card uses the one of today.
"""

from normlab.card.finding import Finding
from normlab.card.runs import short_runs
from normlab.card.subject import Examined

QUESTION = "How well does it learn to translate in a short run (task=toy)?"
TITLES = {"test/nll": "toy nll", "test/bleu": "toy BLEU"}


def examine(examined: Examined) -> Finding:
    """Train an encoder and a decoder."""
    return short_runs(examined, "translation", QUESTION, TITLES)
