"""Verdicts from numbers: the table of decisions, counts of seeds that train, planned looks.

With `d` the difference in the claimed direction, seed by seed, and `m` the margin, the first line
that holds decides:

    d is the same in every seed   undecided: without a spread no t interval means anything
    I90 within -m and +m          no difference (supports a claim of equality)
    I95 wholly above m            supported (contradicts a claim of equality)
    I95 wholly below 0            contradicted (a claim of equality: below -m)
    I95 wholly above 0            undecided: the direction is shown, its size is open
    otherwise                     undecided, with the smallest difference these seeds could show

The names are those of an error of 0.05. At a look's share `a` of it, "I95" is the t interval of
confidence 1 - a and "I90" that of 1 - 2a. Each line is a test whose p value is below `a` exactly
where the line holds: two one-sided tests, then two-sided t tests against m and against 0 (or -m).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
OPEN = "the counts do not decide"
HALF = 0.5
_ROUNDING = 1e-12  # a smaller difference of float64 scores is none
_MOST_DECIMALS = 6


@dataclass(frozen=True)
class Decision:
    """The verdict, with the interval and p value of the test that decided.

    The interval is I90 where it is within the margin, else I95; counts and constant differences
    have none. Where no test decided, `p` is the smallest of them, `reason` says what is open,
    `p_direction` is of the test against 0 if that is shown, and `smallest` is the difference that
    these seeds show with 80 % power.
    """

    verdict: Verdict
    p: float
    interval: Interval | None = None
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
        return Decision("undecided", 1.0, reason=CONSTANT)
    narrow = t_interval(values, confidence=1 - 2 * error)
    lowest = -margin if equality else 0.0
    same = equivalence(values, margin) if margin > 0 else 1.0
    above = p_value(wide, against=margin) if wide.mean > margin else 1.0
    below = p_value(wide, against=lowest) if wide.mean < lowest else 1.0
    if -margin < narrow.low and narrow.high < margin:
        verdict = "supported" if equality else "no difference"
        return Decision(verdict, same, narrow, confidence=1 - 2 * error)
    if wide.low > margin:
        verdict = "contradicted" if equality else "supported"
        return Decision(verdict, above, wide, confidence=1 - error)
    if wide.high < lowest:
        return Decision("contradicted", below, wide, confidence=1 - error)
    smallest = smallest_difference(wide, error=error)
    open_ = Decision("undecided", min(same, above, below), wide, "", smallest, 1 - error)
    if wide.low <= 0 <= wide.high:
        return open_
    return replace(open_, reason=SHOWN, p_direction=p_value(wide, against=0.0))


def constant(values: Sequence[float]) -> bool:
    """Tell whether values are equal up to rounding, so that their spread is unknown."""
    return max(values) - min(values) <= _ROUNDING


def less_often(side: tuple[int, int], reference: tuple[int, int], *, error: float) -> Decision:
    """Decide whether a side trains less often than a reference, by Fisher's exact test.

    Both are given as the seeds that train and all seeds.
    """
    p = fisher(side, reference)
    if p >= error:
        return Decision("undecided", p, reason=OPEN)
    less = side[0] * reference[1] < reference[0] * side[1]
    return Decision("supported" if less else "contradicted", p)


def against(
    side: tuple[int, int], reference: tuple[int, int], *, fails: bool, error: float
) -> Decision:
    """Decide whether a side `fails`, or else trains as often as a reference.

    Training less often supports the first and contradicts the second. If the exact test decides
    nothing and the side trains every time, the side decides alone: it does not fail.
    """
    found = less_often(side, reference, error=error)
    if found.verdict != "undecided":
        turned: Verdict = "contradicted" if found.verdict == "supported" else "supported"
        return found if fails else replace(found, verdict=turned)
    return alone(side, fails=fails, error=error) if side[0] == side[1] else found


def alone(side: tuple[int, int], *, fails: bool, error: float) -> Decision:
    """Decide whether every seed trains, or `fails`, by an exact test against a half.

    A single seed that does otherwise keeps it from being supported; most of them contradict it.
    """
    p = binomial(*side, against=HALF)
    as_said = side[1] - side[0] if fails else side[0]
    if p < error and as_said == side[1]:
        return Decision("supported", p)
    if p < error and as_said < side[1] / 2:
        return Decision("contradicted", p)
    return Decision("undecided", p, reason=OPEN)


ERROR = 0.05
"""The error that all planned looks spend together, so that a true null is rejected at any of them
with at most this probability.

