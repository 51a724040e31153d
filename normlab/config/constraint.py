"""What values a key of a run's config may have: a range of numbers, and words beside them."""

import math
from dataclasses import dataclass

Real = int | float
_NOT_FINITE = ("nan", "inf", "-inf")  # how records write numbers that are not finite
_DIGITS = 18  # of a whole number


@dataclass(frozen=True)
class Constraint:
    """The range of a number, or of each number in a list.

    Attributes:
        low, high: the ends of the range; None is no end.
        above, below: leave the end itself out.
        whole: no fractions.
        infinite: infinity has a meaning.
        words: values beside numbers, such as `epoch`. One that ends in N stands for all with a
            number in its place: `interleaved-N` for `interleaved-8`.
        length: of a list; 0 is any list of at least one.
    """

    low: Real | None = None
    high: Real | None = None
    unit: str = ""
    above: bool = False
    below: bool = False
    whole: bool = False
    infinite: bool = False
    words: tuple[str, ...] = ()
    length: int | None = None

    @property
    def rule(self) -> str:
        """Say what is allowed, to follow the key and its value: `must be above 0`."""
        bounds = _bounds(self)
        kind = "whole number" if self.whole else "number"
        if self.length is not None:
            count = f"{self.length} {kind}s" if self.length else f"{kind}s"
            text = f"must be a list of {count}" + (f", each {bounds}" if bounds else "")
        elif not bounds:
            text = f"must be a finite {kind}"
        elif bounds == "at least 0":
            text = "must not be negative"
        else:
            text = f"must be {bounds}"
        return text + "".join(f", or {word}" for word in self.words)

    def problem(self, value: object) -> str | None:
        """Return what is wrong with a value, to follow it in a message; None where it fits."""
        if isinstance(value, str) and any(self._is(word, value) for word in self.words):
            return None
        if self.length is None:
            return None if self._fits(value) else self._with_unit(value)
        items = list(value) if isinstance(value, list | tuple) else []
        if not items or (self.length and len(items) != self.length):
            return self._with_unit(value)
        return None if all(map(self._fits, items)) else self._with_unit(value)

    def _is(self, word: str, value: str) -> bool:
        stem = word.removesuffix("N")
        digits = value.removeprefix(stem)
        if stem == word or digits == value:
            return value == word
        plain = digits.isdecimal() and len(digits) <= _DIGITS
        return plain and str(int(digits)) == digits and self._fits(int(digits))

    def _with_unit(self, value: object) -> str:
        unit = f" ({self.unit})" if self.unit else ""
        if self.length is not None or number(value) is not None:
            return self.rule + unit
        if self.words:
            of_what = f" of {self.unit}" if self.unit else ""
            return f"is neither a number{of_what} nor {' or '.join(self.words)}"
        return f"is not a {'whole ' if self.whole else ''}number; it {self.rule}{unit}"

    def _fits(self, value: object) -> bool:
        found = number(value)
        if found is None or math.isnan(found) or (math.isinf(found) and not self.infinite):
            return False
        if self.whole and found != int(found):
            return False
        if self.low is not None and (found < self.low or (self.above and found == self.low)):
            return False
        high = self.high
        return high is None or found < high or (not self.below and found == high)


def _bounds(constraint: Constraint) -> str:
    low, high = constraint.low, constraint.high
    from_low = None if low is None else f"{'above' if constraint.above else 'at least'} {low:g}"
    to_high = None if high is None else f"{'below' if constraint.below else 'at most'} {high:.15g}"
    return " and ".join(part for part in (from_low, to_high) if part)


def number(value: object) -> float | None:
    """Return the number that a value of a config or a record is, None where it is none."""
    if isinstance(value, str) and value in _NOT_FINITE:
        return float(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
