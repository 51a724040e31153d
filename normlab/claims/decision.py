"""Verdicts from numbers: the decision table, counts of trained seeds, and interim analyses (looks).

Let `d` be the difference per seed in the claimed direction, and `m` the margin. The first line of
this table that applies decides:

    d is the same for every seed  undecided: if nothing varies, a t interval is meaningless
    I90 between -m and +m         no difference (supports a claim of equality)
    I95 wholly above m            supported (contradicts a claim of equality)
    I95 wholly below 0            contradicted (a claim of equality: below -m)
    I95 wholly above 0            undecided: the direction is shown, but not the size
    otherwise                     undecided, with the smallest difference these seeds could show

I95 and I90 are t intervals of `d`, named after their confidence for an error of 0.05. At an interim
analysis that spends the share `a` of the error, their confidence is 1 - a and 1 - 2a. Each line is
a test whose p value is below `a` if and only if the line holds: two one-sided tests, then two-sided
t tests against m and 0 (or -m).

A part is undecided, though measured, for one of these reasons (their texts are in
`templates/reasons.yaml`). They are checked in this order, and the first that applies counts:

    not_all_train    a seed diverged, and its kind of endpoint does not count trained seeds
    baseline...      a side, or the reference of `trains`, does not clearly beat the untrained
                     baseline on average
    not_finite       a value is not a finite number
    not_all_train    a seed of a side does not train, though the side does on average
    reference_fails  no run of the reference of `trains` trains
    counts_open      numbers of trained seeds decide, and are inconclusive
    constant         the first line of the table above
    direction_shown  the line "wholly above 0" of the table, if it survives the correction below
    power...         the last line of the table, or a direction that does not survive
    runs_seen        the runs were seen before the endpoint was written; replaces the reasons above,
                     and verdicts, except those where more seeds cannot help
    not_survived     decided, but not after the correction for other endpoints (`ledger`)

More seeds cannot help in the first five lines (`stuck`). Before the last analysis, an interval that
contains an article's value is undecided without a reason.

A part is not measured for one of these reasons, or for a reason stated in its file or by its sample
(`sample`):

    pilot            the scale is a pilot, which decides nothing
    no_runs          the study has no runs with the settings of the sides
    no_run_counts    it has some, but none of them counts
    too_few_seeds    fewer seeds count than the first analysis needs
    too_few_rounds   the report of timings has fewer rounds than the first analysis needs seeds
    no_timings       the report of timings lacks one of the candidates
    not_computed     the check has no findings yet
    finding_missing  the check has no finding with one of the names in `only`
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from normlab.claims.sample import Count
from normlab.claims.verdict import DECIDED, Reason, Verdict
from normlab.metrics.significance import (
    Interval,
    binomial,
    constant,
    equivalence,
    fisher,
    p_value,
    smallest_difference,
    t_interval,
)
from normlab.studies.study import ANALYSES

DIRECTION_SHOWN = Reason("direction_shown")
CONSTANT = Reason("constant")
POWER = Reason("power")
COUNTS_OPEN = Reason("counts_open")
RUNS_SEEN = Reason("runs_seen")
NOT_ALL_TRAIN = Reason("not_all_train")
REFERENCE_FAILS = Reason("reference_fails")
NOT_SURVIVED = Reason("not_survived")


ERROR = 0.05
"""The probability of rejecting a true null hypothesis at any of the planned analyses.

