"""Finds the grid of a sweep, that is, the settings that are its axes, such as batch sizes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from normlab.records.grouping import grouped
from normlab.reports.arrangement.row_names import BATCH, PLACEMENT, row_names
from normlab.reports.arrangement.settings import Settings, differing_settings


class Grid(NamedTuple):
    """The grid of a sweep.

    `swept` are the settings that the sweep varies, and `values` their values in every experiment.
    `axes` are the swept settings that no other one determines: a rate that is tuned for each batch
    size, for example, is not an axis.
    """

    swept: Sequence[str]
    axes: Sequence[str]
    values: Mapping[str, Sequence[Any]]

    def point(self, experiment: int) -> dict[str, Any]:
        """Return an experiment's value on each axis, given the experiment's index."""
        return {key: self.values[key][experiment] for key in self.axes}


def grid_of(experiments: Sequence[Settings]) -> Grid | None:
    """Return the grid that experiments form, or None if they form none.

    They form a grid if there are several rows, and at least one of them has every point.
    """
    swept = swept_keys(experiments)
    values = {
        **differing_settings(experiments),
        PLACEMENT: [each.label.placement for each in experiments],
    }
    rows = [name.text for name in row_names(experiments, swept)]
    points = [tuple(values[key][n] for key in swept) for n in range(len(experiments))]
    places = {*zip(rows, points, strict=True)}
    has_full_row = any(all((row, at) in places for at in points) for row in {*rows})
    if not swept or not has_full_row or len({*rows}) == 1:
        return None
    axes = [key for key in swept if not _is_determined(key, swept, values)]
    return Grid(swept, axes, {key: values[key] for key in swept})


def swept_keys(experiments: Sequence[Settings]) -> list[str]:
    """Return the numeric config keys that have several values for one norm, placement and task.

    Placement is also swept if there are several norms, and all of them have the same placements.
    """
    labels = [each.label[:3] for each in experiments]
    axes = [
        key
        for key, values in differing_settings(experiments).items()
        if {*map(type, values)} <= {int, float}
        and len({*zip(labels, values, strict=True)}) > len({*labels})
    ]
    placements = grouped(dict.fromkeys(each[:2] for each in labels))
    crossed = len(placements) > 1 and len({frozenset(each) for each in placements.values()}) == 1
    if crossed and all(len(each) > 1 for each in placements.values()):
        axes.append(PLACEMENT)
    return axes


def _is_determined(key: str, swept: Sequence[str], values: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether an earlier swept key, or the batch size, determines a key's values."""
    earlier = [*swept[: swept.index(key)], *(BATCH & {*swept})]
    return key not in BATCH and any(
        len({*zip(values[other], values[key], strict=True)}) == len({*values[other]})
        for other in earlier
    )
