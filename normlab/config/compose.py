"""Composing the config of a run from `configs/`, and reading the one of a record.

A group such as `norm` is an option with its values in a run's config; only the option's file
names its class. No torch here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, cast

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from normlab.config import constraints, suggest
from normlab.config.files import start_from_node
from normlab.config.recipes import check_recipe, settle_recipe, typed, with_recipe
from normlab.config.registry import CONFIG_DIR, OPTION, TARGET, named
from normlab.config.schema import PARTS, Precision, RunConfig, TestedWeights
from normlab.config.sites import NORM_KEYS, settle_sites
from normlab.config.suggest import check_single
from normlab.machine import MOST_THREADS, settled_precision

CONFIG_NAME = "config"
# Keys of the top level that composition copies into the nodes that read them, under the same name.
_COPIED = ("batch_size", "max_tokens", "batching", "data_dir")
_OPTIONS = ("task", "model", "placement", "optim", "schedule")
_NODES = ("norm", *_OPTIONS, *PARTS)


def register() -> None:
    """Make the schema known to Hydra as `schema`."""
    ConfigStore.instance().store("schema", node=RunConfig)


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """Return the checked config of a run; ValueError in the line of `normlab train` if wrong."""
    suggest.check_arguments(overrides)
    check_single(overrides)
    register()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            composed = hydra_compose(CONFIG_NAME, with_recipe(overrides), return_hydra_config=True)
        choices, given = composed.hydra.runtime.choices, composed.hydra.overrides.task
        with open_dict(composed):
            del composed["hydra"]
        return settle(composed, choices, given)
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(error_line(error)) from None


def from_hydra(config: DictConfig) -> DictConfig:
    """Return the checked config inside a function that Hydra has called."""
    runtime = HydraConfig.get()
    return settle(config, runtime.runtime.choices, runtime.overrides.task)


def settle(config: DictConfig, choices: Mapping[str, Any], given: Sequence[str]) -> DictConfig:
    """Name the chosen options and the precision in the config and check what spans several keys.

    `given` are the overrides as typed.
    """
    config = config.copy()
    _check_keys(config)
    precision = settled_precision(config.precision.name, device=config.device.name)
    config.precision = Precision[precision]
    config.choices = {
        group.split("@")[-1]: option
        for group, option in choices.items()
        if not group.startswith("hydra/") and isinstance(option, str | None)
    }
    written = typed(given)
    check_recipe(config.choices, written)
    settle_recipe(config, config.choices, written)
    _name_options(config)
    settle_sites(config)
    _settle_batch_size(config, written)
    if isinstance(config.start_from, str):
        config.start_from = start_from_node(config.start_from)
    _check_targets(config.observe.targets)
    _check_tested(config)
    OmegaConf.resolve(config)
    if missing := sorted(OmegaConf.missing_keys(config)):
        raise ValueError(f"{' and '.join(missing)} must be given, as {missing[0]}=VALUE")
    plain = to_dict(config)
    _refuse_classes(plain, "")
    constraints.check(plain)
    return config


def _name_options(config: DictConfig) -> None:
    """Put the name of an option where Hydra has put its class."""
    choices = dict(config.choices)
    for key in (*_OPTIONS, *NORM_KEYS):
        if isinstance(node := config[key], DictConfig):
            config[key] = named(cast("dict[str, Any]", OmegaConf.to_container(node)), key, choices)
    for group in ("probe", "sink"):
        for name, node in config.observe[group].items():
            if isinstance(node, DictConfig):
                plain = cast("dict[str, Any]", OmegaConf.to_container(node))
                key = f"observe.{group}.{name}"
                config.observe[group][name] = {
                    inner: value
                    for inner, value in named(plain, key, {}).items()
                    if inner != OPTION
                }


def _settle_batch_size(config: DictConfig, written: Mapping[str, str]) -> None:
    """Leave one of the two sizes of a batch: the one that is typed, else `max_tokens`."""
    sizes = {key: config[key] for key in ("max_tokens", "batch_size") if config[key] is not None}
    if not sizes:
        raise ValueError("neither batch_size nor max_tokens is set: give exactly one")
    named = [key for key in sizes if key in written]
    if len(named) == 2:
        raise ValueError(
            f"batch_size={config.batch_size} and max_tokens={config.max_tokens} are both set: "
            f"give exactly one (sequences a batch, or tokens a batch)"
        )
    for key in sizes:
        if key != (named or list(sizes))[0]:
            config[key] = None


def _check_targets(targets: object) -> None:
    """Refuse targets that are not lists of numbers by the name of a score."""
    plain = OmegaConf.to_container(targets) if OmegaConf.is_config(targets) else targets
    if plain is None:
        return
    lists = list(plain.values()) if isinstance(plain, dict) else [None]
    if not all(isinstance(v, list) and all(isinstance(x, int | float) for x in v) for v in lists):
        raise ValueError(
            f"observe.targets={plain}: give lists of values by the name of a validation score, as "
            "'observe.targets={mlm_accuracy:[0.25,0.5]}'"
        )


def _check_tested(config: DictConfig) -> None:
    """Refuse to be told two kinds of weights to test."""
    test = OmegaConf.select(config, "validate.test")
    if (average := config.validate.average) and test in (TestedWeights.best, "best"):
        raise ValueError(
            f"validate.test=best and validate.average={average} name different weights to test: "
            "the best, or the mean of the last validations; give one of them"
        )


def _check_keys(config: DictConfig) -> None:
    """Refuse keys that the schema has not: Hydra lets `+key=value` add any."""
    for prefix, schema in {"": RunConfig, **PARTS}.items():
        allowed = [part.name for part in fields(schema)]
        for key in OmegaConf.select(config, prefix) if prefix else config:
            if key not in allowed and key != "hydra":
                name = f"{prefix}.{key}" if prefix else key
                raise ValueError(f"{name} does not exist: there are {', '.join(allowed)}")


def error_line(error: Exception) -> str:
    """Return what an error of Hydra or OmegaConf says, in one line that names what is allowed."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.removesuffix(".yaml").rpartition("/")
        return suggest.no_option(group, option)
    text = str(error) if error.__cause__ is None else f"{error}\n{error.__cause__}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines[0].startswith("Could not override"):
        key = lines[0].split("'")[1]
        if key.startswith("optim.groups"):
            return f"{key} is added to the config by a plus: give +{key}=VALUE"
        return f"{key} does not exist; normlab train --cfg job shows all keys.{suggest.meant(key)}"
    given = lines[0].removeprefix("Error merging override ")
    if given != lines[0] and (rule := suggest.expected(given.partition("=")[0])):
        return f"{given}: {rule}"
    noise = ("full_key:", "object_type=", "reference_type=", "See https", "To append")
    said = "; ".join(dict.fromkeys(line for line in lines if not line.startswith(noise)))
    keys = [line.removeprefix("full_key:").strip() for line in lines if line.startswith("full_key")]
    return f"{keys[0]}: {said}" if keys and keys[0] not in said else said


