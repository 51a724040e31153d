"""Decides what both pages of the ledger say of how to read it, and where their links start."""

import posixpath
from collections.abc import Mapping

from normlab.claims.evidence import Verdict

HOME = "results"
TITLE = "The claims of the documents, and what was found"
WRITTEN = (
    "Written by `normlab claims --write` from the committed records and from what the checks "
    "compute; do not edit. `normlab claims N` shows a claim in the terminal."
)
CARE = (
    "The records are small: Multi30k is not IWSLT'14, and `scale=cpu` is 2+2 layers for 2,000 "
    "updates. A verdict is about the task, scale and settings that its lines name, not about the "
    "documents' own experiments, of which no code is known."
)
MEANINGS: Mapping[Verdict, str] = {
    "supported": "every piece that was measured supports the claim",
    "contradicted": "some contradict and none supports",
    "partly": "some support, others contradict or leave it open",
    "not measured": "nothing decides yet",
}
NOTES = (
    "A comparison of records pairs the seeds that both sides have, at least three, at settings "
    "that are otherwise equal. `a [b, c]` is the mean difference with its 95 % t interval, in the "
    "claimed direction, beside both means. It supports above the margin (0 unless said) and "
    "contradicts below.",
    "A comparison of times is of candidates that took turns in one process: `n` are rounds, and "
    "the interval is of the share of time saved. It tells of noise, not of other machines.",
    '"Computed" pieces are figures of the norms themselves, in float64, by '
    "`normlab claims --check`. They decide what a norm does; what that costs a trained model only "
    "records decide.",
)


def address(path: str) -> str:
    """Return the way to a file or folder of the checkout from where the pages lie."""
    return posixpath.relpath(path, HOME)
