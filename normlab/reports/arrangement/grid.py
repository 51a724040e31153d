"""The grid of a sweep: which settings are its axes, such as batch sizes crossed with norms."""

from collections.abc import Mapping, Sequence
from typing import Any

from normlab.records.grouping import grouped
from normlab.reports.arrangement.differing_settings import differing_settings
from normlab.reports.arrangement.row_names import BATCH, PLACEMENT, label, names
from normlab.reports.runs import Config


def grid_of(configs: Sequence[Config]) -> list[str]:
    """Return the keys that a sweep over a grid varies; empty unless a row has all points."""
    every = swept_keys(configs)
    values = values_of(configs)
    rows = [name.text for name in names(configs, every)]
    points = [tuple(values[key][n] for key in every) for n in range(len(configs))]
    places = {*zip(rows, points, strict=True)}
    filled = any(all((row, at) in places for at in points) for row in {*rows})
    return every if every and filled and len({*rows}) > 1 else []


def values_of(configs: Sequence[Config]) -> dict[str, list[Any]]:
    """Return the settings that distinguish experiments, and their placements."""
    return {
        **differing_settings(configs),
        PLACEMENT: [label(config).placement for config in configs],
    }


def swept_keys(configs: Sequence[Config]) -> list[str]:
    """Return the numeric keys with several values for one norm, placement and task.

    Placement is also an axis if there are several norms and all have the same placements.
    """
    labels = [label(config)[:3] for config in configs]
    axes = [
        key
        for key, values in differing_settings(configs).items()
        if {*map(type, values)} <= {int, float}
        and len({*zip(labels, values, strict=True)}) > len({*labels})
    ]
    placements = grouped(dict.fromkeys(each[:2] for each in labels))
    crossed = len(placements) > 1 and len({frozenset(each) for each in placements.values()}) == 1
    if crossed and all(len(each) > 1 for each in placements.values()):
        axes.append(PLACEMENT)
    return axes


def follows(key: str, axes: Sequence[str], values: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether an earlier axis or the batch size sets a key's values, such as tuned rates."""
    earlier = [*axes[: axes.index(key)], *(BATCH & {*axes})]
    return key not in BATCH and any(
        len({*zip(values[other], values[key], strict=True)}) == len({*values[other]})
        for other in earlier
    )
