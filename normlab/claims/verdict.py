"""The verdicts on a part of a claim."""

from typing import Literal

Verdict = Literal["supported", "contradicted", "no difference", "undecided", "not measured"]
DECIDED: tuple[Verdict, ...] = ("supported", "contradicted", "no difference")
PARTS: tuple[Verdict, ...] = (*DECIDED, "undecided", "not measured")
"""The verdicts of parts, those that decide them first."""
