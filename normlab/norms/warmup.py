"""Norms that do something else in the first steps of a run, and know where they stand."""

from typing import ClassVar

import torch
from torch import Tensor

from normlab.norms.base import RunningNorm


class WarmupNorm(RunningNorm):
    """A norm with a warm-up: a share of the run's steps, or a number of them.

    The published numbers (100 to 40,000 steps) are of long runs, and would be all of a short one,
    so a share is the rule. `step` is the number of the step that is trained, `warmup` the last step
    of the warm-up, `batches` how often a batch has entered the statistics: the micro-batches of an
    update enter as one. All `counters` are saved. A norm that nobody told of a step stays in its
    warm-up. A subclass calls `warm_up`.

    Raises:
        ValueError: the share is not in 0 to 1, or, once a step begins, it is of an unknown number.
    """

    once_an_update = True
    counters: ClassVar[tuple[str, ...]] = ("step", "warmup", "batches")
    warmup_share: float
    warmup_steps: int | None
    step: int
    warmup: int
    batches: int

    def warm_up(self, share: float, steps: int | None) -> None:
        """Start with a warm-up of `steps` steps, or where these are None of a share of all."""
        if not 0 <= share <= 1:
            raise ValueError(f"norm.warmup_share={share}: must be in 0 to 1")
        self.warmup_share = share
        self.warmup_steps = steps
        self.step = self.warmup = self.batches = 0

    @property
    def warming_up(self) -> bool:
        """Whether the step is one of the warm-up."""
        return self.step == 0 or self.step <= self.warmup

    def begin_step(self, step: int, total: int | None) -> None:
        """Take notice of a step of `total`."""
        self.step = step
        self.warmup = self.milestones(total)["warmup"]

    def milestones(self, total: int | None) -> dict[str, int]:
        """Return the last step of the warm-up."""
        return {"warmup": self.steps("warmup", self.warmup_share, self.warmup_steps, total)}

    def steps(self, name: str, share: float, steps: int | None, total: int | None) -> int:
        """Return a number of steps that is given itself, or as a share of all."""
        if steps is not None:
            return steps
        if total is None:
            raise ValueError(
                f"norm.{name}_share={share} is a share of budget.steps, which this run does not "
                f"have: give norm.{name}_steps, or budget.steps"
            )
        return round(share * total)

    def get_extra_state(self) -> Tensor:
        """Return where the norm stands, as whole numbers."""
        return torch.tensor([getattr(self, name) for name in self.counters])

    def set_extra_state(self, state: Tensor) -> None:
        """Stand where a saved norm stood."""
        for name, number in zip(self.counters, state.tolist(), strict=True):
            setattr(self, name, int(number))
