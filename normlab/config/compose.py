"""Composing the config of a run from `configs/`, and reading the config of a record.

A group such as `norm` is an option with its values in a run's config; only the option's file
names its class. A recipe is the last entry of the defaults list: it chooses model and schedule and
sets values of the task. Which recipe a run has by default depends on its task and scale, which
Hydra cannot express, so it is added to the overrides before Hydra reads them. No torch here.
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
from normlab.config.registry import CONFIG_DIR, OPTION, TARGET, named
from normlab.config.schema import PARTS, Precision, RunConfig, TestedWeights
from normlab.config.sites import NORM_KEYS, settle_sites
from normlab.config.suggest import check_single, typed
from normlab.machine import MOST_THREADS, settled_precision

CONFIG_NAME = "config"
# Keys of the top level that composition copies into the nodes that read them, under the same name.
_COPIED = ("batch_size", "max_tokens", "batching", "data_dir")
_OPTIONS = ("task", "model", "placement", "optim", "schedule")
_NODES = ("norm", *_OPTIONS, *PARTS)

# The recipe of a task without a scale, and at scale=gpu. The other scales replace recipes.
_RECIPES: dict[str | None, dict[str, str]] = {
    None: {"iwslt": "rbn"},
    "gpu": {"mlm": "bert", **dict.fromkeys(("iwslt", "multi30k", "toy", "translation"), "rbn")},
}
_SMALL = ("cpu", "smoke")
_NO_RECIPE = "none"
_TASK = "toy"  # the default of configs/config.yaml
_BY_PLACEMENT = ("optim.lr", "schedule.warmup")  # in a recipe, as `lr: {pre: 1.5e-3, post: 5e-4}`
# The options' momentum is torch's; the code of a recipe may have another.
_MOMENTUM = {("rbn", "bn"): 0.05}


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


def with_recipe(overrides: Sequence[str]) -> list[str]:
    """Return the arguments with the default recipe of their task, unless they name a recipe.

    Several tasks or scales in a sweep have no default recipe in common; their runs have one each.
    """
    given = typed(overrides)
    recipe = _default_recipe(given.get("task", _TASK), given.get("scale"))
    if recipe is None or "recipe" in given:
        return list(overrides)
    # Next to the task or scale: a flag of Hydra must stay together with its value.
    place = next(n for n, text in enumerate(overrides) if text.startswith(("task=", "scale=")))
    return [*overrides[:place], f"recipe={recipe}", *overrides[place:]]


def _default_recipe(task: str, scale: str | None) -> str | None:
    return _RECIPES.get(None if scale == "null" else scale, {}).get(task)


def settle(config: DictConfig, choices: Mapping[str, Any], given: Sequence[str]) -> DictConfig:
    """Name the chosen options in the config, settle what depends on several keys, and check it all.

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
    _settle_recipe(config, config.choices, written)
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
    _check_plain(plain, "")
    constraints.check(plain)
    return config


def _check_keys(config: DictConfig) -> None:
    """Refuse keys that are not in the schema: Hydra lets `+key=value` add any."""
    for prefix, schema in {"": RunConfig, **PARTS}.items():
        allowed = [part.name for part in fields(schema)]
        for key in OmegaConf.select(config, prefix) if prefix else config:
            if key not in allowed and key != "hydra":
                name = f"{prefix}.{key}" if prefix else key
                raise ValueError(f"{name} does not exist: there are {', '.join(allowed)}")


def _settle_recipe(config: DictConfig, choices: Any, written: Mapping[str, str]) -> None:
    """Take what the recipe gives for the run's placement, and its momentum, unless it is typed."""
    recipe, scale, task, placement = map(choices.get, ("recipe", "scale", "task", "placement"))
    if recipe not in (None, _NO_RECIPE) and scale in _SMALL:
        raise ValueError(
            f"recipe={recipe} and scale={scale} are both set, and each is a whole recipe: leave "
            f"one out; a short run of a recipe is recipe={recipe} budget.steps=100"
        )
    expected = _default_recipe(task, scale)
    if recipe != expected and "recipe" not in written:
        raise ValueError(
            f"task={task} has recipe={expected} by default, which a sweep over tasks or scales "
            f"leaves out: give recipe={expected}, or recipe={_NO_RECIPE}"
        )
    for key in _BY_PLACEMENT:
        values = OmegaConf.select(config, key)
        if not isinstance(values, DictConfig):
            continue
        if placement not in values:
            raise ValueError(
                f"recipe={recipe} has no {key} for placement={placement}, only for "
                f"{' and '.join(map(str, values))}: give placement={next(iter(values))}, another "
                f"recipe, or {key}=VALUE"
            )
        OmegaConf.update(config, key, values[placement])
    for key in NORM_KEYS:
        momentum = _MOMENTUM.get((str(recipe), str(choices.get(key))))
        if momentum is not None and f"{key}.momentum" not in written:
            config[key].momentum = momentum


