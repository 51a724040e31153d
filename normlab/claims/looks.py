"""The planned looks at a growing number of seeds, and the share of the error that each spends.

The shares sum to 0.05, so that a true null is rejected at any of them with at most that. A look's p
value is multiplied by 0.05 over its share, after which it is read against 0.05. With a number of
seeds between two looks, those of the last one reached are used, the lowest seeds that all sides
have; there is no look in between. Of the looks reached, the one with the smallest corrected p that
decides counts, and the last one where none decides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from normlab.claims.decision import DECIDED, Decision
from normlab.studies import ANALYSES

ERROR = 0.05


@dataclass(frozen=True)
class Look:
    """How many seeds are looked at, and the error that this spends."""

    seeds: int
    share: float

    def corrected(self, p: float) -> float:
        """Return a p value of this look as one to be read against 0.05."""
        return min(1.0, p * ERROR / self.share)


LOOKS = tuple(map(Look, ANALYSES, (0.01, 0.015, 0.025)))
FEWEST = LOOKS[0].seeds


def reached(seeds: int) -> tuple[Look, ...]:
    """Return the looks that a number of seeds allows."""
    return tuple(look for look in LOOKS if look.seeds <= seeds)


def sequential(
    seeds: Sequence[int], judge: Callable[[Sequence[int], float], Decision]
) -> tuple[Look, Decision]:
    """Judge the first seeds of each look reached, with its share; return the look that counts.

    `seeds` are at least as many as the first look has.
    """
    ordered = sorted(seeds)
    found = [(look, judge(ordered[: look.seeds], look.share)) for look in reached(len(ordered))]
    decided = [pair for pair in found if pair[1].verdict in DECIDED]
    return min(decided, key=lambda pair: pair[0].corrected(pair[1].p), default=found[-1])
