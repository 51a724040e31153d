"""Words for the points and differences in the answer of a table (see `answer.py`)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from normlab.metrics.score_text import score_text, unit_of_differences
from normlab.reports.setting_names import setting_with_values
from normlab.reports.tables.axes import Axis, values_at
from normlab.reports.tables.standing import PointDifference

_COUNTS = (
    *("no", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)


def count_text(number: int) -> str:
    """Return a count in words up to twelve, and in digits from there on."""
    return _COUNTS[number] if number < len(_COUNTS) else f"{number:,}"


@dataclass(frozen=True)
class PointWords:
    """Words for points on a table's axes. `keys` are the config keys of all its axes.

    Points are described only if there is a single axis. Otherwise, all phrases are empty.
    """

    axes: Sequence[Axis]
    keys: Sequence[str]

    def at(self, points: Sequence[str]) -> str:
        """Return a phrase for points of the only axis, or "" if there is not exactly one axis.

        Examples are `at batch size 8 and 32 ` and `with placement pre, `.
        """
        if len(self.axes) != 1:
            return ""
        (axis,), span = self.axes, self._span(points)
        if axis.numeric:
            return f"at {setting_with_values(axis.key, span)} "
        return f"with {axis.name} {span}, "

    def next_at(self, points: Sequence[str]) -> str:
        """Return points without the axis, for clauses after the first: `at 32 and 128 `."""
        if len(self.axes) != 1:
            return ""
        return f"{'at' if self.axes[0].numeric else 'with'} {self._span(points)} "

    def _span(self, points: Sequence[str]) -> str:
        """Return the values of the only axis: `8`, `32 and 128`, or a range such as `32 to 512`."""
        (axis,) = self.axes
        values = [*dict.fromkeys(values_at(point, self.keys)[axis.key] for point in points)]
        ends, between = values[:1] + values[1:][-1:], " and " if len(values) == 2 else " to "
        return between.join(f"{int(end):,}" if end.isdecimal() else end for end in ends)


@dataclass(frozen=True)
class DifferenceWords:
    """Words for differences in a score. Its unit is given only if `with_unit` is set."""

    score: str
    with_unit: bool = True

    @property
    def unit(self) -> str:
        """The unit of differences, such as `BLEU`, or "" if they have none."""
        return unit_of_differences(self.score)

    def sizes(self, differences: Iterable[PointDifference]) -> str:
        """Return the sizes of differences with their unit: `2.0 BLEU`, `1.2 to 2.0 BLEU`."""
        sizes = sorted(abs(each.gap) for each in differences if each.gap is not None)
        ends = dict.fromkeys(self._size(size) for size in (sizes[0], sizes[-1]))
        return f"{' to '.join(ends)} {self.unit if self.with_unit else ''}".strip()

    def interval(self, difference: PointDifference) -> str:
        """Return a difference with its interval, in brackets: ` (+0.7 [-0.1, +1.5])`."""
        if difference.gap is None:
            return ""
        ends = (difference.gap, *(difference.interval or ()))
        gap, *bounds = (f"{'-' if x < 0 else '+'}{self._size(x)}" for x in ends)
        return f" ({gap} [{', '.join(bounds)}])" if bounds else f" ({gap})"

    def _size(self, gap: float) -> str:
        """Return the size of a difference: one decimal for BLEU and chrF, more if that is zero."""
        digits = score_text(abs(gap), self.score)
        first = f"{abs(gap):.1f}" if self.unit else digits
        for text in (first, digits, f"{abs(gap):.1g}"):
            if float(text.replace(",", "")) != 0:
                return text
        return score_text(0.0, self.score)