def to_dict(config: Any) -> dict[str, Any]:
    """Return a config as plain values, enumerations by their names."""
    plain = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def from_dict(plain: Mapping[str, Any], changes: Sequence[str] = ()) -> DictConfig:
    """Return the config that `to_dict` gave, with dotted `key=value` changes.

    Raises ValueError naming a key that is missing, unknown or a whole node, and a value that is not
    plain: a config written by hand must not read this machine's environment.
    """
    _refuse_interpolations(plain, "")
    _refuse_classes(plain, "")
    _check_shape(plain)
    config = OmegaConf.create(dict(plain))
    for change in changes:
        key, found, _ = change.partition("=")
        known = found and key.strip(".") and not key.startswith("choices")
        if not known or (now := OmegaConf.select(config, key, default=MISSING)) == MISSING:
            keys = ", ".join(map(str, config))
            raise ValueError(f"{change!r}: no such key; give key=value of a run's keys: {keys}")
        if isinstance(now, DictConfig):
            raise ValueError(f"{change!r}: {key} cannot be changed whole; give {key}.KEY=value")
    for key, _, value in (change.partition("=") for change in changes):
        if key in _COPIED:
            changes = [*changes, *(f"{copy}={value}" for copy in _copies(plain, key))]
    merged = cast("DictConfig", OmegaConf.merge(config, OmegaConf.from_dotlist(list(changes))))
    _check_tested(merged)
    constraints.check(to_dict(_with_threads_of_here(merged, changes)))
    return merged


