"""Readable names of experiments (`ln, 3,000 steps`), and their recipes.

Experiments share a recipe if their scores can be compared: the same task, data, model, budget and
test. A sweep may vary such a setting over a grid (`model.depth=2,4`); then it is one recipe.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from normlab.records.grouping import grouped
from normlab.records.labels import corpus_label, norm_label, placement_label
from normlab.records.pairs import ABSENT, ROW_KEYS
from normlab.reports.comparison import differing_settings
from normlab.reports.headings import phrase

Config = Mapping[str, Any]
PLACEMENT = "placement"
BATCH = {"batch_size", "max_tokens"}
_RECIPE = {"task", "model", "scale", "budget", "validate", "precision"}
"""First parts of the config keys that make scores incomparable if they differ."""


class Name(NamedTuple):
    """An experiment's name in a table, and the keys whose values are in it."""

    text: str
    keys: tuple[str, ...] = ()


class Label(NamedTuple):
    """The norm, the placement, the task with its corpus, and the batch size of an experiment."""

    norm: str
    placement: str
    task: str
    batch: str


def label(config: Config) -> Label:
    """Return the labels of an experiment; a placement, task or batch size it lacks is `-`."""
    choices = config.get("choices", {})
    size, tokens = config.get("batch_size"), config.get("max_tokens")
    batch = phrase("batch_size", size) if size is not None else phrase("max_tokens", tokens)
    batch = batch if (size, tokens) != (None, None) else "-"
    task = "/".join(filter(None, (choices.get("task"), corpus_label(config))))
    return Label(norm_label(choices), placement_label(choices, config) or "-", task or "-", batch)


def names(configs: Sequence[Config], axes: Sequence[str] = ()) -> list[Name]:
    """Name experiments by their norm and the settings in which they differ, except `axes`.

    If a single setting differs, it is in every name. If several differ, they are only in names that
    would be equal without them, and only as many as needed.
    """
    labels = [label(config) for config in configs]
    shown = [n for n in (1, 2) if len({each[n] for each in labels}) > 1]
    shown = [n for n in shown if not (n == 1 and PLACEMENT in axes)]
    words = [[" ".join([its.norm, *(its[n] for n in shown if its[n] != "-")])] for its in labels]
    if not BATCH & {*axes} and len({its.batch for its in labels}) > 1:
        words = [[*each, its.batch] for each, its in zip(words, labels, strict=True)]
    keys_of: list[list[str]] = [[] for _ in configs]

    def add(
        members: Sequence[int], differing: Mapping[str, Sequence[Any]], keys: Sequence[str]
    ) -> None:
        for place, n in enumerate(members):
            keys_of[n] += keys
            words[n] += _phrases({key: values[place] for key, values in differing.items()}, keys)

    differing = differing_settings(configs)
    keys = [key for key in differing if key not in axes and not f"{key}.".startswith(ROW_KEYS)]
    if len(keys) == 1:
        add(range(len(configs)), differing, keys)
    below = tuple(f"{axis}." for axis in axes)
    for same in grouped((tuple(each), n) for n, each in enumerate(words)).values():
        of_group = {
            key: values
            for key, values in differing_settings([configs[n] for n in same]).items()
            if not f"{key}.".startswith(below)
        }
        add(same, of_group, _fewest(of_group))
    return [Name(", ".join(w), tuple(k)) for w, k in zip(words, keys_of, strict=True)]


def _fewest(differing: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a few keys that distinguish experiments as well as all keys do, in the same order."""
    chosen: list[str] = []

    def kinds(keys: Sequence[str]) -> int:
        return len({*map(repr, zip(*(differing[key] for key in keys), strict=True))}) if keys else 1

    while kinds(chosen) < kinds([*differing]):
        chosen.append(max(differing, key=lambda key: kinds([*chosen, key])))
    return [key for key in differing if key in chosen]


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
    shown = _fewest(differing)
    return [  # titles have the data and the scale
        Recipe(
            ", ".join(_phrases({k: values[n] for k, values in differing.items()}, shown)), members
        )
        for n, members in enumerate(groups.values())
    ]


def _phrases(settings: Mapping[str, Any], shown: Sequence[str]) -> list[str]:
    """Return the `shown` settings in words; for an unset budget limit, the limits that are set.

    Otherwise runs of 12,000 tokens, next to runs of 6 steps, would be called "no steps".
    """
    limits = [key for key, value in settings.items() if _is_limit(key) and value is not None]
    off = any(_is_limit(key) and settings[key] is None for key in shown)
    keys = [*shown, *(key for key in limits if off and key not in shown)]
    return [
        phrase(key, settings[key])
        for key in keys
        if settings[key] != ABSENT and not (off and _is_limit(key) and settings[key] is None)
    ]


def _is_limit(key: str) -> bool:
    return key in ("budget.steps", "budget.tokens", "budget.epochs", "budget.minutes")


# Grids --------------------------------------------------------------------------------------------


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
