"""Decisions by counts: of how many seeds a side trains."""

from dataclasses import replace

from normlab.claims.decision import Decision, Verdict
from normlab.metrics.spread import binomial, fisher

HALF = 0.5
OPEN = "the counts do not decide"


def less_often(side: tuple[int, int], reference: tuple[int, int], *, error: float) -> Decision:
    """Decide whether a side trains less often than a reference, by Fisher's exact test.

    Both are given as seeds that train and all seeds.
    """
    p = fisher(side, reference)
    if p >= error:
        return Decision("undecided", p, None, OPEN)
    less = side[0] * reference[1] < reference[0] * side[1]
    return Decision("supported" if less else "contradicted", p, None)


def against(
    side: tuple[int, int], reference: tuple[int, int], *, fails: bool, error: float
) -> Decision:
    """Decide what says that a side `fails`, or else trains as often as a reference.

    To train less often supports the first and contradicts the second. Where the exact test is
    silent and the side trains every time, the side decides alone: it does not fail.
    """
    found = less_often(side, reference, error=error)
    if found.verdict != "undecided":
        turned: Verdict = "contradicted" if found.verdict == "supported" else "supported"
        return found if fails else replace(found, verdict=turned)
    own = alone(side, fails=fails, error=error)
    return own if side[0] == side[1] else found


def alone(side: tuple[int, int], *, fails: bool, error: float) -> Decision:
    """Decide what says of every seed that it trains, or `fails`, by an exact test against a half.

    Seeds that mostly do otherwise contradict it. One that does is enough not to support it.
    """
    p = binomial(*side, against=HALF)
    as_said = side[1] - side[0] if fails else side[0]
    found: Verdict = "undecided"
    if p < error and as_said == side[1]:
        found = "supported"
    elif p < error and as_said < side[1] / 2:
        found = "contradicted"
    return Decision(found, p, None, "" if found != "undecided" else OPEN)
