"""Statistics for means over a few seeds: intervals, tests, and the untrained baseline.

SciPy takes half a second to import, so the functions that need it import it themselves.
"""

# SciPy has no type annotations.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from normlab.records.pairs import Summary
from normlab.records.record import RunRecord, is_probe_metric

NATS = 1.0
POINTS = 0.02
UNITS = 0.5
"""How much better than the untrained baseline a loss, an accuracy or any other score must be."""
NOT_CLEAR = "not clearly better than the untrained baseline"
CLEAR = f"a loss by {NATS:g} nat, an accuracy by {100 * POINTS:g} points"
"""How tables, pages and messages describe runs that fail `clear_of`, and its thresholds."""
BAND = 0.15
ON_PLATEAU = "on a plateau"
PLATEAU = f"test/loss within {BAND:g} nats of a model that knows only how frequent its targets are"
"""How runs are described that have learned nothing but frequencies, and the rule."""


class Interval(NamedTuple):
    """A mean, its standard deviation (n - 1), n, and the bounds of the confidence interval."""

    mean: float
    sd: float
    n: int
    low: float
    high: float


def t_interval(values: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Return the t interval for the mean of independent values; ValueError for fewer than two."""
    if (n := len(values)) < 2:
        raise ValueError(f"an interval needs at least two values, found {n}")
    summary = Summary.of(values)
    sd = math.nan if summary.sd is None else summary.sd
    half = _quantile(n - 1, confidence) * sd / math.sqrt(n)
    return Interval(summary.mean, sd, n, summary.mean - half, summary.mean + half)


def paired_interval(a: Mapping[int, float], b: Mapping[int, float]) -> Interval:
    """Return the 95 % t interval for the mean of `a - b`, paired over their common seeds.

    With the same seed, two models share initial weights (except in the norms) and batches, so the
    effects of both cancel in the difference.
    """
    return t_interval([a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())])


def _quantile(degrees: int, confidence: float) -> float:
    """Return the t for which P(|T| <= t) is `confidence` under Student's t distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + confidence) / 2))


def _upper_tail(distance: float, interval: Interval) -> float:
    """Return the one-sided p value of a mean at this distance (Student's t); 0 or 1 if sd is 0."""
    from scipy.special import stdtr

    if interval.sd == 0:
        return 0.0 if distance > 0 else 1.0
    error = interval.sd / math.sqrt(interval.n)
    return float(stdtr(interval.n - 1, -distance / error))


def p_value(interval: Interval, *, against: float = 0.0) -> float:
    """Return the two-sided p value of a t test of the null hypothesis mean = `against`."""
    return min(1.0, 2 * _upper_tail(abs(interval.mean - against), interval))


def equivalence(values: Sequence[float], margin: float) -> float:
    """Return the p value of two one-sided t tests (TOST) for a mean within +-margin.

    It is below `a` exactly when the `1 - 2a` interval is within the margin (Schuirmann 1987).
    """
    interval = t_interval(values)
    return _upper_tail(margin - abs(interval.mean), interval)


def smallest_difference(interval: Interval, *, error: float, power: float = 0.8) -> float:
    """Return the difference that a paired t test with this sd and n detects with power `power`.

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


def wilson(count: int | float, total: int) -> tuple[float, float]:
    """Return the bounds of the 95 % Wilson interval (1927) for the share `count / total`."""
    z = statistics.NormalDist().inv_cdf(0.975)
    share, scale = count / total, 1 + z * z / total
    middle = (share + z * z / (2 * total)) / scale
    half = z / scale * math.sqrt((share * (1 - share) + z * z / (4 * total)) / total)
    return middle - half, middle + half


def binomial(count: int, total: int) -> float:
    """Return the two-sided p value of the exact binomial test of a true share of one half."""
    ways = [math.comb(total, k) for k in range(total + 1)]
    return sum(each for each in ways if each <= ways[count]) / 2**total


def fisher(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return the two-sided p value of Fisher's exact test (1922) for two shares (count, total)."""
    (count, total), (other, rest) = first, second
    both = count + other
    ways = [math.comb(total, k) * math.comb(rest, both - k) for k in range(both + 1)]
    return sum(each for each in ways if each <= ways[count]) / sum(ways)


def rate_sensitivity(losses: Sequence[float | None], first: float | None) -> float | None:
    """Return how much the final loss depends on the learning rate (Wortsman et al. 2023).

    It is the mean over rates of min(loss, `first`) minus the best loss, in nats: 0 if all rates are
    equally good (arXiv 2309.14322, section 2.2). A loss is None where the run diverged; it counts
    as `first`, the loss before the first update. Returns None if no run ended, or if one diverged
    and `first` is unknown.
    """
    ended = [loss for loss in losses if loss is not None]
    if not ended or (first is None and len(ended) < len(losses)):
        return None
    top = math.inf if first is None else first
    capped = [min(top if loss is None else loss, top) for loss in losses]
    return statistics.fmean(capped) - min(ended)


def flat(record: RunRecord) -> bool:
    """Return whether a run finished near the untrained baseline, as `at_baseline` judges probes."""
    return record.finished and at_baseline([record], "stability/") is not None


def on_plateau(record: RunRecord) -> bool:
    """Return whether a run ended where it knows nothing but how frequent its targets are.

    A language model there predicts each token with its share of the text: its loss is the unigram
    entropy, which it leaves only when it begins to use the context. A classifier with that loss may
    still name the classes better than chance; then it is not on the plateau.
    """
    floor, score = record.floors.get("loss"), record.scores.get("test/loss")
    if floor is None or score is None:
        return False
    return flat(record) and abs(score.value - floor) <= BAND


def failing(record: RunRecord) -> str:
    """Return what is wrong with a finished run's learning, in words; empty if nothing is."""
    if on_plateau(record):
        return f"{ON_PLATEAU} ({PLATEAU})"
    return f"{NOT_CLEAR} ({CLEAR})" if flat(record) else ""


def at_baseline(records: Sequence[RunRecord], score: str) -> str | None:
    """Describe the mean score of runs if it is not clearly better than the untrained baseline.

    Returns None if it is (see `clear_of`), or if the baseline is unknown. The baseline of a score
    is stored under the score's last word, such as `bleu` for `test_2017/bleu`. Probe metrics and
    steps to a target are judged by the model's accuracy over classes, or else its loss, ignoring
    runs of a single update.
    """
    if is_probe_metric(score) or "/steps_to" in score:
        records = [record for record in records if record.budget.steps > 1]
        score = "test/accuracy" if any("accuracy" in r.floors for r in records) else "test/loss"
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
    floor: float, values: Sequence[float], name: str, higher_is_better: bool, n: int | None = None
) -> bool:
    """Return whether a score's mean over seeds is clearly better than the untrained baseline.

    A loss must be better by 1 nat. The Wilson interval of an accuracy on `n` examples must start at
    least 2 points above the baseline; without `n`, the mean is taken as exact. For any other score,
    the whole t interval over seeds must be better, or a single run by more than 0.5.
    """
    mean = statistics.fmean(values)
    if name.endswith(("loss", "nll")):
        return floor - mean >= NATS
    if "accuracy" in name:
        return (mean if n is None else wilson(mean * n, n)[0]) >= floor + POINTS
    better = [(value - floor) * (1 if higher_is_better else -1) for value in values]
    return (t_interval(better).low > 0) if len(better) > 1 else better[0] > UNITS
