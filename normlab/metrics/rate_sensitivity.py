"""The sensitivity of a model's final loss to its learning rate."""

import math
import statistics
from collections.abc import Sequence


def rate_sensitivity(losses: Sequence[float | None], initial_loss: float | None) -> float | None:
    """Return how much the final loss depends on the learning rate (Wortsman et al. 2023).

    With l = min(loss, `initial_loss`) at each rate, it is mean(l) - min(l) in nats, which is 0 if
    all rates are equally good (arXiv 2309.14322, section 2.2). The loss of a diverged run is None
    and is replaced by `initial_loss`, the loss before the first update. Returns None if no run
    ended, or if one diverged and `initial_loss` is unknown.
    """
    ended = [loss for loss in losses if loss is not None]
    if not ended or (initial_loss is None and len(ended) < len(losses)):
        return None
    top = math.inf if initial_loss is None else initial_loss
    capped = [min(top if loss is None else loss, top) for loss in losses]
    return statistics.fmean(capped) - min(capped)
