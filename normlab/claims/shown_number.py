"""Converts the number of a decision to the one that is shown: the first side minus the second.

A decision's number is positive in the claimed direction. Readers see the value of the first side
minus that of the second or, for a factor, the first divided by the second. A time is shown as the
share by which the first side takes more or less time than the second.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from normlab.claims.decision import Decision, Estimate, Form


def shown_value(value: float, form: "Form", *, opposite: bool) -> float:
    """Return the number to show for a decision's number.

    `opposite` says whether the first side minus the second is negative in the claimed direction. A
    `share` is the share of time that the faster side saves.
    """
    if form == "share":
        return -value if opposite else value / (1 - value)
    if not opposite:
        return value
    if form == "factor":
        return 1 / value if value else math.inf
    return -value


def shown_estimate(decision: "Decision") -> "Estimate | None":
    """Return a decision's number with its interval as they are shown, or None if it has none."""
    if (estimate := decision.estimate) is None:
        return None
    mean, *ends = (
        shown_value(value, decision.form, opposite=decision.opposite)
        for value in (estimate.mean, estimate.low, estimate.high)
    )
    low, high = sorted(ends)
    return replace(estimate, mean=mean, low=low, high=high)


def shown_bounds(decision: "Decision") -> list[float]:
    """Return the numbers that a decision's number is judged against, as they are shown."""
    form, opposite = decision.form, decision.opposite
    return [shown_value(bound, form, opposite=opposite) for bound in decision.bounds]


def more_or_less(number: Sequence[str]) -> tuple[Literal["more", "less"], tuple[str, ...]]:
    """Return whether a change is an increase, and its size with the ends of its interval as text.

    A decrease of `-2.0 %` from `-3.1 %` to `-1.0 %` becomes `2.0 %` from `1.0 %` to `3.1 %`.
    """
    mean, *ends = number
    if not mean.startswith("-"):
        return "more", tuple(number)
    return "less", tuple(map(_negated, (mean, *reversed(ends))))


def _negated(text: str) -> str:
    if text.startswith("-"):
        return text[1:]
    return f"-{text}" if any(digit in text for digit in "123456789") else text
