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
_ROUNDING = 1e-12  # a smaller difference of float64 scores is none
_MOST_DECIMALS = 6
_TURNED: dict[Verdict, Verdict] = {"supported": "contradicted", "contradicted": "supported"}
Count = tuple[int, int]  # the seeds that train, and all seeds


@dataclass(frozen=True)
class Judgement:
    """The verdict of an endpoint before correction, and the records that it rests on.

    `found` is the value with its interval, `detail` what it was made of, `reason` why it is open or
    not measured. `p` is that of the test that decided, or else the smallest; `p_look` is multiplied
    for the look. If the direction is shown and the size is open, `p_direction` is that of the
    direction, and `unshown` the reason if it does not survive the correction. `interval` has mean
    and ends, `smallest` is the difference that these seeds show with 80 % power. `n` counts seeds
    (or rounds), `look` the seeds of the look that counts, `seeds` all that may enter one.
    `excluded` says why runs do not count, `records` are the files or addresses it rests on.
    `command` would measure more, at `cost`, once the `untuned` rows are tuned. No seeds can decide
    it if `stuck`.
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
    interval: tuple[float, float, float] | None = None
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


def tested(verdict: Verdict, p: float, interval: Interval, error: float) -> Judgement:
    """Return the verdict of a test of an interval at an error."""
    ends = interval.mean, interval.low, interval.high
    return Judgement(verdict, p=p, confidence=1 - error, interval=ends)


def decide(
    values: Sequence[float], *, margin: float, equality: bool, error: float = 0.05
) -> Judgement:
    """Apply the table to differences; raises `ValueError` for fewer than two."""
    wide = t_interval(values, confidence=1 - error)
    if constant(values):
        return Judgement("undecided", reason=CONSTANT)
    narrow = t_interval(values, confidence=1 - 2 * error)
    lowest = -margin if equality else 0.0
    same = equivalence(values, margin) if margin > 0 else 1.0
    above = p_value(wide, against=margin) if wide.mean > margin else 1.0
    below = p_value(wide, against=lowest) if wide.mean < lowest else 1.0
    if -margin < narrow.low and narrow.high < margin:
        return tested("supported" if equality else "no difference", same, narrow, 2 * error)
    if wide.low > margin:
        return tested("contradicted" if equality else "supported", above, wide, error)
    if wide.high < lowest:
        return tested("contradicted", below, wide, error)
    found = tested("undecided", min(same, above, below), wide, error)
    found = replace(found, smallest=smallest_difference(wide, error=error))
    if wide.low <= 0 <= wide.high:
        return found
    return replace(found, reason=SHOWN, p_direction=p_value(wide, against=0.0))


def constant(values: Sequence[float]) -> bool:
    """Tell whether values are equal up to rounding, so that their spread is unknown."""
    return max(values) - min(values) <= _ROUNDING


def less_often(side: Count, reference: Count, *, error: float) -> Judgement:
    """Decide whether a side trains less often than a reference, by Fisher's exact test."""
    p = fisher(side, reference)
    if p >= error:
        return Judgement("undecided", p=p, reason=OPEN)
    less = side[0] * reference[1] < reference[0] * side[1]
    return Judgement("supported" if less else "contradicted", p=p)


def counts(side: Count, reference: Count | None, *, fails: bool, error: float) -> Judgement:
    """Decide whether a side `fails`, or else trains as often as a reference, if there is one.

    Training less often supports the first and contradicts the second. If this decides nothing and
    the side trains every time, or without a reference, the side is tested against a half. Then a
    claim about every seed is not supported by most of them, and most of the others contradict it.
    """
    if reference is not None:
        found = less_often(side, reference, error=error)
        if found.verdict != "undecided" and not fails:
            return replace(found, verdict=_TURNED[found.verdict])
        if found.verdict != "undecided" or side[0] < side[1]:
            return found
    p = binomial(*side, against=0.5)
    as_said = side[1] - side[0] if fails else side[0]
    if p < error and as_said == side[1]:
        return Judgement("supported", p=p)
    if p < error and as_said < side[1] / 2:
        return Judgement("contradicted", p=p)
    return Judgement("undecided", p=p, reason=OPEN)


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

    def corrected(self, p: float | None) -> float | None:
        """Return a p value of this look to be compared with 0.05."""
        return None if p is None else min(1.0, p * ERROR / self.share)


LOOKS = tuple(map(Look, ANALYSES, (0.01, 0.015, 0.025)))
FEWEST = LOOKS[0].seeds


def reached(seeds: int) -> tuple[Look, ...]:
    """Return the looks that a number of seeds allows."""
    return tuple(look for look in LOOKS if look.seeds <= seeds)


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


def at_look(
    found: Judgement,
    look: Look | None,
    /,
    *,
    bounds: Sequence[float] = (),
    ratio: bool = False,
    **more: Any,
) -> Judgement:
    """Correct a judgement for its look and write its numbers out; `more` replaces its values.

    With `ratio` its numbers are logarithms. `bounds` are those of `interval_text`.
    """
    value = math.exp if ratio else float
    said: dict[str, Any] = {}
    if found.smallest is not None:
        (smallest,) = figures(value(found.smallest))
        factor = "a factor " if ratio else ""
        unshown = f"these seeds would have shown {factor}{smallest} (80 % power)"
        said["reason"] = found.reason or unshown
        said["unshown"] = "" if found.p_direction is None else unshown
    if found.interval is not None:
        ends = interval_text(*map(value, found.interval), bounds=bounds)
        said["found"] = f"factor {ends}" if ratio else ends
    said["p_look"] = found.p
    if look is not None:
        p, direction = look.corrected(found.p), look.corrected(found.p_direction)
        said |= {"p_look": p, "p_direction": direction, "look": look.seeds}
    return replace(found, **{**said, **more})


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