A look's p value is multiplied by 0.05 over its share and then compared with 0.05. Between two looks
the lowest seeds that all sides have count, as many as the last look reached has. Of the looks
reached, the one that decides with the smallest corrected p counts; if none decides, the last one.
"""


@dataclass(frozen=True)
class Look:
    """A number of seeds to be judged, and the error that this spends."""

    seeds: int
    share: float

    def corrected(self, p: float) -> float:
        """Return a p value of this look to be compared with 0.05."""
        return min(1.0, p * ERROR / self.share)


LOOKS = tuple(map(Look, ANALYSES, (0.01, 0.015, 0.025)))
FEWEST = LOOKS[0].seeds


def reached(seeds: int) -> tuple[Look, ...]:
    """Return the looks that a number of seeds allows."""
    return tuple(look for look in LOOKS if look.seeds <= seeds)


@dataclass(frozen=True)
class Judgement:
    """The verdict of an endpoint before correction, and the records that it rests on.

    `found` is the value with its interval, `detail` what it was made of, `reason` why it is open or
    not measured. `p` is as found, `p_look` multiplied for the look; None if nothing was tested. If
    the direction is shown and the size is open, `p_direction` is that of the direction, multiplied
    for the look, and `unshown` the reason if it does not survive the correction. `n` counts seeds
    (or rounds), `look` the seeds of the look that counts, `seeds` all that may enter one (None if
    no seeds would help). `excluded` says why runs do not count, `records` are the folders or the
    file it rests on. `command` would measure more, at `cost`, once the `untuned` rows are tuned. If
    it is `stuck`, no further seeds can decide it.
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
    """Return a decision, at a look or without one, as a judgement; `more` are its values.

    With `ratio` the decision is about logarithms, and `margin` is a factor.
    """

    def corrected(p: float | None) -> float | None:
        return p if p is None or look is None else look.corrected(p)

    unshown = ""
    if decision.smallest is not None:
        (smallest,) = figures(math.exp(decision.smallest) if ratio else decision.smallest)
        said = f"a factor {smallest}" if ratio else smallest
        unshown = f"these seeds would have shown {said} (80 % power)"
    p = None if decision.reason == CONSTANT else decision.p
    values: dict[str, Any] = {
        "reason": decision.reason or unshown,
        "unshown": unshown if decision.p_direction is not None else "",
        "p": p,
        "p_look": corrected(p),
        "p_direction": corrected(decision.p_direction),
        "look": look.seeds if look else None,
        "smallest": decision.smallest,
    }
    if (interval := decision.interval) is not None:
        ends = interval.mean, interval.low, interval.high
        bounds: list[float] = []
        if margin is not None:
            bounds = [1.0, margin, 1 / margin] if ratio else [0.0, margin, -margin]
        said = interval_text(*(map(math.exp, ends) if ratio else ends), bounds=bounds)
        values |= {"found": ("factor " if ratio else "") + said}
        values |= dict(zip(("mean", "low", "high"), ends, strict=True))
        values |= {"confidence": decision.confidence}
    return Judgement(decision.verdict, **{**values, **more})


def interval_text(mean: float, low: float, high: float, bounds: Sequence[float] = ()) -> str:
    """Write a value with its interval, such as `2.27 [1.09, 3.45]`.

    Decimals are added until no end reads like one of the `bounds` that it is not.
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
