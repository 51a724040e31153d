"""The verdicts on parts of claims, and the verdict on a claim that follows from them."""

from collections.abc import Sequence
from typing import Literal

Verdict = Literal["supported", "contradicted", "no difference", "undecided", "not measured"]
DECIDED: tuple[Verdict, ...] = ("supported", "contradicted", "no difference")
PARTS: tuple[Verdict, ...] = (*DECIDED, "undecided", "not measured")
"""The verdicts of parts, beginning with the verdicts that decide a part."""


def combined_verdict(parts: Sequence[Verdict]) -> str:
    """Combine the verdicts of a claim's parts.

    Only decided parts count. A claim is `supported` if all of them are supported, `contradicted` if
    each one is contradicted or shows no difference, and otherwise `mixed`. If no part is decided,
    the claim is `undecided` if a part was measured, and otherwise `not measured`.
    """
    decided = set(parts) & set(DECIDED)
    if not decided:
        return "undecided" if "undecided" in parts else "not measured"
    if decided == {"supported"}:
        return "supported"
    return "mixed" if "supported" in decided else "contradicted"
