"""Decides whether runs have learned, by comparing their scores with an untrained baseline."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from normlab.formats import short_number
from normlab.metrics.glossary import is_accuracy, is_loss, metric
from normlab.metrics.significance import t_interval, wilson
from normlab.records.record import RunRecord, is_probe_metric

LOSS_MARGIN = 1.0
LOSS_SHARE = 0.5
ACCURACY_MARGIN = 0.02
SCORE_MARGIN = 0.5
"""How much better than the untrained baseline a score must be to count as learning.

A loss must be better by `LOSS_MARGIN` nats or, if the baseline is below 2 nats, by `LOSS_SHARE` of
it. An accuracy must be better by `ACCURACY_MARGIN`, and any other score by `SCORE_MARGIN`.
"""
NOT_CLEAR = "not clearly better than the untrained baseline"
CLEAR = (
    f"a loss by {LOSS_MARGIN:g} nat, or by half of a baseline below "
    f"{LOSS_MARGIN / LOSS_SHARE:g} nats, an accuracy by {100 * ACCURACY_MARGIN:g} points"
)
"""The phrase for runs whose score fails `clearly_beats`, and the phrase for its thresholds."""
PLATEAU_BAND = 0.15
ON_PLATEAU = "on a plateau"
PLATEAU = (
    f"test/loss within {PLATEAU_BAND:g} nats of a model that knows only its targets' frequencies"
)
"""The phrase for runs that have learned only frequencies, and the phrase for the rule."""


def is_near_baseline(record: RunRecord) -> bool:
    """Return whether a run has finished without clearly beating the untrained baseline.

    A classifier is judged by its accuracy, and other models by their loss. Returns False for a run
    of a single update.
    """
    if not record.finished or record.budget.steps <= 1:
        return False
    return at_baseline([record], _learning_score([record]))


def on_plateau(record: RunRecord) -> bool:
    """Return whether a run has learned only the frequencies of its targets.

    On this plateau, a language model predicts each token with its frequency in the text, so its
    loss is the unigram entropy until it starts to use the context. A classifier with such a loss is
    not on the plateau if its accuracy is above chance.
    """
    baseline, score = record.floors.get("loss"), record.scores.get("test/loss")
    if baseline is None or score is None:
        return False
    return is_near_baseline(record) and abs(score.value - baseline) <= PLATEAU_BAND


def learning_problem(record: RunRecord) -> str:
    """Return why a finished run has not learned anything, or "" if it has."""
    if on_plateau(record):
        return f"{ON_PLATEAU} ({PLATEAU})"
    compared = against_baseline([record], _learning_score([record]))
    if compared is None or not is_near_baseline(record):
        return ""
    nats = nats_needed(compared.baseline)
    margin = f"{nats:.2g} nat{'' if nats == 1 else 's'} below"
    if is_accuracy(compared.score):
        margin = f"clearly {100 * ACCURACY_MARGIN:g} points above"
    ours, untrained = map(short_number, (compared.mean, compared.baseline))
    return f"{NOT_CLEAR}: {compared.score} {ours} is not {margin} {untrained}"


def at_baseline(records: Sequence[RunRecord], score: str) -> bool:
    """Return whether the mean score of runs is not clearly better than the untrained baseline.

    See `clearly_beats`. Returns False if the baseline is unknown. For a probe's metric and for
    updates or tokens to get there, the test accuracy or the test loss decides instead.
    """
    return (compared := against_baseline(records, score)) is not None and not compared.beaten


class BaselineComparison(NamedTuple):
    """The mean of a score, the untrained baseline, and whether the mean clearly beats it.

    `score` is not always the requested one (see `at_baseline`).
    """

    score: str
    mean: float
    baseline: float
    beaten: bool

    @property
    def is_near(self) -> bool:
        """Whether the mean does not clearly beat the baseline although it is a finite number."""
        return not self.beaten and math.isfinite(self.mean)


def against_baseline(records: Sequence[RunRecord], score: str) -> BaselineComparison | None:
    """Compare a score of runs with the untrained baseline. Return None if it is unknown."""
    if is_probe_metric(score) or is_amount_of_training(score):
        records = [record for record in records if record.budget.steps > 1]
        score = _learning_score(records)
    name = score.rpartition("/")[2]
    known = [record for record in records if name in record.floors and score in record.scores]
    if not known:
        return None
    baseline = statistics.fmean(record.floors[name] for record in known)
    scores = [record.scores[score] for record in known]
    values = [each.value for each in scores]
    n, higher = min(each.n for each in scores), scores[0].higher_is_better
    beaten = clearly_beats(baseline, values, name, higher_is_better=higher, n=n)
    return BaselineComparison(score, statistics.fmean(values), baseline, beaten)


def is_amount_of_training(name: str) -> bool:
    """Return whether a score is the updates or tokens that a run needed to get somewhere.

    It is infinite if the run never got there.
    """
    known = metric(name)
    return known is not None and known.better == "less" and known.unit in ("updates", "tokens")


def _learning_score(records: Sequence[RunRecord]) -> str:
    """Return the score by which to judge learning when the requested score has no baseline."""
    by_class = any("accuracy" in record.floors for record in records)
    return "test/accuracy" if by_class else "test/loss"


def nats_needed(baseline: float) -> float:
    """Return how far a loss must be below the untrained baseline: min(1, baseline / 2) nats.

    With few classes the baseline is small, 0.69 nats for two classes, so half of it is enough.
    """
    return min(LOSS_MARGIN, LOSS_SHARE * baseline)


def clearly_beats(
    baseline: float,
    values: Sequence[float],
    name: str,
    higher_is_better: bool,
    n: int | None = None,
) -> bool:
    """Return whether a score's mean over seeds is clearly better than the untrained baseline.

    A loss must be better by `nats_needed`. For an accuracy on `n` examples, the Wilson interval
    must start at least 2 points above the baseline; if `n` is None, the mean must be 2 points above
    it. For any other score, the whole t interval over seeds must be better than the baseline, or,
    if there is only one run, its score must be better by more than 0.5.
    """
    mean = statistics.fmean(values)
    if is_loss(name):
        return baseline - mean >= nats_needed(baseline)
    if is_accuracy(name):
        return (wilson(mean * n, n)[0] if n else mean) >= baseline + ACCURACY_MARGIN
    better = [(value - baseline) * (1 if higher_is_better else -1) for value in values]
    return (t_interval(better).low > 0) if len(better) > 1 else better[0] > SCORE_MARGIN
