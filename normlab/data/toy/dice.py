"""The two random streams of a sentence pair: what is said, and how the English words it.

Every choice that the German shows is drawn from the first stream, every choice between English
renderings of the same German from the second. So one meaning can be worded twice, and the number of
draws for the meaning never depends on the wording.
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

# The first of several English readings is as likely as all others together.
_FIRST_READING = 0.5


class Dice:
    """Draws choices of meaning and of wording from separate generators.

    Only `Random.random` is used: Python promises its sequence for a seed across versions, and does
    not promise that of `choice` or `sample`.
    """

    def __init__(self, meaning: Random, wording: Random) -> None:
        self._meaning = meaning.random
        self._wording = wording.random

    def chance(self, probability: float) -> bool:
        """Draw whether something is part of the meaning."""
        return self._meaning() < probability

    def pick(self, options: Sequence[T]) -> T:
        """Draw one of several meanings evenly."""
        return options[int(self._meaning() * len(options))]

    def below(self, stop: int) -> int:
        """Draw an integer from 0 to `stop` - 1 as part of the meaning."""
        return int(self._meaning() * stop)

    def uniform(self) -> float:
        """Draw a number from [0, 1) as part of the meaning."""
        return self._meaning()

    def weighted(self, options: Sequence[tuple[T, float]]) -> T:
        """Draw one of several meanings, each given with its weight."""
        point = self._meaning() * sum(weight for _, weight in options)
        for option, weight in options:
            point -= weight
            if point < 0:
                return option
        return options[-1][0]

    def say(self, readings: Sequence[str]) -> str:
        """Draw one of several English readings; the first is the likeliest."""
        if len(readings) == 1:
            return readings[0]
        point = self._wording()
        if point < _FIRST_READING:
            return readings[0]
        rest = (point - _FIRST_READING) / (1 - _FIRST_READING)
        return readings[1 + int(rest * (len(readings) - 1))]

    def maybe(self, probability: float) -> bool:
        """Draw whether the English takes an option of wording."""
        return self._wording() < probability
