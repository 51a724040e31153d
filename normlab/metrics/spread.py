"""How far a mean over a few seeds can be trusted: intervals, tests, and the untrained baseline.

SciPy takes half a second to import, so each function imports what it needs.
"""

# The libraries have no types.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from normlab.records.aggregate import deviation

if TYPE_CHECKING:
    from normlab.records.record import RunRecord

NATS = 1.0
POINTS = 0.02
UNITS = 0.5
"""How far a score must be from the untrained baseline: a loss, an accuracy, any other score."""


@dataclass(frozen=True)
class Interval:
    """A mean, its standard deviation (n - 1), its n, and the bounds of its confidence interval."""

    mean: float
    sd: float
    n: int
    low: float
    high: float


def t_interval(values: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Bound the mean of independent values; raises `ValueError` for fewer than two."""
    if len(values) < 2:
        raise ValueError(f"an interval needs at least two values, found {len(values)}")
    mean = statistics.fmean(values)
    sd = deviation(values, mean)
    half = _quantile(len(values) - 1, confidence) * sd / math.sqrt(len(values))
    return Interval(mean, sd, len(values), mean - half, mean + half)


def paired_interval(
    a: Mapping[int, float], b: Mapping[int, float], *, confidence: float = 0.95
) -> Interval:
    """Bound the mean of `a - b` over the seeds that both have.

    Seed k of two norms starts from the same other weights and sees the same batches, so what both
    share cancels in the difference.
    """
    seeds = sorted(a.keys() & b.keys())
    return t_interval([a[seed] - b[seed] for seed in seeds], confidence=confidence)


@lru_cache(maxsize=256)  # a table asks for few of them, and often
def _quantile(degrees: int, confidence: float) -> float:
    """Return the t that a share `confidence` of Student's distribution does not exceed in size."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + confidence) / 2))


def _upper_tail(distance: float, interval: Interval) -> float:
    """Return the chance of a mean so far off, by Student's distribution; 0 or 1 without spread."""
    from scipy.special import stdtr

    if interval.sd == 0:
        return 0.0 if distance > 0 else 1.0
    error = interval.sd / math.sqrt(interval.n)
    return float(stdtr(interval.n - 1, -distance / error))


def p_value(interval: Interval, *, against: float = 0.0) -> float:
    """Return the two-sided p value of a mean of `against`, by Student's t test."""
    return min(1.0, 2 * _upper_tail(abs(interval.mean - against), interval))


def equivalence(values: Sequence[float], margin: float) -> float:
    """Return the p value of two one-sided t tests (TOST) of a mean outside -margin to +margin.

    It is below `a` exactly where the `1 - 2a` interval lies within the margin (Schuirmann 1987).
    """
    found = t_interval(values)
    return _upper_tail(margin - abs(found.mean), found)


def smallest_difference(interval: Interval, *, error: float, power: float = 0.8) -> float:
    """Return the difference that a paired t test of such values finds with probability `power`.

    The test is two-sided at `error`; a difference found in the wrong direction is left out.
    """
    from scipy.special import nctdtrinc

    degrees = interval.n - 1
    shift = float(nctdtrinc(degrees, 1 - power, _quantile(degrees, 1 - error)))
    return interval.sd * shift / math.sqrt(interval.n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number (Holm 1979), in their order."""
    ordered = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(ordered):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def wilson(count: int | float, total: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Return the bounds of a share, `count` of `total` (Wilson 1927)."""
    from scipy.special import ndtri

    z = float(ndtri((1 + confidence) / 2))
    share, scale = count / total, 1 + z * z / total
    middle = (share + z * z / (2 * total)) / scale
    half = z / scale * math.sqrt((share * (1 - share) + z * z / (4 * total)) / total)
    return middle - half, middle + half


def accuracy_interval(name: str, value: float, n: int) -> tuple[float, float] | None:
    """Return Wilson's interval of the accuracy on n images; None for a score of another name.

    It covers what other images could change, which a spread over seeds does not. Tokens of a text
    are not independent, so accuracies on them have no such interval.
    """
    return wilson(value * n, n) if name.rpartition("/")[2] == "accuracy" and n else None


def binomial(count: int, total: int, *, against: float) -> float:
    """Return the two-sided p value of a true share, by the exact binomial test."""
    chances = [
        math.comb(total, k) * against**k * (1 - against) ** (total - k) for k in range(total + 1)
    ]
    limit = chances[count] * (1 + 1e-7)  # equal chances differ by rounding
    return min(1.0, math.fsum(chance for chance in chances if chance <= limit))


def least_share(total: int, *, confidence: float = 0.95) -> float:
    """Return the lower end of the exact interval of a share, where all of `total` are counted.

    Clopper and Pearson 1934.
    """
    return ((1 - confidence) / 2) ** (1 / total)


def fisher(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return the two-sided p value of equal shares, each given as count and total (Fisher 1922)."""
    (count, total), (other, rest) = first, second
    both = count + other
    ways = [math.comb(total, k) * math.comb(rest, both - k) for k in range(both + 1)]
    return sum(each for each in ways if each <= ways[count]) / sum(ways)


def trains(record: RunRecord, score: str) -> bool:
    """Tell whether a run ended with a score clear of the untrained baseline."""
    return record.finished and at_baseline([record], score) is None


def learned(record: RunRecord) -> bool | None:
    """Tell whether a finished run ended better than the untrained baseline, by accuracy or loss.

    None for a run that did not finish, for one of a single update, and where no baseline is known.
    """
    score = next((f"test/{name}" for name in ("accuracy", "loss") if name in record.floors), "")
    if not record.finished or record.budget.steps <= 1 or score not in record.scores:
        return None
    return trains(record, score)


def at_baseline(records: Sequence[RunRecord], score: str) -> str | None:
    """Compare the mean score of finished runs with the untrained baseline if it is not clear of it.

    None where it is clear, and where the baseline is not known. A record names the baseline of a
    score by its last word, such as `bleu` for `test_2017/bleu`. Metrics of probes and updates to a
    target are judged by the model's accuracy over classes, else by its loss; a run of one update
    shows the start and is not judged.
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
    asked = f" less {NATS:g} nat" if name.endswith(("loss", "nll")) else ""
    asked = f" and {100 * POINTS:g} points" if "accuracy" in name else asked
    return f"{score} {statistics.fmean(values):.4g}, floor {floor:.4g}{asked}"


def clear_of(
    floor: float,
    values: Sequence[float],
    name: str,
    *,
    higher_is_better: bool,
    n: int | None = None,
) -> bool:
    """Tell whether a score of several seeds is better than the untrained baseline.

    A loss must be better by 1 nat. The Wilson interval of an accuracy on `n` examples must begin 2
    points above; without `n` the mean is taken as exact. Any other score must be better by its t
    interval over seeds, or, for one run, by 0.5.
    """
    mean = statistics.fmean(values)
    if name.endswith(("loss", "nll")):
        return floor - mean >= NATS
    if "accuracy" in name:
        return (mean if n is None else wilson(mean * n, n)[0]) >= floor + POINTS
    better = [(value - floor) * (1 if higher_is_better else -1) for value in values]
    return (t_interval(better).low > 0) if len(better) > 1 else better[0] > UNITS
