"""Turns the config that Hydra composes into the config of a run, pass by pass (`settle`).

Hydra's config has the classes of the options, and short keys as the user wrote them, and some
values depend on others. A run's config names its options, has only full keys, and all its values
are final.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from normlab.config.error_messages import empty_path, is_looked_up, looked_up, no_such_key
from normlab.config.experiments import EXPERIMENT, names_in, values_of
from normlab.config.folders import groups
from normlab.config.keys import MISSING
from normlab.config.machine import settled_precision
from normlab.config.overrides import typed
from normlab.config.registry import (
    START_FILE,
    TARGET,
    option_names,
    option_settings,
    sha256,
    with_option_names,
)
from normlab.config.run_config import check_plain, check_values, in_schema, reads_data_dir, to_dict
from normlab.config.schema import (
    NEWER_OF_MODELS,
    NORM_KEYS,
    OPTIONS,
    PATHS,
    SHORT,
    Precision,
    full_key,
    lifts_steps,
)
from normlab.config.sites import settle_sites
from normlab.config.suggestions import did_you_mean
from normlab.errors import SettingError, UserError

_READS_FILES = (
    "add task=translation for your own pairs of sentences, task=lm task/corpus=documents for your "
    "own documents, or the task of a published data set (normlab list tasks)"
)
# The default recipe of a task without a scale, and at scale=paper. Other scales replace recipes.
_RECIPES: dict[str | None, dict[str, str]] = {
    None: {"iwslt": "rbn"},
    "paper": {"mlm": "bert", **dict.fromkeys(("iwslt", "multi30k", "toy", "translation"), "rbn")},
}
_BY_PLACEMENT = ("optim.lr", "schedule.warmup")  # the keys that a recipe may set per placement


@dataclass(frozen=True)
class Written:
    """The settings that the user wrote for a run, as opposed to values in `configs/`.

    `short` has the values of short keys, `files` the settings of experiments by dotted key, and
    `typed` the settings on the command line. `keys` are all keys in the order in which they were
    written.
    """

    short: Mapping[str, Any]
    files: Mapping[str, Any]
    typed: Mapping[str, Any]
    keys: Sequence[str]

    @property
    def values(self) -> Mapping[str, Any]:
        return {**self.files, **self.typed}


def settle(config: DictConfig, choices: Mapping[str, Any], overrides: Sequence[str]) -> DictConfig:
    """Return the config of a run, given Hydra's config, its choices and the overrides."""
    plain = cast("dict[str, Any]", OmegaConf.to_container(config))
    short = {key: value for key in SHORT if (value := plain.pop(key)) != MISSING}
    run = in_schema(plain)
    settle_precision(run)
    run.choices = chosen_options(choices)
    written = what_was_written(short, overrides, run.choices)
    set_full_keys(run, written)
    check_recipe(run.choices)
    choose_by_placement(run)
    choose_by_option(run, written.values)
    name_options(run)
    if run.sites is not None:
        settle_sites(run)
    keep_one_batch_size(run, written)
    settle_paths(run)
    OmegaConf.resolve(run)  # last, since all of the above changes what other keys repeat
    check_complete(run, written)
    check_plain(plain := to_dict(run))
    check_values(plain)
    return run


def settle_precision(run: DictConfig) -> None:
    """Replace `precision=auto` by the precision that it means on the run's device."""
    run.precision = Precision[settled_precision(run.precision.name, device=run.device.name)]


