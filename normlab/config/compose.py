"""Composing a run's config from `configs/`, and reading the config in a record.

In a run's config, a group such as `norm` has its option's name and values; only the file names
the class. The default recipe depends on task and scale, which Hydra cannot express, so it is added
before Hydra reads the overrides. Nothing here imports torch.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from normlab.config import ranges, registry
from normlab.config.experiments import EXPERIMENT, names_in, settings_in
from normlab.config.folders import CONFIG_DIR
from normlab.config.machine import MOST_THREADS, settled_precision
from normlab.config.overrides import (
    error_line,
    is_sweep,
    meant,
    quoted,
    settings_of_experiments,
    start_file,
    typed,
    written_out,
)
from normlab.config.recipe import default_recipe, settle_recipe
from normlab.config.registry import TARGET, with_option_names
from normlab.config.schema import (
    LATER,
    LATER_KEYS,
    MISSING,
    NORM_KEYS,
    OPTIONS,
    PARTS,
    SHORT,
    Precision,
    RunConfig,
    WrittenConfig,
    leaves,
)
from normlab.config.sites import settle_sites
from normlab.config.source import OptionFolders, OptionSource
from normlab.errors import UserError

CONFIG_NAME = "config"
# Top-level keys that composition copies into the task's nodes, under the same name.
_COPIED = ("batch_size", "max_tokens", "batching", "data_dir")
_TASK_NODES = ("task", "task.corpus", "task.source")  # where they are copied to

_READS_FILES = (
    "add task=translation for your own pairs of sentences, task=lm task/corpus=documents for your "
    "own documents, or the task of a published data set (normlab list tasks)"
)

_ASK_FOR_RECIPES = ("task=", "scale=", f"{EXPERIMENT}=")
TASK = "toy"  # the default of configs/config.yaml


def register() -> None:
    """Register the schema (as `normlab_schema` and `normlab_later`) and own folders with Hydra."""
    if "normlab_schema.yaml" in ConfigStore.instance().repo:
        return
    ConfigStore.instance().store("normlab_schema", node=WrittenConfig)
    ConfigStore.instance().store("normlab_later", node={"model": LATER})
    Plugins.instance().register(OptionSource)
    Plugins.instance().register(OptionFolders)


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
    """Return the experiment's file, and a colon, without which there is no such error; else ""."""
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
    register()
    try:
        with _hydra():
            composed = hydra_compose(CONFIG_NAME, with_recipe(overrides), return_hydra_config=True)
        choices, overrides_of_task = composed.hydra.runtime.choices, composed.hydra.overrides.task
        with open_dict(composed):
            del composed["hydra"]
        return settle(composed, choices, overrides_of_task)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(error_line(error, overrides)) from None


@contextmanager
def _hydra() -> Iterator[None]:
    """Let Hydra read `configs/` in the block; a caller that uses Hydra itself keeps its state."""
    caller = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().hydra = caller


def from_hydra(config: DictConfig) -> DictConfig:
    """Return the checked form of the config that Hydra passes to the function it calls."""
    runtime = HydraConfig.get()
    return settle(config, runtime.runtime.choices, runtime.overrides.task)


def with_recipe(overrides: Sequence[str]) -> list[str]:
    """Return the overrides with the default recipe; a sweep over tasks or scales gets none."""
    options = {"task": TASK, **_of_experiments(overrides), **typed(overrides)}
    recipe = default_recipe(options["task"], options.get("scale"))
    if recipe is None or options.get("recipe") is not None:
        return [*overrides]
    # Insert it just before what asks for it, so as not to part a Hydra flag from its value.
    place = next(n for n, text in enumerate(overrides) if text.startswith(_ASK_FOR_RECIPES))
    return [*overrides[:place], f"recipe={recipe}", *overrides[place:]]