The analyses share it: the p value of an analysis is multiplied by 0.05 / (its share) before it is
compared with 0.05. An analysis uses the seeds with the lowest numbers, and seeds beyond the last
analysis reached are not used. If several analyses decide, the one with the smallest corrected p
value counts. If none decides, the last one reached counts. An analysis in which every seed of a
side trained, or none, cannot decide if this is no longer so among the seeds of the last one.
"""


@dataclass(frozen=True)
class Analysis:
    """A planned analysis: the number of seeds to judge, and the share of the error it spends."""

    seeds: int
    share: float

    def corrected(self, p: float) -> float:
        """Correct a p value of this analysis, so that it can be compared with 0.05."""
        return min(1.0, p * ERROR / self.share)


LOOKS = tuple(map(Analysis, ANALYSES, (0.01, 0.015, 0.025)))
FEWEST = LOOKS[0].seeds


@dataclass(frozen=True)
class Estimate:
    """A mean with its t interval.

    `smallest` is the smallest difference that the seeds would have detected with 80 % power.
    """

    mean: float
    low: float
    high: float
    confidence: float
    smallest: float | None = None


@dataclass(frozen=True)
class PValues:
    """The p values of a decision.

    `observed` is the p value of the test that decided, or the smallest one if none did. `at_look`
    is the same after correction for the interim analyses. If the direction is shown but the size of
    the difference is open, `direction` is the corrected p value of the direction.
    """

    observed: float
    at_look: float
    direction: float | None = None


Form = Literal["number", "factor", "share"]
"""How the numbers of a decision are written: unchanged, as a factor, or in percent."""


@dataclass(frozen=True)
class Decision:
    """The verdict of an endpoint before correction for other endpoints.

    The number that was found is the `estimate`, or `same_value` if all seeds have the same value.
    `bounds` are the numbers that it is judged against, and `form` says how it is written. The
    number is positive in the claimed direction, and `opposite` says that it is shown with the
    opposite sign (`shown_number`). `behind` has the values of the sides behind the number or, if
    seeds that train were counted, `trained` has the counts. Both are keyed by the label of the
    side. `finding` is what a check or a publication says instead of a number.

    `reason` says why the endpoint is open or not measured, and `unshown` replaces it if the
    direction does not survive the correction. `stuck` is set if more seeds cannot help, and
    `by_seen_runs` if the runs were seen before the endpoint was written, so that nothing was
    tested. `texts.py` puts a decision into words.
    """

    verdict: Verdict
    finding: str = ""
    estimate: Estimate | None = None
    same_value: float | None = None
    bounds: tuple[float, ...] = ()
    form: Form = "number"
    opposite: bool = False
    behind: Mapping[str, float] = field(default_factory=dict[str, float])
    trained: Mapping[str, Count] = field(default_factory=dict[str, Count])
    reason: Reason | str = ""
    unshown: Reason | str = ""
    p: PValues | None = None
    stuck: bool = False
    by_seen_runs: bool = False


def stuck(reason: Reason, trained: Mapping[str, Count] = {}) -> Decision:
    """Return an undecided decision that more seeds would not change, for a `reason`."""
    return Decision("undecided", reason=reason.for_good(), trained=trained, stuck=True)


def undecided_by_seen(decision: Decision) -> Decision:
    """Return the undecided decision for runs that were seen before its endpoint was written.

    It keeps the value with its interval, but has no p value, because nothing was tested.
    """
    if decision.stuck:
        return decision
    estimate = decision.estimate and replace(decision.estimate, smallest=None)
    untested = replace(decision, verdict="undecided", reason=RUNS_SEEN, by_seen_runs=True)
    return replace(untested, p=None, estimate=estimate)


def tested(verdict: Verdict, p: float, interval: Interval, error: float) -> Decision:
    """Return the decision of a test. Its interval has a confidence level of 1 - `error`."""
    estimate = Estimate(interval.mean, interval.low, interval.high, 1 - error)
    return Decision(verdict, p=PValues(p, p), estimate=estimate)


def decide(
    values: Sequence[float], *, margin: float, equality: bool, error: float = 0.05
) -> Decision:
    """Apply the decision table to the differences of at least two seeds, one value per seed."""
    wide = t_interval(values, confidence=1 - error)
    if constant(values):
        return Decision("undecided", reason=CONSTANT)
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
    smallest = smallest_difference(wide, error=error)
    estimate = Estimate(wide.mean, wide.low, wide.high, 1 - error, smallest)
    p = min(same, above, below)
    if wide.low <= 0 <= wide.high:
        return Decision("undecided", reason=POWER, p=PValues(p, p), estimate=estimate)
    direction = PValues(p, p, p_value(wide, against=0.0))
    return Decision(
        "undecided", reason=DIRECTION_SHOWN, unshown=POWER, p=direction, estimate=estimate
    )


def contains(values: Sequence[float], value: float, look: Analysis) -> Decision:
    """Judge whether the interval of the values at an interim analysis contains a given value."""
    if constant(values):
        return Decision("undecided", reason=CONSTANT)
    interval = t_interval(values, confidence=1 - look.share)
    # An interval that contains the value is no reason to stop early, so only the last analysis
    # supports it.
    verdict = "supported" if look == LOOKS[-1] else "undecided"
    if not interval.low <= value <= interval.high:
        verdict = "contradicted"
    return tested(verdict, p_value(interval, against=value), interval, look.share)


def less_often(side: Count, reference: Count, *, error: float) -> Decision:
    """Use Fisher's exact test to judge whether a side trains less often than a reference."""
    p = fisher(side, reference)
    if p >= error:
        return Decision("undecided", p=PValues(p, p), reason=COUNTS_OPEN)
    less = side[0] * reference[1] < reference[0] * side[1]
    return Decision("supported" if less else "contradicted", p=PValues(p, p))