def _with_threads_of_here(config: DictConfig, changes: Sequence[str]) -> DictConfig:
    """Leave the number of threads to this machine where the run's own has more cores than it."""
    given = any(change.startswith("observe.threads=") for change in changes)
    threads = config.observe.get("threads")
    if not given and isinstance(threads, int) and threads > MOST_THREADS:
        config.observe.threads = None
    return config


def _check_shape(plain: Mapping[str, Any]) -> None:
    """Refuse the config of a record that lacks a key of the schema, or has one of another type."""
    for name in _NODES:
        if name in plain and not isinstance(plain[name], Mapping):
            raise ValueError(f"the run's config has {plain[name]!r:.60} at {name}, not a node")
    check_complete(plain)
    _check_types(RunConfig, plain, "")
    for name, schema in PARTS.items():
        _check_types(schema, plain[name], f"{name}.")


def check_complete(plain: Mapping[str, Any]) -> None:
    """Raise ValueError naming the keys of the schema that the plain config of a run lacks."""
    keys = [part.name for part in fields(RunConfig) if part.name not in plain]
    keys += [
        f"{name}.{part.name}"
        for name, schema in PARTS.items()
        for part in fields(schema)
        if name in plain and part.name not in plain[name]
    ]
    if keys:
        raise ValueError(
            f"the run's config lacks {', '.join(keys)}: it is damaged, or made by another version; "
            "compose it again by normlab.compose"
        )


def _check_types(schema: type, node: Mapping[str, Any], prefix: str) -> None:
    typed_node = OmegaConf.structured(schema)
    for key in (part.name for part in fields(schema) if part.name not in PARTS):
        try:
            OmegaConf.update(typed_node, key, node[key])
        except Exception as error:  # what OmegaConf raises is of many kinds
            raise ValueError(
                f"the run's config has {node[key]!r:.60} at {prefix}{key}: "
                f"{str(error).splitlines()[0]}"
            ) from None


def _refuse_interpolations(value: Any, key: str) -> None:
    if isinstance(value, str) and "${" in value:
        raise ValueError(f"the run's config has {value!r} at {key}: a record holds plain values")
    if isinstance(value, Mapping):
        for name, item in value.items():
            _refuse_interpolations(item, f"{key}.{name}".lstrip("."))
    if isinstance(value, list):
        for item in value:
            _refuse_interpolations(item, key)


def _refuse_classes(value: Any, key: str) -> None:
    if isinstance(value, Mapping):
        if TARGET in value:
            raise ValueError(
                f"{key}.{TARGET}={value[TARGET]!r:.60}: a run names options, and classes stand in "
                "the files of configs/ alone: give an option"
            )
        for name, item in value.items():
            _refuse_classes(item, f"{key}.{name}".lstrip("."))
    if isinstance(value, list):
        for item in value:
            _refuse_classes(item, key)


def _copies(node: Mapping[str, Any], key: str, prefix: str = "") -> Iterator[str]:
    """Find the dotted paths below the top level that end in `key`, a key of the top level."""
    for name, value in node.items():
        if prefix and name == key:
            yield f"{prefix}{name}"
        if isinstance(value, Mapping) and name not in ("observe", "choices"):
            yield from _copies(value, key, f"{prefix}{name}.")
