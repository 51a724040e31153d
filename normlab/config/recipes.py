"""Recipes: what a published table takes, as an option of the group `recipe`.

A recipe is the last entry of the defaults list, so that it can choose the model and the schedule,
and set values of the task. Which one a run has without being asked depends on two choices, the task
and the scale, and Hydra cannot express that: it is added to the overrides before Hydra reads them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from normlab.config.sites import NORM_KEYS

# The recipe of a task that is named alone, and at scale=gpu. The other scales replace it.
_OF_TASK = {"iwslt": "rbn"}
_AT_GPU = {"mlm": "bert", "iwslt": "rbn", "multi30k": "rbn", "toy": "rbn", "translation": "rbn"}
_SMALL = ("cpu", "smoke")
_NONE = "none"
_TASK = "toy"  # what configs/config.yaml has
# What a recipe may give by placement, as in `lr: {pre: 1.5e-3, post: 5e-4}`.
_BY_PLACEMENT = ("optim.lr", "schedule.warmup")

# Where the momentum of an option is torch's, and the recipe's code has another.
_MOMENTUM = {("rbn", "bn"): 0.05}


def default_recipe(task: str, scale: str | None) -> str | None:
    """Return the recipe that a run of this task and scale has unless another is named."""
    return {None: _OF_TASK, "gpu": _AT_GPU}.get(scale, {}).get(task)


def typed(overrides: Sequence[str]) -> dict[str, str]:
    """Map each key of `key=value` arguments to its last value, quotes left out; flags have none."""
    pairs = [text.partition("=") for text in overrides if not text.startswith("-")]
    return {key: value.strip("'\"") for key, found, value in pairs if found}


def with_recipe(overrides: Sequence[str]) -> list[str]:
    """Return the arguments with the default recipe of their task beside it, unless they name one.

    Several tasks or scales in a sweep have no default recipe together; its runs have.
    """
    given = typed(overrides)
    scale = given.get("scale")
    recipe = default_recipe(given.get("task", _TASK), None if scale == "null" else scale)
    if recipe is None or "recipe" in given:
        return list(overrides)
    # Beside what it follows from: the flags of Hydra must not come between two arguments.
    place = next(n for n, text in enumerate(overrides) if text.startswith(("task=", "scale=")))
    return [*overrides[:place], f"recipe={recipe}", *overrides[place:]]


def check_recipe(choices: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Refuse a scale that would replace the recipe, and a run that has missed its recipe.

    `choices` are the options by group, `given` the overrides as `typed` returns them.
    """
    recipe, scale, task = choices.get("recipe"), choices.get("scale"), choices["task"]
    if recipe not in (None, _NONE) and scale in _SMALL:
        raise ValueError(
            f"recipe={recipe} and scale={scale} are both set, and each is a whole recipe: leave "
            f"one out; a short run of a recipe is recipe={recipe} budget.steps=100"
        )
    expected = default_recipe(task, scale)
    if recipe != expected and "recipe" not in given:
        raise ValueError(
            f"task={task} has recipe={expected} by default, which a sweep over tasks or scales "
            f"leaves out: give recipe={expected}, or recipe={_NONE}"
        )


def settle_recipe(config: DictConfig, choices: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Settle what a recipe gives by placement, and its momentum, unless another is written."""
    _settle_placement(config, choices)
    for key in NORM_KEYS:
        momentum = _MOMENTUM.get((str(choices.get("recipe")), str(choices.get(key))))
        if momentum is not None and f"{key}.momentum" not in given:
            config[key].momentum = momentum


def _settle_placement(config: DictConfig, choices: Mapping[str, Any]) -> None:
    """Replace values that the recipe gives by placement with the one of the run's placement."""
    placement = choices["placement"]
    for key in _BY_PLACEMENT:
        values = OmegaConf.select(config, key)
        if not isinstance(values, DictConfig):
            continue
        if placement not in values:
            there = " and ".join(str(name) for name in values)
            raise ValueError(
                f"recipe={choices.get('recipe')} has no {key} for placement={placement}, only for "
                f"{there}: give placement={next(iter(values))}, another recipe, or {key}=VALUE"
            )
        OmegaConf.update(config, key, values[placement])
