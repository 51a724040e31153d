"""Recipes: which experiments belong in one table, because their scores can be compared.

Experiments share a recipe if they have the same task, data, model, budget and test. A sweep may
vary such a setting over a grid (`model.depth=2,4`); then it is one recipe.
"""

from collections.abc import Sequence
from typing import NamedTuple

from normlab.records.grouping import grouped
from normlab.reports.arrangement.differing_settings import differing_settings
from normlab.reports.arrangement.grid import grid_of
from normlab.reports.arrangement.row_names import fewest, label, phrases
from normlab.reports.runs import Config

_RECIPE = {"task", "model", "scale", "budget", "validate", "precision"}
"""First parts of the config keys that make scores incomparable if they differ."""


class Recipe(NamedTuple):
    """What a group of experiments shares that others do not, in words, and their indices."""

    text: str
    members: list[int]


def recipes(configs: Sequence[Config]) -> list[Recipe]:
    """Group experiments by recipe.

    A task is always a recipe of its own. Other settings separate recipes only if each recipe then
    has several experiments to compare, and if the settings do not form a grid.
    """
    by_task = grouped((label(config).task, n) for n, config in enumerate(configs))
    return [
        Recipe(text, [members[n] for n in indices])
        for members in by_task.values()
        for text, indices in _recipes_of_task([configs[n] for n in members])
    ]


def _recipes_of_task(configs: Sequence[Config]) -> list[Recipe]:
    differing = differing_settings(configs)
    keys = [key for key in differing if key.replace("/", ".").split(".")[0] in _RECIPE]
    of_recipe = {key: differing[key] for key in keys}
    whole = [Recipe("", [*range(len(configs))])]
    values = [tuple(map(repr, each)) for each in zip(*of_recipe.values(), strict=True)]
    groups = grouped((value, n) for n, value in enumerate(values))
    if len(groups) in (0, 1, len(configs)) or {*keys} <= {*grid_of(configs)}:
        return whole
    first = [members[0] for members in groups.values()]
    differing = {key: [of_recipe[key][n] for n in first] for key in keys if key != "scale"}
    shown = fewest(differing)
    return [  # titles have the data and the scale
        Recipe(
            ", ".join(phrases({k: values[n] for k, values in differing.items()}, shown)), members
        )
        for n, members in enumerate(groups.values())
    ]