def chosen_options(choices: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the chosen option of each group, except Hydra's own groups and experiments."""
    return {
        group.split("@")[-1]: option
        for group, option in choices.items()
        if not group.startswith(("hydra/", EXPERIMENT)) and isinstance(option, str | None)
    }


def what_was_written(
    short: Mapping[str, Any], overrides: Sequence[str], choices: Mapping[str, Any]
) -> Written:
    """Return the settings of the command line and of experiments.

    Raises UserError for a class, and for a value of an experiment that Hydra would look up.
    """
    if classes := [text for text in overrides if TARGET in text]:
        raise UserError(f"{classes[0]:.60}: run configs may not name classes; set GROUP=OPTION")
    values = typed(overrides)
    files = values_of(names_in(values[EXPERIMENT])) if EXPERIMENT in values else {}
    for key, value in files.items():
        if is_looked_up(str(value)):
            raise SettingError(looked_up(f"{key}: {value}"), full_key(key))
    check_keys(files, choices)
    keys = [*files, *(text.partition("=")[0].lstrip("+") for text in overrides)]
    return Written(short, files, values, keys)


def check_keys(settings: Mapping[str, Any], choices: Mapping[str, Any]) -> None:
    """Raise UserError for a key that the run's option does not have, because Hydra would add it."""
    for key in settings:
        node, _, rest = key.partition(".")
        group = "norm" if node in NORM_KEYS else node
        option, names = choices.get(node), option_names(group)
        if not rest or option not in names:
            continue
        has = {*option_settings(group, option, node), *names}  # also `norm: {rms: {eps: 1e-6}}`
        has |= {name.partition("/")[2] for name in groups() if name.startswith(f"{group}/")}
        if node == "model":
            has |= {name.split(".")[1] for name in NEWER_OF_MODELS}
        elif node == "optim":
            has.add("groups")
        if rest.partition(".")[0] not in has:
            raise SettingError(no_such_key(key), key)


def set_full_keys(run: DictConfig, written: Written) -> None:
    """Set the keys that short keys stand for, unless the full key was set later.

    `epochs` without `steps` lifts the limit on steps.
    """
    last = {full_key(key): key for key in written.keys}
    for key in written.short.keys() & last.values():
        OmegaConf.update(run, SHORT[key], written.short[key])
    if lifts_steps(written.keys):
        run.budget.steps = None


def default_recipe(task: str, scale: str | None) -> str | None:
    """Return the default recipe of a task at a scale, or None if it has none."""
    return _RECIPES.get(scale, {}).get(task)


def check_recipe(choices: Mapping[str, Any]) -> None:
    """Raise SettingError if the recipe conflicts with the scale, or if the default one is missing.

    A sweep over tasks or scales leaves out the default recipe, because it depends on both.
    """
    task, recipe, scale = choices["task"], choices.get("recipe"), choices.get("scale")
    if recipe not in (None, "none") and scale in ("small", "smoke"):
        both = f"recipe={recipe} and scale={scale} are both set, but each is a complete recipe"
        raise SettingError(f"{both}; leave one out", "recipe", "scale")
    expected = default_recipe(task, scale)
    if recipe is None and expected is not None:
        left_out = f"task={task} has recipe={expected} by default, which a sweep leaves out"
        problem = f"{left_out}; set recipe={expected}, or recipe=none"
        raise SettingError(problem, "recipe", "task", "scale")


def choose_by_placement(run: DictConfig) -> None:
    """Replace values that a recipe sets per placement by the value for the run's placement.

    In a recipe, `lr: {pre: 1.5e-3, post: 5e-4}` has a learning rate for each of two placements.
    """
    recipe, placement = map(run.choices.get, ("recipe", "placement"))
    for key in _BY_PLACEMENT:
        values = OmegaConf.select(run, key)
        if not isinstance(values, DictConfig):
            continue
        if placement not in values:
            lacks = f"recipe={recipe} has no {key} for placement={placement}"
            problem = f"{lacks}; set placement={next(iter(values))}, or {key}=VALUE"
            raise SettingError(problem, key, "placement", "recipe")
        OmegaConf.update(run, key, values[placement])


def choose_by_option(run: DictConfig, written: Mapping[str, Any]) -> None:
    """Apply a recipe's values per option, unless the user set them.

    In a recipe, `norm: {rms: {eps: 1e-6}}` sets `eps` of every `rms` norm in the run.
    """
    for group in ("norm", "placement", "optim", "schedule"):
        node: Any = run[group]
        names = [name for name in option_names(group) if name in node]
        of_options = {name: node.pop(name) for name in names if isinstance(node[name], DictConfig)}
        for key in NORM_KEYS if group == "norm" else [group]:
            for name, value in of_options.get(run.choices.get(key), {}).items():
                if f"{key}.{name}" not in written:
                    run[key][name] = value


def name_options(run: DictConfig) -> None:
    """Replace the classes in all nodes with the names of their options."""
    for key in (*OPTIONS, *NORM_KEYS, "probe", "sink"):
        parent = run.observe if key in ("probe", "sink") else run
        if isinstance(parent[key], DictConfig):
            node = cast("dict[str, Any]", OmegaConf.to_container(parent[key]))
            choices = {} if parent is run.observe else run.choices
            parent[key] = with_option_names(node, key, choices)


def keep_one_batch_size(run: DictConfig, written: Written) -> None:
    """Keep one of the two batch sizes: the one that was set last or, if none was, `max_tokens`."""
    sizes = [key for key in ("max_tokens", "batch_size") if run[key] is not None]
    if not sizes or len([key for key in sizes if key in written.typed]) == 2:
        both = f"batch_size={run.batch_size} and max_tokens={run.max_tokens}"
        problem = f"{both}; set exactly one (sequences or tokens per batch)"
        raise SettingError(problem, "batch_size", "max_tokens")
    set_last = [key for key in (*written.files, *written.typed) if key in sizes]
    last = [*sizes[::-1], *set_last][-1]
    for key in sizes:
        if key != last:
            run[key] = None


def settle_paths(run: DictConfig) -> None:
    """Expand `~`, which a shell expands only at the start of a word, and find `start_from`."""
    for key in PATHS:
        if run[key] == "":
            raise SettingError(empty_path(key), key)
        if isinstance(run[key], str):
            run[key] = os.path.expanduser(run[key])
    if isinstance(folder := run.start_from, str):
        path = _weights_of(folder, Path(run.runs_dir))
        run.start_from = {"run_dir": str(path.parents[1]), "sha256": sha256(path)}


def _weights_of(name: str, runs: Path) -> Path:
    """Return the file with a run's weights, given the run's path or its name below `runs_dir`."""
    place = Path(name) if Path(name).exists() else runs / name
    files = sorted(place.glob(f"**/{START_FILE}"))
    if len(files) > 1:
        one = files[0].parents[1]
        problem = f"start_from={name} has {len(files)} runs; choose one, such as {one}"
        raise SettingError(problem, "start_from")
    if not files:
        folders = {up for path in runs.glob(f"**/{START_FILE}") for up in path.parents[1:]}
        names = [str(up.relative_to(runs)) for up in folders if runs in up.parents]
        near = did_you_mean(name.removeprefix(f"{runs}/"), names)
        problem = f"start_from={name} is not a trained run: {START_FILE} is missing.{near}"
        raise SettingError(problem, "start_from")
    return files[0]


def check_complete(run: DictConfig, written: Written) -> None:
    """Raise UserError for a key that the task does not read, and for a missing value."""
    if "batching" in written.values and "batching" not in run.task:
        problem = f"task={run.choices.task} does not read batching={run.batching.name}"
        raise SettingError(f"{problem}; omit it", "batching", "task")
    if run.data_dir is not None and not reads_data_dir(run):
        chosen = [f"{x}={run.choices[x]}" for x in ("task", "task/corpus") if x in run.choices]
        problem = f"{' '.join(chosen)} does not read data_dir={run.data_dir}"
        advice = f"{_READS_FILES}, or omit data_dir"
        raise SettingError(f"{problem}: {advice}", "data_dir", "task")
    if missing := sorted(OmegaConf.missing_keys(run)):
        raise SettingError(f"{missing[0]} is missing; set {missing[0]}=VALUE", missing[0])
