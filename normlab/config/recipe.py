"""The recipe of a run: the default recipe of each task, and what it sets for the run's options."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from normlab.config import registry
from normlab.config.schema import NORM_KEYS
from normlab.errors import UserError

# The default recipe of a task without a scale, and at scale=paper. Other scales replace recipes.
_RECIPES: dict[str | None, dict[str, str]] = {
    None: {"iwslt": "rbn"},
    "paper": {"mlm": "bert", **dict.fromkeys(("iwslt", "multi30k", "toy", "translation"), "rbn")},
}
_BY_PLACEMENT = ("optim.lr", "schedule.warmup")  # in a recipe, as `lr: {pre: 1.5e-3, post: 5e-4}`


def default_recipe(task: str, scale: str | None) -> str | None:
    """Return the recipe of a task at a scale if none is chosen; None if there is none."""
    return _RECIPES.get(None if scale == "null" else scale, {}).get(task)


def settle_recipe(config: DictConfig, choices: Any, written: Mapping[str, Any]) -> None:
    """Set the recipe's values for the run's placement and for its other options, unless typed.

    In a recipe, `norm: {rms: {eps: 1e-6}}` sets `eps` of each norm of the run that is `rms`.
    """
    recipe, scale, task, placement = map(choices.get, ("recipe", "scale", "task", "placement"))
    if recipe not in (None, "none") and scale in ("small", "smoke"):
        both = f"recipe={recipe} and scale={scale} are both set, but each is a complete recipe"
        raise UserError(f"{both}: leave one out")
    expected = default_recipe(task, scale)
    if recipe is None and expected is not None:
        left_out = f"task={task} has recipe={expected} by default, which a sweep leaves out"
        raise UserError(f"{left_out}: give recipe={expected}, or recipe=none")
    for key in _BY_PLACEMENT:
        values = OmegaConf.select(config, key)
        if not isinstance(values, DictConfig):
            continue
        if placement not in values:
            lacks = f"recipe={recipe} has no {key} for placement={placement}"
            raise UserError(f"{lacks}: give placement={next(iter(values))}, or {key}=VALUE")
        OmegaConf.update(config, key, values[placement])
    for group in ("norm", "placement", "optim", "schedule"):
        node: Any = config[group]
        names = (name for name in registry.option_names(group) if name in node)
        of_options = {n: node.pop(n) for n in [*names] if isinstance(node[n], DictConfig)}
        for key in NORM_KEYS if group == "norm" else [group]:
            for name, value in of_options.get(choices.get(key), {}).items():
                if f"{key}.{name}" not in written:
                    config[key][name] = value
