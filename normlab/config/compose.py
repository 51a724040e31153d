"""Composes the config of a run from `configs/` and what was typed, with Hydra.

In a run's config, a group such as `norm` has its option's name and values; only the file names
the class. The default recipe depends on task and scale, which Hydra cannot express, so it is added
before Hydra reads the overrides. Nothing here imports torch.
"""

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from normlab.config.error_messages import setting_error
from normlab.config.experiments import EXPERIMENT, files_of, names_in
from normlab.config.hydra_source import CONFIG_NAME, configs_open, defaults_list
from normlab.config.overrides import parsed, typed, written_out
from normlab.config.run_config import to_dict
from normlab.config.schema import full_key
from normlab.config.settle import default_recipe, settle
from normlab.errors import SettingError, UserError

_ASK_FOR_RECIPES = ("task=", "scale=", f"{EXPERIMENT}=")
TASK = "toy"  # the default of configs/config.yaml


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """Return the checked config of a run; UserError with a one-line message if it is invalid."""
    return compose_written(written_out(overrides))


def compose_written(overrides: Sequence[str]) -> DictConfig:
    """Return the checked config of a run, from arguments that `written_out` returned."""
    try:
        return _checked(overrides)
    except SettingError as error:
        files = {} if EXPERIMENT in error.keys else _files_of_keys(overrides)
        path = next((files[key] for key in map(full_key, error.keys) if key in files), None)
        raise UserError(f"{path}: {error}" if path else str(error)) from error.__cause__


def _files_of_keys(overrides: Sequence[str]) -> dict[str, Path]:
    """Return the file of an experiment that sets each key or group, unless it was typed, too."""
    values = typed(overrides)
    names = names_in(values.pop(EXPERIMENT, None))
    decided = {*map(full_key, values)}
    return {key: path for key, path in files_of(names).items() if key not in decided}


def _checked(overrides: Sequence[str]) -> DictConfig:
    try:
        with configs_open():
            composed = hydra_compose(CONFIG_NAME, with_recipe(overrides), return_hydra_config=True)
        choices, overrides_of_task = composed.hydra.runtime.choices, composed.hydra.overrides.task
        with open_dict(composed):
            del composed["hydra"]
        return settle(composed, choices, overrides_of_task)
    except (HydraException, OmegaConfBaseException) as error:
        raise setting_error(error, typed(overrides)) from None


def from_hydra(config: DictConfig) -> DictConfig:
    """Return the checked config of a run, from the one that Hydra passes to its main function."""
    runtime = HydraConfig.get()
    return settle(config, runtime.runtime.choices, runtime.overrides.task)


def with_recipe(overrides: Sequence[str]) -> list[str]:
    """Return the overrides with the default recipe; a sweep over tasks or scales gets none."""
    options = {"task": TASK, **_of_experiments(overrides), **typed(overrides)}
    recipe = default_recipe(options["task"], options.get("scale"))
    if recipe is None or "recipe" in options:
        return [*overrides]
    # Insert it right before the override that needs it, so that Hydra's flags keep their values.
    place = next(n for n, text in enumerate(overrides) if text.startswith(_ASK_FOR_RECIPES))
    return [*overrides[:place], f"recipe={recipe}", *overrides[place:]]


def _of_experiments(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the options that a run's experiments choose, by Hydra's own rules."""
    words = [text for text in overrides if text.startswith(f"{EXPERIMENT}=")]
    if not words or any(parsed(text).is_sweep_override() for text in words):
        return {}
    choices = defaults_list(words).overrides.known_choices
    return {key: name for key, name in choices.items() if name}


def shown_config(argv: Sequence[str]) -> str | None:
    """Return the config of a run for `--cfg job`; None for other flags, which Hydra handles.

    Hydra would print its own composition, without the values of a recipe. The values of a run have
    no interpolations, so `--resolve` changes nothing.
    """
    flags = ArgumentParser(add_help=False, allow_abbrev=False)
    flags.add_argument("--cfg", "-c")
    flags.add_argument("--package", "-p")
    flags.add_argument("--resolve", action="store_true")
    known, overrides = flags.parse_known_args(argv)
    if known.cfg != "job":
        return None
    if other := [text for text in overrides if text.startswith("-")]:
        raise UserError(f"--cfg job shows the config of one run: omit {other[0]}")
    config = OmegaConf.create(to_dict(compose_written(overrides)))
    part = OmegaConf.select(config, known.package) if known.package else config
    if not OmegaConf.is_config(part):
        raise UserError(f"--package {known.package}: the config has no such part")
    return OmegaConf.to_yaml(part)
