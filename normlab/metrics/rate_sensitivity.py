"""The sensitivity of a model's final loss to its learning rate."""

import math
import statistics
from collections.abc import Sequence


def rate_sensitivity(losses: Sequence[float | None], initial_loss: float | None) -> float | None:
    """Return mean(l) - min(l) over learning rates, in nats, with l = min(loss, initial_loss).

    This is 0 if all rates are equally good (Wortsman et al. 2023, arXiv 2309.14322, section 2.2).
    `losses` has the final loss at each rate; for a run that diverged, it is None, and l is
    `initial_loss`, the loss before the first update. Returns None if all runs diverged, or if some
    did and `initial_loss` is unknown.
    """
    ended = [loss for loss in losses if loss is not None]
    if not ended or (initial_loss is None and len(ended) < len(losses)):
        return None
    top = math.inf if initial_loss is None else initial_loss
    capped = [min(top if loss is None else loss, top) for loss in losses]
    return statistics.fmean(capped) - min(capped)