def _of_experiments(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the options that a run's experiments choose, as Hydra's own rules say."""
    words = [text for text in overrides if text.startswith(f"{EXPERIMENT}=")]
    if not words or is_sweep(typed(words)[EXPERIMENT]):
        return {}
    with _hydra() if GlobalHydra.instance().hydra is None else nullcontext():
        listed = (
            GlobalHydra.instance()
            .config_loader()
            .compute_defaults_list(CONFIG_NAME, words, RunMode.RUN)
        )
    return {key: name for key, name in listed.overrides.known_choices.items() if name}


def settle(config: DictConfig, choices: Mapping[str, Any], overrides: Sequence[str]) -> DictConfig:
    """Name the options in a config, settle values that depend on other keys, and check it."""
    plain = cast("dict[str, Any]", OmegaConf.to_container(config))
    short = {key: value for key in SHORT if (value := plain.pop(key)) != MISSING}
    config = _typed(plain)
    precision = settled_precision(config.precision.name, device=config.device.name)
    config.precision = Precision[precision]
    config.choices = {
        group.split("@")[-1]: option
        for group, option in choices.items()
        if not group.startswith(("hydra/", EXPERIMENT)) and isinstance(option, str | None)
    }
    if classes := [text for text in overrides if TARGET in text]:
        raise UserError(f"{classes[0]:.60}: a run cannot name classes: give GROUP=OPTION")
    of_files = settings_of_experiments(overrides, config.choices)
    _settle_short(config, short, overrides, of_files)
    typed_values = typed(overrides)
    settle_recipe(config, config.choices, of_files | typed_values)
    _name_options(config)
    if config.sites is not None:
        settle_sites(config)
    _drop(config.model, LATER)
    for node in (*map(config.get, NORM_KEYS), *(config.sites or {}).values()):
        _drop(node, {"one_plus": False})
    _settle_batch_size(config, of_files, typed_values)
    _settle_paths(config)
    OmegaConf.resolve(config)
    if config.data_dir is not None and not _nodes_with(config, "data_dir"):
        problem = f"data_dir={config.data_dir}: task={config.choices['task']} does not read it"
        raise UserError(f"{problem}: {_READS_FILES}, or leave data_dir out")
    if missing := sorted(OmegaConf.missing_keys(config)):
        raise UserError(f"{missing[0]} must be given, as {missing[0]}=VALUE")
    plain = to_dict(config)
    _check_plain(plain)
    ranges.check(plain)
    return config


def _name_options(config: DictConfig) -> None:
    """Replace the classes in all nodes of a config with the names of their options."""
    for key in (*OPTIONS, *NORM_KEYS, "probe", "sink"):
        parent = config.observe if key in ("probe", "sink") else config
        if isinstance(parent[key], DictConfig):
            node = cast("dict[str, Any]", OmegaConf.to_container(parent[key]))
            choices = {} if parent is config.observe else config.choices
            parent[key] = with_option_names(node, key, choices)


def _settle_paths(config: DictConfig) -> None:
    """Expand `~`, which a shell does only at a word's start; name the run to start from."""
    for key in ("data_dir", "runs_dir", "start_from"):
        if isinstance(config[key], str):
            config[key] = os.path.expanduser(config[key])
    if isinstance(folder := config.start_from, str):
        path = start_file(folder, Path(config.runs_dir))
        config.start_from = {"run_dir": str(path.parents[1]), "sha256": registry.sha256(path)}


def _nodes_with(config: DictConfig, key: str) -> list[str]:
    """Return the nodes of the task that have a key."""
    return [node for node in _TASK_NODES if key in (OmegaConf.select(config, node) or {})]


def reads_files(task: str) -> bool:
    """Return whether a task has a `data_dir`, as it does if a corpus can be chosen for it."""
    node = OmegaConf.create({"task": dict(registry.option_settings("task", task, "task"))})
    return bool(_nodes_with(node, "data_dir")) or not node.task.keys() & {"corpus", "source"}


def _settle_short(
    config: DictConfig,
    short: Mapping[str, Any],
    overrides: Sequence[str],
    of_files: Mapping[str, Any],
) -> None:
    """Set the keys that short keys stand for, unless the full key was set later.

    `epochs` without `steps` lifts the limit on steps.
    """
    keys = [*of_files, *(text.partition("=")[0].lstrip("+") for text in overrides)]
    last = {SHORT.get(key, key): key for key in keys}
    for key in short.keys() & last.values():
        OmegaConf.update(config, SHORT[key], short[key])
    if "epochs" in short and SHORT["steps"] not in last:
        config.budget.steps = None


def _settle_batch_size(
    config: DictConfig, of_files: Mapping[str, Any], typed_keys: Mapping[str, str]
) -> None:
    """Keep one of the two batch sizes: the one set last, otherwise `max_tokens`."""
    sizes = [key for key in ("max_tokens", "batch_size") if config[key] is not None]
    if not sizes or len([key for key in sizes if key in typed_keys]) == 2:
        both = f"batch_size={config.batch_size} and max_tokens={config.max_tokens}"
        raise UserError(f"{both}: give exactly one (sequences or tokens per batch)")
    last = [*sizes[::-1], *(key for key in (*of_files, *typed_keys) if key in sizes)][-1]
    for key in sizes:
        if key != last:
            config[key] = None


def _drop(node: Any, defaults: Mapping[str, Any]) -> None:
    """Remove newer keys at their defaults from a node, so that older runs keep their hash."""
    for name, value in defaults.items():
        if isinstance(node, DictConfig) and name in node:
            if isinstance(value, Mapping):
                _drop(node[name], value)
                value = {}
            if node[name] == value:
                node.pop(name)


def _names_classes(node: object) -> bool:
    """Return whether a mapping in a list, or a text of it, names a class."""
    if isinstance(node, Mapping):
        return TARGET in node or any(map(_names_classes, node.values()))
    return isinstance(node, list) and any(map(_names_classes, node))


def _check_plain(config: Mapping[str, Any]) -> None:
    """Raise ValueError for a class or an interpolation: records hold only plain data."""
    for key, value in leaves(config):
        if TARGET in key.split(".") or (isinstance(value, list) and _names_classes(value)):
            raise UserError(f"{key}={value!r:.60}: a run cannot name classes: give an option")
        if "${" in str(value):
            raise UserError(f"{key}={value!r:.60}: records hold only plain values")


def to_dict(config: Any) -> dict[str, Any]:
    """Return a config as plain values, with enumerations as their names.

    Newer keys at their defaults are left out, so that older runs keep their hash.
    """
    plain = cast("Any", OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    for key, value in LATER_KEYS.items():
        node, _, name = key.rpartition(".")
        if plain.get(node, {}).get(name, value) == value:
            plain.get(node, {}).pop(name, None)
    return plain


def from_dict(plain: Mapping[str, Any], changes: Sequence[str] = ()) -> DictConfig:
    """Rebuild a config from a `to_dict` result, applying dotted `key=value` changes.

    Keys newer than the run get their defaults. Raises UserError for a missing node, an unknown
    change, a class, or an interpolation: a config from elsewhere must not read the environment.
    """
    _check_plain(plain)
    nodes = ("choices", "norm", *OPTIONS, *PARTS)
    lacks = [name for name in nodes if not isinstance(plain.get(name), Mapping)]
    if lacks or "seed" not in plain:
        why = "it is damaged, or made by another version"
        raise UserError(f"the run's config lacks {', '.join(lacks or ['seed'])}: {why}")
    config = _typed(plain)
    copies: list[str] = []
    for change in changes:
        key, equals, value = change.partition("=")
        node, _, last = key.rpartition(".")
        parent = OmegaConf.select(config, node) if node else config
        if not (equals and isinstance(parent, DictConfig) and last in parent) or node == "choices":
            of_option = f" with {node}={config.choices[node]}" if node in config.choices else ""
            raise UserError(f"{change!r}: no such key in a run{of_option}.{meant(key)}")
        if isinstance(parent[last], DictConfig):
            raise UserError(f"{change!r}: {key} cannot be replaced; give {key}.KEY=value")
        copied = _nodes_with(config, key) if key in _COPIED else []
        if key == "data_dir" and not copied:
            raise UserError(f"{change!r}: the run's task={config.choices['task']} reads no files")
        copies += [f"{task}.{key}={value}" for task in copied]
    changed = _typed(config, OmegaConf.from_dotlist([*changes, *copies]))
    threads, is_change = changed.observe.threads, "observe.threads" in typed(changes)
    if isinstance(threads, int) and threads > MOST_THREADS and not is_change:
        changed.observe.threads = None  # the run was made on a machine with more cores
    ranges.check(to_dict(changed))
    return changed


def _typed(*parts: Any) -> DictConfig:
    """Merge configs into the schema; UserError for an unknown key or a value of the wrong type."""
    try:
        return cast("DictConfig", OmegaConf.merge(OmegaConf.structured(RunConfig), *parts))
    except Exception as error:  # OmegaConf raises errors of many kinds
        raise UserError(f"the run's config: {error_line(error)}") from None
