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

from normlab.config import registry
from normlab.config.error_messages import error_line
from normlab.config.experiments import EXPERIMENT, names_in, settings_in
from normlab.config.overrides import is_sweep, quoted, typed, written_out
from normlab.config.plain import to_dict
from normlab.config.recipe import default_recipe
from normlab.config.settle import settle
from normlab.config.source import CONFIG_NAME, configs_open, defaults_list
from normlab.errors import UserError

_ASK_FOR_RECIPES = ("task=", "scale=", f"{EXPERIMENT}=")
TASK = "toy"  # the default of configs/config.yaml


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """Return the checked config of a run; UserError with a one-line message if it is invalid."""
    return compose_written(written_out(overrides))


def compose_written(overrides: Sequence[str]) -> DictConfig:
    """Return the checked config of a run, from arguments that `written_out` returned."""
    try:
        return _checked(overrides)
    except UserError as error:
        raise UserError(f"{_file_to_blame(overrides, error)}{error}") from error.__cause__


def _file_to_blame(overrides: Sequence[str], error: UserError) -> str:
    """Return the file of the experiment that causes the error, and a colon; "" if none does."""
    names = names_in(typed(overrides).get(EXPERIMENT, ""))
    others = [text for text in overrides if not text.startswith(f"{EXPERIMENT}=")]
    for name in names:
        try:
            _checked([f"{EXPERIMENT}=[{','.join(quoted(e) for e in names if e != name)}]", *others])
        except UserError as same:
            if str(same) == str(error):
                continue
        path = Path(registry.paths(EXPERIMENT).get(name, name))
        return f"{path}: " if _is_readable(path) else ""  # if it cannot be read, the error names it
    return ""


def _is_readable(path: Path) -> bool:
    """Return whether an experiment has a file, with settings that can be read."""
    try:
        return path.is_file() and bool(settings_in(path, registry.read_option(path)))
    except UserError:
        return False


def _checked(overrides: Sequence[str]) -> DictConfig:
    try:
        with configs_open():
            composed = hydra_compose(CONFIG_NAME, with_recipe(overrides), return_hydra_config=True)
        choices, overrides_of_task = composed.hydra.runtime.choices, composed.hydra.overrides.task
        with open_dict(composed):
            del composed["hydra"]
        return settle(composed, choices, overrides_of_task)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(error_line(error, typed(overrides))) from None


def from_hydra(config: DictConfig) -> DictConfig:
    """Return the checked config of a run, from the one that Hydra passes to its main function."""
    runtime = HydraConfig.get()
    return settle(config, runtime.runtime.choices, runtime.overrides.task)


def with_recipe(overrides: Sequence[str]) -> list[str]:
    """Return the overrides with the default recipe; a sweep over tasks or scales gets none."""
    options = {"task": TASK, **_of_experiments(overrides), **typed(overrides)}
    recipe = default_recipe(options["task"], options.get("scale"))
    if recipe is None or options.get("recipe") is not None:
        return [*overrides]
    # Insert it right before the override that needs it, so that Hydra's flags keep their values.
    place = next(n for n, text in enumerate(overrides) if text.startswith(_ASK_FOR_RECIPES))
    return [*overrides[:place], f"recipe={recipe}", *overrides[place:]]


def _of_experiments(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the options that a run's experiments choose, by Hydra's own rules."""
    words = [text for text in overrides if text.startswith(f"{EXPERIMENT}=")]
    if not words or is_sweep(typed(words)[EXPERIMENT]):
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
