"""How long a run takes to reach a score and keep it: "steps to converge" in comparison tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
