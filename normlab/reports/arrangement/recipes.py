"""Groups experiments into recipes: experiments whose scores can be compared in one table.

Experiments share a recipe if they have the same task, data, model, budget and test. If a sweep
varies such a setting over a grid (`model.depth=2,4`), its experiments are still one recipe.
"""

from collections.abc import Sequence
from typing import NamedTuple

from normlab.records.grouping import grouped
from normlab.reports.arrangement.grid import grid_of
from normlab.reports.arrangement.row_names import fewest, phrases
from normlab.reports.arrangement.settings import Settings, differing_settings

_RECIPE = {"task", "model", "scale", "budget", "validate", "precision"}
"""Top-level config keys. Scores of experiments that differ below one of them are not comparable."""


class Recipe(NamedTuple):
    """The indices of experiments with comparable scores, and what sets them apart, in words."""

    text: str
    members: list[int]


def recipes(experiments: Sequence[Settings]) -> list[Recipe]:
    """Group experiments by recipe.

    A task is always a recipe of its own. Other settings separate recipes only if each recipe then
    has several experiments to compare, and if the settings do not form a grid.
    """
    by_task = grouped((each.label.task, n) for n, each in enumerate(experiments))
    return [
        Recipe(text, [members[n] for n in indices])
        for members in by_task.values()
        for text, indices in _recipes_of_task([experiments[n] for n in members])
    ]


def _recipes_of_task(experiments: Sequence[Settings]) -> list[Recipe]:
    differing = differing_settings(experiments)
    keys = [key for key in differing if key.replace("/", ".").split(".")[0] in _RECIPE]
    values = [tuple(repr(differing[key][n]) for key in keys) for n in range(len(experiments))]
    groups = [*grouped((value, n) for n, value in enumerate(values)).values()]
    whole = [Recipe("", [*range(len(experiments))])]
    if not keys or len(groups) in (1, len(experiments)):
        return whole
    if (grid := grid_of(experiments)) is not None and {*keys} <= {*grid.swept}:
        return whole
    of_titles = {  # the title of a table already names the scale
        key: [differing[key][members[0]] for members in groups] for key in keys if key != "scale"
    }
    shown = fewest(of_titles)
    texts = [
        ", ".join(phrases({key: values[n] for key, values in of_titles.items()}, shown))
        for n in range(len(groups))
    ]
    return [Recipe(text, members) for text, members in zip(texts, groups, strict=True)]
