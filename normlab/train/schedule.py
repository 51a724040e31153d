"""Learning-rate schedules: from the number of an update (the first is 1) to a learning rate."""

import math
from typing import Protocol, runtime_checkable


@runtime_checkable
class Schedule(Protocol):
    """A function of the step."""

    def __call__(self, step: int) -> float:
        """Return the learning rate of an update."""
        ...


class Constant:
    """Rise linearly for `warmup` updates, then stay."""

    def __init__(self, *, lr: float, warmup: int):
        self.lr, self.warmup = lr, warmup

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            return self.lr * step / self.warmup
        return self.lr * self.after_warmup(step)

    def after_warmup(self, step: int) -> float:
        """Return the share of the peak after the warm-up."""
        return 1.0


class InverseSqrt(Constant):
    """Rise linearly for `warmup` updates, then fall with the square root of the step.

    fairseq's `inverse_sqrt`; Vaswani et al. 2017, section 5.3, with the peak given as `lr`. The
    rise begins at `initial` before the first update, and no rate is below `minimum`.
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
    """Rise linearly for `warmup` updates, then follow half a cosine to `final` x lr at `total`.

    Loshchilov and Hutter 2017, without restarts; the rate stays at its end after `total`.
    """

    def __init__(self, *, lr: float, warmup: int, total: int, final: float):
        super().__init__(lr=lr, warmup=warmup)
        self.total, self.final = total, final

    def after_warmup(self, step: int) -> float:
        progress = min(1.0, (step - self.warmup) / (self.total - self.warmup))
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * progress)) / 2


class Linear(Constant):
    """Rise linearly for `warmup` updates, on to the line that falls from lr to 0 after `total`.

    BERT's `optimization.py` (Devlin et al. 2019): the line begins at the first update, so the rate
    after the warm-up is not quite lr. BERT counts updates from 0, which gives its first one a rate
    of 0; here the warm-up is an update ahead, as in the other schedules.
    """

    def __init__(self, *, lr: float, warmup: int, total: int):
        super().__init__(lr=lr, warmup=warmup)
        self.total = total

    def after_warmup(self, step: int) -> float:
        return max(0.0, 1 - (step - 1) / self.total)


class Rising:
    """Begin with `lr` and double it every `doubling` updates, without end, smoothly.

    A range test (Smith 2017, section 3.3): the loss tells which rates still train.
    """

    def __init__(self, *, lr: float, doubling: int):
        self.lr, self.doubling = lr, doubling

    def __call__(self, step: int) -> float:
        return self.lr * 2 ** ((step - 1) / self.doubling)
