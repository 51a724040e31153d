"""How far a mean over a few seeds can be trusted: intervals, tests, and the untrained baseline.

SciPy takes half a second to import, so each function imports only what it needs.
"""

# SciPy has no type annotations.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from normlab.records.pairs import deviation

if TYPE_CHECKING:
    from normlab.records.record import RunRecord

NATS = 1.0
POINTS = 0.02
UNITS = 0.5
"""How far a score must be from the untrained baseline: a loss, an accuracy, any other score."""
NOT_CLEAR = "not clearly better than the untrained baseline"
CLEAR = f"a loss by {NATS:g} nat, an accuracy by {100 * POINTS:g} points"
"""What every table, page and message says of runs that fail the rule, which is `clear_of`."""


class Interval(NamedTuple):
    """A mean with its standard deviation (n - 1), n, and the bounds of its confidence interval."""

    mean: float
    sd: float
    n: int
    low: float
    high: float


def t_interval(values: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Return a t interval of the mean of independent values; ValueError for fewer than two."""
    if len(values) < 2:
        raise ValueError(f"an interval needs at least two values, found {len(values)}")
    mean = statistics.fmean(values)
    sd = deviation(values, mean)
    half = _quantile(len(values) - 1, confidence) * sd / math.sqrt(len(values))
    return Interval(mean, sd, len(values), mean - half, mean + half)


def paired_interval(
    a: Mapping[int, float], b: Mapping[int, float], *, confidence: float = 0.95
) -> Interval:
    """Return a t interval of the mean of `a - b`, paired over the seeds that both have.

    With the same seed, two norms start from the same other weights and see the same batches, so
    the effects of both cancel in the difference.
    """
    seeds = sorted(a.keys() & b.keys())
    return t_interval([a[seed] - b[seed] for seed in seeds], confidence=confidence)


def _quantile(degrees: int, confidence: float) -> float:
    """Return the t for which Student's distribution has |T| <= t with probability `confidence`."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + confidence) / 2))


def _upper_tail(distance: float, interval: Interval) -> float:
    """Return the one-sided p value of a mean this far off, by Student's t; 0 or 1 if sd is 0."""
    from scipy.special import stdtr

    if interval.sd == 0:
        return 0.0 if distance > 0 else 1.0
    error = interval.sd / math.sqrt(interval.n)
    return float(stdtr(interval.n - 1, -distance / error))


def p_value(interval: Interval, *, against: float = 0.0) -> float:
    """Return the two-sided p value of a t test that the true mean is `against`."""
    return min(1.0, 2 * _upper_tail(abs(interval.mean - against), interval))


def equivalence(values: Sequence[float], margin: float) -> float:
    """Return the p value of two one-sided t tests (TOST) that the mean is within +-margin.

    It is below `a` exactly if the `1 - 2a` interval is within the margin (Schuirmann 1987).
    """
    found = t_interval(values)
    return _upper_tail(margin - abs(found.mean), found)


def smallest_difference(interval: Interval, *, error: float, power: float = 0.8) -> float:
    """Return the difference that a paired t test of such values detects with probability `power`.

    The test is two-sided at level `error`; detections in the wrong direction do not count.
    """
    from scipy.special import nctdtrinc

    degrees = interval.n - 1
    shift = float(nctdtrinc(degrees, 1 - power, _quantile(degrees, 1 - error)))
    return interval.sd * shift / math.sqrt(interval.n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for multiple comparisons (Holm 1979), in the given order."""
    ordered = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(ordered):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def wilson(count: int | float, total: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Return the bounds of the Wilson interval (1927) of a share, `count` of `total`."""
    z = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    share, scale = count / total, 1 + z * z / total
    middle = (share + z * z / (2 * total)) / scale
    half = z / scale * math.sqrt((share * (1 - share) + z * z / (4 * total)) / total)
    return middle - half, middle + half


def accuracy_interval(name: str, value: float, n: int) -> tuple[float, float] | None:
    """Return the Wilson interval of an accuracy on n images; None for other scores.

    It covers the variation over test images, which the spread over seeds does not. Tokens of a text
    are not independent, so accuracies on tokens have no such interval.
    """
    return wilson(value * n, n) if name.rpartition("/")[2] == "accuracy" and n else None


def binomial(count: int, total: int, *, against: float) -> float:
    """Return the two-sided p value of the exact binomial test that the true share is `against`."""
    counts = range(total + 1)
    chances = [math.comb(total, k) * against**k * (1 - against) ** (total - k) for k in counts]
    limit = chances[count] * (1 + 1e-7)  # equal chances may differ by rounding
    return min(1.0, math.fsum(chance for chance in chances if chance <= limit))


def least_share(total: int, *, confidence: float = 0.95) -> float:
    """Return the lower end of the Clopper-Pearson interval (1934) of `total` out of `total`."""
    return ((1 - confidence) / 2) ** (1 / total)


def fisher(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return Fisher's two-sided p value (1922) that two shares, (count, total), are equal."""
    (count, total), (other, rest) = first, second
    both = count + other
    ways = [math.comb(total, k) * math.comb(rest, both - k) for k in range(both + 1)]
    return sum(each for each in ways if each <= ways[count]) / sum(ways)


def trains(record: RunRecord, score: str) -> bool:
    """Return whether a run finished with a score clearly better than the untrained baseline."""
    return record.finished and at_baseline([record], score) is None


def learned(record: RunRecord) -> bool | None:
    """Return whether a run ended better than the untrained baseline, by accuracy or else loss.

    None if the run did not finish, had a single update, or has no known baseline.
    """
    score = next((f"test/{name}" for name in ("accuracy", "loss") if name in record.floors), "")
    if not record.finished or record.budget.steps <= 1 or score not in record.scores:
        return None
    return trains(record, score)


def at_baseline(records: Sequence[RunRecord], score: str) -> str | None:
    """Describe the mean score of runs if it is not clearly better than the untrained baseline.

    None if it is (by `clear_of`), or the baseline is not known. A record names the baseline
    of a score by its last word, such as `bleu` for `test_2017/bleu`. For probe metrics and updates
    to a target, the model's accuracy over classes or else its loss decides; there, runs of a single
    update only show the start and are skipped.
    """
    if score.startswith("stability/") or "/steps_to" in score:
        records = [record for record in records if record.budget.steps > 1]
        classes = any("accuracy" in record.floors for record in records)
        score = "test/accuracy" if classes else "test/loss"
    name = score.rpartition("/")[2]
    known = [record for record in records if name in record.floors and score in record.scores]
    if not known:
        return None
    floor = statistics.fmean(record.floors[name] for record in known)
    scores = [record.scores[score] for record in known]
    values = [each.value for each in scores]
    n, higher = min(each.n for each in scores), scores[0].higher_is_better
    if clear_of(floor, values, name, higher_is_better=higher, n=n):
        return None
    needed = f"; {NATS:g} nat is needed" if name.endswith(("loss", "nll")) else ""
    needed = f"; {100 * POINTS:g} points are needed" if "accuracy" in name else needed
    return f"{score} {statistics.fmean(values):.4g} is {NOT_CLEAR} ({floor:.4g}{needed})"


def clear_of(
    floor: float,
    values: Sequence[float],
    name: str,
    *,
    higher_is_better: bool,
    n: int | None = None,
) -> bool:
    """Return whether a score over several seeds is clearly better than the untrained baseline.

    A loss must be better by 1 nat. The Wilson interval of an accuracy on `n` examples must start at
    least 2 points above; without `n` the mean is taken as exact. The t interval over seeds of any
    other score must be better; a single run must be better by more than 0.5.
    """
    mean = statistics.fmean(values)
    if name.endswith(("loss", "nll")):
        return floor - mean >= NATS
    if "accuracy" in name:
        return (mean if n is None else wilson(mean * n, n)[0]) >= floor + POINTS
    better = [(value - floor) * (1 if higher_is_better else -1) for value in values]
    return (t_interval(better).low > 0) if len(better) > 1 else better[0] > UNITS
