"""The length of a phase of a run: a share of the run's steps, or a number of steps."""

from dataclasses import dataclass
from typing import NamedTuple

from normlab.errors import UserError


class Clock(NamedTuple):
    """The current step of a run, counted from 1 (0 outside a run), and its length if known."""

    step: int = 0
    total: int | None = None


@dataclass(frozen=True)
class Ramp:
    """The length of a phase: a fraction `share` of the run's steps, unless `steps` is set."""

    name: str
    share: float
    steps: int | None

    def length(self, total: int | None) -> int:
        """Return the length in steps.

        Raises UserError if it is given as a share of all steps and `total` is None.
        """
        if self.steps is None and total is None:
            raise UserError(
                f"norm.{self.name}_share={self.share} needs budget.steps; set it, or "
                f"norm.{self.name}_steps"
            )
        return round(self.share * total) if self.steps is None and total else self.steps or 0
