"""How much a model's final loss depends on its learning rate."""

import math
import statistics
from collections.abc import Sequence


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