def counts(side: Count, reference: Count | None, *, fails: bool, error: float) -> Decision:
    """Judge the claim that a side `fails` or, if not `fails`, that it trains.

    The side is compared with a reference if there is one.
    Training less often than the reference supports `fails` and contradicts training. If that is
    undecided and all seeds of the side train, or if there is no reference, the count is tested
    against one half. It supports the claim if all seeds behave as claimed, and contradicts the
    claim if too few do.
    """
    if reference is not None:
        pair = (side, reference) if fails else (reference, side)
        decision = less_often(*pair, error=error)
        if decision.verdict != "undecided" or side[0] < side[1]:
            return decision
    p = binomial(*side)
    as_said = side[1] - side[0] if fails else side[0]
    if p < error and as_said == side[1]:
        return Decision("supported", p=PValues(p, p))
    if p < error and as_said < side[1] / 2:
        return Decision("contradicted", p=PValues(p, p))
    return Decision("undecided", p=PValues(p, p), reason=COUNTS_OPEN)


def sequential(
    seeds: Sequence[int],
    decide_at: Callable[[Sequence[int], Analysis], Decision],
    count: Callable[[Sequence[int]], Collection[Count]],
) -> tuple[Analysis, Decision]:
    """Decide at each analysis that the seeds reach, and return the analysis that counts.

    Its decision is returned with it. `count` returns how many of some seeds train on each side.
    There must be enough seeds for the first analysis.
    """
    ordered = sorted(seeds)
    looks = [look for look in LOOKS if look.seeds <= len(ordered)]
    decisions = [(look, decide_at(ordered[: look.seeds], look)) for look in looks]
    shares = [_all_or_none(count(ordered[: look.seeds])) for look in looks]
    decided = [
        (look, decision)
        for (look, decision), share in zip(decisions, shares, strict=True)
        if decision.verdict in DECIDED and share == shares[-1]
    ]
    return min(
        decided, key=lambda pair: pair[1].p.at_look if pair[1].p else 0.0, default=decisions[-1]
    )


def _all_or_none(counts: Collection[Count]) -> list[Literal["all", "none", "some"]]:
    """Return whether all, none or some of the seeds of each side train."""
    return ["all" if train == n else "some" if train else "none" for train, n in counts]


def corrected_for_look(
    decision: Decision, look: Analysis, *, bounds: Sequence[float] = (), form: Form = "number"
) -> Decision:
    """Correct a decision's p values for its interim analysis, and set its bounds and form.

    If the form is a factor, the decision's numbers are logarithms and are converted to factors.
    """
    decision = replace(decision, bounds=tuple(bounds), form=form)
    if (p := decision.p) is not None:
        direction = None if p.direction is None else look.corrected(p.direction)
        decision = replace(decision, p=PValues(p.observed, look.corrected(p.observed), direction))
    if (estimate := decision.estimate) is None or form != "factor":
        return decision
    mean, low, high = map(math.exp, (estimate.mean, estimate.low, estimate.high))
    smallest = estimate.smallest and math.exp(estimate.smallest)
    return replace(decision, estimate=Estimate(mean, low, high, estimate.confidence, smallest))
