"""Verdicts from numbers: the table of decisions, counts of seeds that train, planned looks.

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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from normlab.metrics.spread import (
    Interval,
    binomial,
    equivalence,
    fisher,
    p_value,
    smallest_difference,
    t_interval,
)
from normlab.studies import ANALYSES

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
    """Decide whether every seed trains, or `fails`, by an exact test against a half.

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


ERROR = 0.05
"""What the planned looks at a growing number of seeds spend together, each its share.

So a true null is rejected at any of them with at most that. A look's p value is multiplied by 0.05
over its share, after which it is compared with 0.05. Between two looks the lowest seeds that all
sides have count, as many as the last look reached has. Of the looks reached, the one with the
smallest corrected p that decides counts, and the last one where none decides.
"""


@dataclass(frozen=True)
class Look:
    """How many seeds are looked at, and the error that this spends."""

    seeds: int
    share: float

    def corrected(self, p: float) -> float:
        """Return a p value of this look as one to be read against 0.05."""
        return min(1.0, p * ERROR / self.share)


LOOKS = tuple(map(Look, ANALYSES, (0.01, 0.015, 0.025)))
FEWEST = LOOKS[0].seeds


def reached(seeds: int) -> tuple[Look, ...]:
    """Return the looks that a number of seeds allows."""
    return tuple(look for look in LOOKS if look.seeds <= seeds)


_MOST_DECIMALS = 6


@dataclass(frozen=True)
class Judgement:
    """What was found, and by which records.

    `found` is the figure with its interval, `detail` what it was made of, `reason` why it is
    open or not measured. `p` is as found, `p_look` multiplied for the look; both None where
    nothing was tested. Where the direction is shown and the size is open, `p_direction` is that
    of the direction, multiplied for the look, and `unshown` the reason if that does not hold.
    `n` counts seeds (or rounds), `look` those of the look that counts, `seeds` all that may
    enter one; None where no seeds would help. `excluded` says of runs that are there why they
    decide nothing, `setting` on which data and size, `records` lists the folders, or the file,
    that it rests on. `command` would measure more, at `cost`, once tuning has chosen a value
    for the rows that are `untuned`. Where it is `stuck`, as at a floor, more seeds would not:
    the setting has to be another.
    """

    verdict: Verdict
    found: str = ""
    detail: str = ""
    reason: str = ""
    p: float | None = None
    p_look: float | None = None
    p_direction: float | None = None
    unshown: str = ""
    n: int = 0
    look: int | None = None
    seeds: int | None = None
    low: float | None = None
    mean: float | None = None
    high: float | None = None
    confidence: float | None = None
    smallest: float | None = None
    grade: str | None = None
    setting: str = ""
    excluded: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    command: str | None = None
    cost: str | None = None
    untuned: tuple[str, ...] = ()
    repeats: str = "seed"
    stuck: bool = False


def stuck(reason: str, found: str = "") -> Judgement:
    """Return that no seeds can decide, for a `reason` such as a side at its floor."""
    reason = f"{reason}; more seeds would not change that, a longer or larger run might"
    return Judgement("undecided", found=found, reason=reason, stuck=True)


def sequential(
    seeds: Sequence[int], judge: Callable[[Sequence[int], Look], Judgement]
) -> tuple[Look, Judgement]:
    """Judge the first seeds of each look reached; return the look that counts and its judgement.

    `seeds` are at least as many as the first look has.
    """
    ordered = sorted(seeds)
    found = [(look, judge(ordered[: look.seeds], look)) for look in reached(len(ordered))]
    decided = [pair for pair in found if pair[1].verdict in DECIDED]
    return min(decided, key=lambda pair: pair[1].p_look or 0.0, default=found[-1])


def of_decision(
    decision: Decision,
    look: Look | None,
    *,
    ratio: bool = False,
    margin: float | None = None,
    **more: Any,
) -> Judgement:
    """Return what a decision says, at a look or without one; `more` are values of a judgement.

    Of a `ratio` the decision has logarithms, and `margin` is a factor.
    """

    def corrected(p: float | None) -> float | None:
        return p if p is None or look is None else look.corrected(p)

    p = None if decision.reason == CONSTANT else decision.p
    shown = decision.p_direction is not None
    found = Judgement(
        decision.verdict,
        reason=_open_text(decision, ratio=ratio),
        unshown=_open_text(replace(decision, reason=""), ratio=ratio) if shown else "",
        p=p,
        p_look=corrected(p),
        p_direction=corrected(decision.p_direction),
        look=look.seeds if look else None,
        smallest=decision.smallest,
    )
    if (interval := decision.interval) is not None:
        ends = interval.mean, interval.low, interval.high
        mean, low, high = map(math.exp, ends) if ratio else ends
        bounds: list[float] = []
        if margin is not None:
            bounds = [1.0, margin, 1 / margin] if ratio else [0.0, margin, -margin]
        found = replace(
            found,
            found=("factor " if ratio else "") + interval_text(mean, low, high, bounds),
            mean=interval.mean,
            low=interval.low,
            high=interval.high,
            confidence=decision.confidence,
        )
    return replace(found, **more)


def _open_text(decision: Decision, *, ratio: bool) -> str:
    """Say what an undecided part leaves open."""
    if decision.verdict != "undecided":
        return ""
    if decision.reason or decision.smallest is None:
        return decision.reason
    (smallest,) = figures(math.exp(decision.smallest) if ratio else decision.smallest)
    said = f"a factor {smallest}" if ratio else smallest
    return f"these seeds would have shown {said} (80 % power)"


def interval_text(mean: float, low: float, high: float, bounds: Sequence[float] = ()) -> str:
    """Write a figure with its interval, such as `2.27 [1.09, 3.45]`.

    An end that is not one of the `bounds` that decide is not written like one.
    """
    said = figures(mean, low, high)
    decimals = len(said[0].partition(".")[2])
    while decimals < _MOST_DECIMALS and any(
        end != bound and round(end, decimals) == round(bound, decimals)
        for end in (low, high)
        for bound in bounds
    ):
        decimals += 1
        said = _rounded((mean, low, high), decimals)
    return f"{said[0]} [{said[1]}, {said[2]}]"


def figures(*values: float) -> list[str]:
    """Write numbers with as many decimals as the largest needs to show three digits."""
    finite = [abs(value) for value in values if math.isfinite(value) and value]
    needed = 2 - math.floor(math.log10(max(finite))) if finite else 0
    return _rounded(values, min(_MOST_DECIMALS, max(0, needed)))


def _rounded(values: Sequence[float], decimals: int) -> list[str]:
    return [f"{value:.{decimals}f}" if math.isfinite(value) else str(value) for value in values]


def p_text(p: float | None) -> str:
    """Write a p value with three decimals, or that it is less; a dash where nothing was tested."""
    if p is None:
        return "-"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
