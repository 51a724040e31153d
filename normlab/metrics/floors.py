"""Whether a score is clear of its floor: what the run would have scored without learning.

A record names the floor of a score by its last word, such as `bleu` for `test_2017/bleu`. By how
much a score has to be better depends on its unit: a loss by 1 nat; an accuracy by a Wilson interval
that begins 2 points above; any other by its t interval over seeds, or, for one run, by 0.5.
"""

from collections.abc import Sequence
from statistics import fmean

from normlab.metrics.spread import t_interval
from normlab.metrics.statistics import wilson
from normlab.records.record import RunRecord

NATS = 1.0
POINTS = 0.02
UNITS = 0.5
_LOSSES = ("loss", "nll")
_PROBES = "stability/"
_STEPS = "/steps_to"


def trains(record: RunRecord, score: str) -> bool:
    """Tell whether a run ended with a score clear of its floor; a run that diverged did not."""
    return record.finished and at_floor([record], score) is None


def at_floor(records: Sequence[RunRecord], score: str) -> str | None:
    """Say what the floor is where the mean score of some finished runs is not clear of it.

    None where it is clear, and where no floor of the score is known. A probe's figure, and the
    updates to a target, are those of a model that learned: the accuracy of its classes must be
    clear, or its loss where it has none. One update shows the start, and asks nothing.
    """
    if score.startswith(_PROBES) or _STEPS in score:
        records = [record for record in records if record.budget.steps > 1]
        classes = any("accuracy" in record.floors for record in records)
        score = "test/accuracy" if classes else "test/loss"
    name = score.rpartition("/")[2]
    known = [record for record in records if name in record.floors and score in record.scores]
    if not known:
        return None
    floor = fmean(record.floors[name] for record in known)
    scores = [record.scores[score] for record in known]
    values = [each.value for each in scores]
    asked = ""
    if name.endswith(_LOSSES):
        clear = floor - fmean(values) >= NATS
        asked = f" less {NATS:g} nat"
    elif "accuracy" in name:
        n = min(each.n for each in scores)
        clear = wilson(fmean(values) * n, n)[0] >= floor + POINTS
        asked = f" and {100 * POINTS:g} points"
    else:
        sign = 1 if scores[0].higher_is_better else -1
        better = [sign * (value - floor) for value in values]
        clear = (t_interval(better).low > 0) if len(better) > 1 else better[0] > UNITS
    return None if clear else f"{score} {fmean(values):.4g}, floor {floor:.4g}{asked}"
