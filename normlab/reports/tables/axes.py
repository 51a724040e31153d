"""The axes of a table: the settings that a sweep varies, and where a row lies on them."""

from collections.abc import Sequence
from typing import NamedTuple

from normlab.records.point import point_values
from normlab.reports.setting_names import NUMBER, setting
from normlab.reports.tables.score_table import ScoreTable


class Axis(NamedTuple):
    """A setting that a sweep varies, and its values as text: numbers in order, or words."""

    key: str
    values: tuple[str, ...]

    @property
    def numeric(self) -> bool:
        return all(NUMBER.fullmatch(value) for value in self.values)

    @property
    def name(self) -> str:
        return setting(self.key)

    def position(self, value: str) -> float:
        """Return a value's position on the axis: the number itself, or the index of a word."""
        return float(value) if self.numeric else float(self.values.index(value))


def values_at(point: str, keys: Sequence[str]) -> dict[str, str]:
    """Return the value of each key at a point such as `batch_size=8 placement=pre`."""
    return {key: value for key, value in point_values(point).items() if key in keys}


def table_axes(table: ScoreTable) -> list[Axis]:
    """Return the axes with several values in a table: numbers first, then those with more values.

    The first one is the axis of the answer.
    """
    points = dict.fromkeys(row.point for row in table.rows)
    axes: list[Axis] = []
    for key in table.axes:
        values = dict.fromkeys(values_at(point, table.axes).get(key) for point in points)
        if None not in values and len(values) > 1:
            axis = Axis(key, tuple(str(value) for value in values))
            axes.append(axis._replace(values=tuple(sorted(axis.values, key=axis.position))))
    return sorted(axes, key=lambda axis: (not axis.numeric, -len(axis.values)))
