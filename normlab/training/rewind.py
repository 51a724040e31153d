"""Goes back to the last row of a run, to find the step that diverged.

Between two rows, the losses of the steps stay on the device, so that no step waits for it. If one
of these unread steps diverged, the trainer is set back to the state before all of them and takes
them again, reading each at once.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from normlab.training.checkpoint import random_state, restore_random_state

if TYPE_CHECKING:
    from normlab.training.trainer import Trainer

State = Mapping[str, Any]


class Rewind:
    """The state of a trainer before its unread steps, and the repetition of these steps.

    `active` says whether steps are being repeated.
    """

    def __init__(self, trainer: "Trainer") -> None:
        self._trainer = trainer
        self._before: State | None = None
        self.active = False

    def keep(self) -> None:
        """Copy all state that steps change, on the device and without waiting for it.

        Only the first call since the last `release` copies.
        """
        if self._before is None:
            trainer = self._trainer
            self._before = {
                "divergence": deepcopy(trainer.divergence),
                "random": random_state(trainer.runtime.device),
                **deepcopy(trainer.state()),
            }

    def release(self) -> State | None:
        """Return the copy and forget it; None if no step is unread."""
        before, self._before = self._before, None
        return before

    def repeat(self, before: State, until: int) -> None:
        """Go back to a copy and repeat the steps up to `until`, which raises Diverged.

        On a GPU, repeated sums may differ in their last bits. If no step diverges this time, the
        run continues.
        """
        trainer = self._trainer
        wall, trainer.divergence = trainer.progress.seconds, before["divergence"]
        trainer.restore(before)
        restore_random_state(before["random"], trainer.runtime.device)
        lost, self.active = wall - trainer.progress.seconds, True
        try:
            while trainer.progress.step < until:
                trainer.step()
        finally:
            self.active = False
            trainer.progress.seconds += lost
