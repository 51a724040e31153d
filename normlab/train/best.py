"""The best validation of a run by each of some scores: when it was, and all of its scores."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from normlab.records.record import Score


@dataclass(frozen=True)
class Best:
    """A validation that is the best so far: its step, and its scores by their paths."""

    step: int
    scores: dict[str, Score]


class BestValidations:
    """The best validation by each of `names`, scores without their split, such as `bleu`.

    Of equal ones the first is the best; a score that is not a number is worse than any other.
    """

    def __init__(self, names: Sequence[str]):
        self.names = tuple(dict.fromkeys(names))
        self.found: dict[str, Best] = {}

    def see(self, scores: Mapping[str, Score], *, step: int) -> list[str]:
        """Take in a validation; return the names by which it is the best so far.

        Raises ValueError for a name that is no score of the task.
        """
        better = [name for name in self.names if self._is_better(name, scores)]
        self.found |= {name: Best(step, dict(scores)) for name in better}
        return better

    def _is_better(self, name: str, scores: Mapping[str, Score]) -> bool:
        path = f"valid/{name}"
        if path not in scores:
            there = ", ".join(sorted(known.removeprefix("valid/") for known in scores))
            raise ValueError(f"validate.select_by={name} is no score of this task; it has {there}")
        if name not in self.found:
            return True
        now, former = scores[path], self.found[name].scores[path].value
        sign = 1 if now.higher_is_better else -1
        return math.isnan(former) or sign * now.value > sign * former

    def state_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {name: asdict(best) for name, best in self.found.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.found = {
            name: Best(
                best["step"], {path: Score(**score) for path, score in best["scores"].items()}
            )
            for name, best in state.items()
        }
