"""What an endpoint found: its verdict before any correction, and all that is shown of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from normlab.claims.decision import CONSTANT, Decision, Verdict
from normlab.claims.looks import Look

_MOST_DECIMALS = 6


@dataclass(frozen=True)
class Finding:
    """What was found, and where that stands.

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


def stuck(reason: str, found: str = "") -> Finding:
    """Return that no seeds can decide, for a `reason` such as a side at its floor."""
    reason = f"{reason}; more seeds would not change that, a longer or larger run might"
    return Finding("undecided", found=found, reason=reason, stuck=True)


def of_decision(
    decision: Decision,
    look: Look | None,
    *,
    ratio: bool = False,
    margin: float | None = None,
    **more: object,
) -> Finding:
    """Return what a decision says, at a look or without one; `more` are values of a finding.

    Of a `ratio` the decision has logarithms, and `margin` is a factor.
    """
    p = None if decision.reason == CONSTANT else decision.p

    def corrected(p: float | None) -> float | None:
        return p if p is None or look is None else look.corrected(p)

    unshown = replace(decision, reason="") if decision.p_direction is not None else None
    values: dict[str, object] = {
        "reason": _open_text(decision, ratio=ratio),
        "unshown": _open_text(unshown, ratio=ratio) if unshown else "",
        "p": p,
        "p_look": corrected(p),
        "p_direction": corrected(decision.p_direction),
        "look": look.seeds if look else None,
        "smallest": decision.smallest,
    }
    if decision.interval is not None:
        mean, low, high = decision.interval.mean, decision.interval.low, decision.interval.high
        said = [math.exp(x) for x in (mean, low, high)] if ratio else [mean, low, high]
        bounds: list[float] = []
        if margin is not None:
            bounds = [1.0, margin, 1 / margin] if ratio else [0.0, margin, -margin]
        found = ("factor " if ratio else "") + interval_text(said[0], said[1], said[2], bounds)
        values |= {"found": found, "low": low, "mean": mean, "high": high}
        values["confidence"] = decision.confidence
    return Finding(decision.verdict, **{**values, **more})  # pyright: ignore[reportArgumentType]


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


def p_text(p: float) -> str:
    """Write a p value: three decimals, or that it is less than they show."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