def _name_options(config: DictConfig) -> None:
    """Put the name of an option where Hydra has put its class."""
    choices = dict(config.choices)
    for key in (*_OPTIONS, *NORM_KEYS):
        if isinstance(node := config[key], DictConfig):
            config[key] = named(cast("dict[str, Any]", OmegaConf.to_container(node)), key, choices)
    for group in ("probe", "sink"):  # their options are named by their keys
        for name, node in config.observe[group].items():
            if isinstance(node, DictConfig):
                plain = cast("dict[str, Any]", OmegaConf.to_container(node))
                found = named(plain, f"observe.{group}.{name}", {})
                config.observe[group][name] = {key: found[key] for key in found if key != OPTION}


def _settle_batch_size(config: DictConfig, written: Mapping[str, str]) -> None:
    """Keep one of the two sizes of a batch: the one that is typed, else `max_tokens`."""
    sizes = [key for key in ("max_tokens", "batch_size") if config[key] is not None]
    if not sizes:
        raise ValueError("neither batch_size nor max_tokens is set: give exactly one")
    said = [key for key in sizes if key in written]
    if len(said) == 2:
        raise ValueError(
            f"batch_size={config.batch_size} and max_tokens={config.max_tokens} are both set: "
            f"give exactly one (sequences a batch, or tokens a batch)"
        )
    kept = (said or sizes)[0]
    for key in sizes:
        if key != kept:
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
    test = OmegaConf.select(config, "validate.test")
    if (average := config.validate.average) and test in (TestedWeights.best, "best"):
        raise ValueError(
            f"validate.test=best and validate.average={average} name different weights to test: "
            "the best, or the mean of the last validations; give one of them"
        )


def _check_plain(value: object, key: str) -> None:
    """Refuse a class and an interpolation: a config is data, whoever wrote it."""
    if isinstance(value, str) and "${" in value:
        raise ValueError(f"the run's config has {value!r} at {key}: a record holds plain values")
    if isinstance(value, Mapping):
        if TARGET in value:
            raise ValueError(
                f"{key}.{TARGET}={value[TARGET]!r:.60}: a run names options, and classes stand in "
                "the files of configs/ alone: give an option"
            )
        for name, item in value.items():
            _check_plain(item, f"{key}.{name}".lstrip("."))
    for item in value if isinstance(value, list) else ():
        _check_plain(item, key)


def error_line(error: Exception) -> str:
    """Return an error of Hydra or OmegaConf as one line that names the key and what is allowed."""
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
    _check_plain(plain, "")
    _check_shape(plain)
    config = OmegaConf.create(dict(plain))
    copies: list[str] = []
    for change in changes:
        key, equals, value = change.partition("=")
        known = equals and key.strip(".") and not key.startswith("choices")
        if not known or (now := OmegaConf.select(config, key, default=MISSING)) == MISSING:
            keys = ", ".join(map(str, config))
            raise ValueError(f"{change!r}: no such key; give key=value of a run's keys: {keys}")
        if isinstance(now, DictConfig):
            raise ValueError(f"{change!r}: {key} cannot be changed whole; give {key}.KEY=value")
        if key in _COPIED:
            copies += (f"{copy}={value}" for copy in _copies(plain, key))
    changed = OmegaConf.from_dotlist([*changes, *copies])
    merged = cast("DictConfig", OmegaConf.merge(config, changed))
    _check_tested(merged)
    threads, given = merged.observe.threads, "observe.threads" in typed(changes)
    if isinstance(threads, int) and threads > MOST_THREADS and not given:
        merged.observe.threads = None  # the run's own machine has more cores
    constraints.check(to_dict(merged))
    return merged


def _check_shape(plain: Mapping[str, Any]) -> None:
    """Refuse the config of a record that lacks a key of the schema, or has one of another type."""
    for name in _NODES:
        if name in plain and not isinstance(plain[name], Mapping):
            raise ValueError(f"the run's config has {plain[name]!r:.60} at {name}, not a node")
    check_complete(plain)
    for prefix, schema in {"": RunConfig, **PARTS}.items():
        structured, node = OmegaConf.structured(schema), plain[prefix] if prefix else plain
        for key in (part.name for part in fields(schema) if part.name not in PARTS):
            try:
                OmegaConf.update(structured, key, node[key])
            except Exception as error:  # OmegaConf raises errors of many kinds
                raise ValueError(
                    f"the run's config has {node[key]!r:.60} at {f'{prefix}.{key}'.lstrip('.')}: "
                    f"{str(error).splitlines()[0]}"
                ) from None


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


def _copies(node: Mapping[str, Any], key: str, prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths below the top level that end in a key of the top level."""
    for name, value in node.items():
        if prefix and name == key:
            yield f"{prefix}{name}"
        if isinstance(value, Mapping) and name not in ("observe", "choices"):
            yield from _copies(value, key, f"{prefix}{name}.")
