"""Learning-rate schedules, which map the number of an update (from 1) to a learning rate."""

import math
from typing import Protocol, runtime_checkable


@runtime_checkable
class Schedule(Protocol):
    """A function that maps a step to a learning rate."""

    def __call__(self, step: int) -> float:
        """Return the learning rate of an update."""
        ...


class Constant:
    """Rise linearly for `warmup` updates, then stay constant."""

    def __init__(self, *, lr: float, warmup: int):
        self.lr, self.warmup = lr, warmup

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            return self.lr * step / self.warmup
        return self.lr * self.after_warmup(step)

    def after_warmup(self, step: int) -> float:
        """Return the factor on the peak rate for a step after the warm-up."""
        return 1.0


class InverseSqrt(Constant):
    """Rise linearly for `warmup` updates, then fall with the inverse square root of the step.

    This is fairseq's `inverse_sqrt`, and section 5.3 of Vaswani et al. 2017 with `lr` as the peak.
    The rise begins at `initial` before the first update, and the rate is never below `minimum`.
    """

    def __init__(self, *, lr: float, warmup: int, initial: float = 0.0, minimum: float = 0.0):
        super().__init__(lr=lr, warmup=warmup)
        self.initial, self.minimum = initial, minimum

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            rate = self.initial + (self.lr - self.initial) * (step / self.warmup)
        else:
            rate = self.lr * math.sqrt(max(self.warmup, 1) / step)
        return max(self.minimum, rate)


class Cosine(Constant):
    """Rise linearly for `warmup` updates, then fall along half a cosine to `final` x lr at `total`.

    Source: Loshchilov and Hutter 2017, without restarts. The rate stays constant after `total`.
    """

    def __init__(self, *, lr: float, warmup: int, total: int, final: float):
        super().__init__(lr=lr, warmup=warmup)
        self.total, self.final = total, final

    def after_warmup(self, step: int) -> float:
        progress = min(1.0, (step - self.warmup) / (self.total - self.warmup))
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * progress)) / 2


class LinearDecay(Constant):
    """Rise linearly for `warmup` updates, then follow a line from lr at step 1 to 0 after `total`.

    This is BERT's `optimization.py` (Devlin et al. 2019). The line begins at the first update, so
    the rate after the warm-up is slightly below lr. BERT counts updates from 0, so its first rate
    is 0. Here the warm-up is one update ahead, as in the other schedules.
    """

    def __init__(self, *, lr: float, warmup: int, total: int):
        super().__init__(lr=lr, warmup=warmup)
        self.total = total

    def after_warmup(self, step: int) -> float:
        return max(0.0, 1 - (step - 1) / self.total)


class Rising:
    """Start at `lr` and double it every `doubling` updates, smoothly and without limit.

    This is for a learning-rate range test (Smith 2017, section 3.3), in which the loss shows the
    rates at which the model still trains.
    """

    def __init__(self, *, lr: float, doubling: int):
        self.lr, self.doubling = lr, doubling

    def __call__(self, step: int) -> float:
        return self.lr * 2 ** ((step - 1) / self.doubling)
