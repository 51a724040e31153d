"""How long a run takes to reach a given score and keep it, and how long to converge."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from normlab.records.record import Score


@dataclass
class Targets:
    """Since when each target has held, over a run's validations.

    `values` are targets by the name of a validation score. A target that is lost again counts from
    when it is reached for good. `since` holds (step, tokens) of those that hold now; `validations`
    counts how often was looked.
    """

    values: Mapping[str, Sequence[float]]
    since: dict[str, tuple[int, int]] = field(default_factory=dict)
    validations: int = 0

    def see(self, scores: Mapping[str, Score], *, step: int, tokens: int) -> None:
        """Take in a validation; raises ValueError for a target that is no score of the task."""
        self.validations += 1
        for name, values in self.values.items():
            score = scores.get(f"valid/{name}")
            if score is None:
                there = ", ".join(sorted(known.removeprefix("valid/") for known in scores))
                raise ValueError(
                    f"a target is set for {name}, which is no score of this task; it has {there}: "
                    "correct observe.targets"
                )
            sign = 1 if score.higher_is_better else -1
            for value in values:
                if sign * score.value >= sign * value:
                    self.since.setdefault(_label(name, value), (step, tokens))
                else:
                    self.since.pop(_label(name, value), None)

    def scores(self, *, lost: bool) -> dict[str, Score]:
        """Return steps and tokens to each target; infinite for one not reached, or all if `lost`.

        Names: `valid/steps_to/<score>_<value>` and `valid/tokens_to/<score>_<value>`.
        """
        labels = [_label(name, value) for name, values in self.values.items() for value in values]
        never = (math.inf, math.inf)
        ends = {label: never if lost else self.since.get(label, never) for label in labels}
        return {
            f"valid/{kind}_to/{label}": Score(float(end[part]), False, self.validations)
            for part, kind in enumerate(("steps", "tokens"))
            for label, end in ends.items()
        }


def _label(name: str, value: float) -> str:
    return f"{name}_{value:g}"


@dataclass
class Convergence:
    """The one definition of "steps to converge", from a run's validation losses.

    It is the first update at which the loss is at most `MARGIN` above its last value, and only if
    the loss gained less than `MARGIN` over the last `TAIL` of the run. Without a validation before
    that last part nobody knows, and the run has not converged.

    Attributes:
        curve: step, tokens and loss of each validation.
    """

    curve: list[tuple[int, int, float]] = field(default_factory=list)

    LOSS: ClassVar[str] = "valid/loss"
    MARGIN: ClassVar[float] = 0.01
    TAIL: ClassVar[float] = 0.2

    def see(self, scores: Mapping[str, Score], *, step: int, tokens: int) -> None:
        """Take in a validation; a task without a score called `loss` never converges."""
        if (score := scores.get(self.LOSS)) is not None:
            self.curve.append((step, tokens, score.value))

    def scores(self, *, lost: bool) -> dict[str, Score]:
        """Return steps and tokens to converge; infinite for a run that did not, or is `lost`.

        Names: `valid/steps_to_converge` and `valid/tokens_to_converge`.
        """
        place = None if lost else self._place()
        steps, tokens = (math.inf, math.inf) if place is None else place
        count = len(self.curve)
        return {
            "valid/steps_to_converge": Score(float(steps), False, count),
            "valid/tokens_to_converge": Score(float(tokens), False, count),
        }

    def _place(self) -> tuple[int, int] | None:
        """Return step and tokens at which the run has converged, None where it has not."""
        if not self.curve:
            return None
        end, _, last = self.curve[-1]
        before = [loss for step, _, loss in self.curve if step <= (1 - self.TAIL) * end]
        bound = last + self.MARGIN * abs(last)
        if not before or not math.isfinite(last) or not before[-1] < bound:
            return None
        return next((step, tokens) for step, tokens, loss in self.curve if loss <= bound)
