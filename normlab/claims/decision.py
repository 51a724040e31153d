"""The table by which seeds decide a part, as one function of numbers alone.

With `d` the difference in the claimed direction, seed by seed, and `m` the margin, the first line
that holds decides:

    I90 within -m and +m      no difference (supports a claim of equality)
    I95 wholly above m        supported (contradicts a claim of equality)
    I95 wholly below 0        contradicted (a claim of equality: below -m)
    I95 wholly above 0        undecided: the direction is shown, its size is open
    otherwise                 undecided, with the smallest difference that these seeds could show

Before all of them: where the difference is the same in every seed, the part is undecided. A t
interval takes the spread of seeds not seen from that of the seeds seen, and equal differences, such
as of counts that are 0 in every run, have none: their interval has no width, and would decide with
p = 0 whatever the margin. Five equal counts leave it open how many other seeds would have.

An error of 0.05 gives these intervals their names. At another error `a`, a look's share of it,
"I95" is the t interval of confidence 1 - a and "I90" that of 1 - 2a. Each line is a test whose p
value is below `a` exactly where the line holds: two one-sided tests for the first, two-sided t
tests against m and against 0 (or -m) for the next two.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from normlab.metrics.spread import Interval, equivalence, p_value, smallest_difference, t_interval

Verdict = Literal["supported", "contradicted", "no difference", "undecided", "not measured"]
DECIDED: tuple[Verdict, ...] = ("supported", "contradicted", "no difference")
SHOWN = "the direction is shown, its size is open"
CONSTANT = "the difference is the same in every seed, so there is no spread to judge by"
_ROUNDING = 1e-12  # a difference of float64 scores that is smaller is none


@dataclass(frozen=True)
class Decision:
    """What the table says: the verdict, and interval and p value of the test that decided.

    The interval is I90 where it is within the margin, else I95, and has its `confidence`. Counts
    and equal differences have none. Where no test decided, `p` is of the one that came nearest,
    `reason` says what is open, `p_direction` is of the test against 0 where that is shown, and
    `smallest` is the difference that these seeds would have shown with 80 % power.
    """

    verdict: Verdict
    p: float
    interval: Interval | None
    reason: str = ""
    smallest: float | None = None
    confidence: float | None = None
    p_direction: float | None = None


UNDECIDED = Decision("undecided", 1.0, None)


def decide(
    values: Sequence[float], *, margin: float, equality: bool, error: float = 0.05
) -> Decision:
    """Apply the table to differences; raises `ValueError` for fewer than two."""
    wide = t_interval(values, confidence=1 - error)
    if constant(values):
        return Decision("undecided", 1.0, None, CONSTANT)
    narrow = t_interval(values, confidence=1 - 2 * error)
    lowest = -margin if equality else 0.0
    tests = {
        "same": equivalence(values, margin) if margin > 0 else 1.0,
        "above": p_value(wide, against=margin) if wide.mean > margin else 1.0,
        "below": p_value(wide, against=lowest) if wide.mean < lowest else 1.0,
    }
    if -margin < narrow.low and narrow.high < margin:
        verdict: Verdict = "supported" if equality else "no difference"
        return Decision(verdict, tests["same"], narrow, confidence=1 - 2 * error)
    beyond = partial(Decision, interval=wide, confidence=1 - error)
    if wide.low > margin:
        return beyond("contradicted" if equality else "supported", tests["above"])
    if wide.high < lowest:
        return beyond("contradicted", tests["below"])
    found = beyond(
        "undecided", min(tests.values()), smallest=smallest_difference(wide, error=error)
    )
    if wide.low <= 0 <= wide.high:
        return found
    return replace(found, reason=SHOWN, p_direction=p_value(wide, against=0.0))


def constant(values: Sequence[float]) -> bool:
    """Tell whether values are equal but for rounding, so that nothing is known of their spread."""
    return max(values) - min(values) <= _ROUNDING
