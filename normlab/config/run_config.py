"""Converts a run's config to the types of its schema or to plain data, and checks its values.

Each value must be within the range of its key, and no two values may conflict. This is checked as
soon as a run is composed. The annotations of an option's own parameters, such as
`Annotated[int, Meta(gt=0)]`, are checked later, when its class is imported. Nothing here imports
torch.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from normlab.config import registry
from normlab.config.error_messages import meant, not_allowed, setting_error
from normlab.config.machine import MOST_THREADS
from normlab.config.registry import OPTION, TARGET, option_of
from normlab.config.schema import OPTIONS, PARTS, REPEATS, STACK_NORMS, RunConfig, key_of, leaves
from normlab.config.value_range import PATH, TEXT
from normlab.errors import SettingError, UserError
from normlab.formats import CONTROL


def in_schema(*parts: Any) -> DictConfig:
    """Merge configs into the schema.

    Raise UserError for an unknown key or a value of a wrong type.
    """
    try:
        return cast("DictConfig", OmegaConf.merge(OmegaConf.structured(RunConfig), *parts))
    except Exception as error:  # OmegaConf raises errors of many kinds
        problem = setting_error(error)
        raise SettingError(f"the run's config: {problem}", *problem.keys) from None


def to_dict(config: Any) -> dict[str, Any]:
    """Return a config as plain values, with enumerations as their names.

    Newer keys at their defaults are left out, so that older runs keep their fingerprints.
    """
    plain = cast("dict[str, Any]", OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    return _without_newer(plain, "")


def _without_newer(node: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return a node without newer keys at their defaults, and without nodes that become empty."""
    rest: dict[str, Any] = {}
    for name, value in node.items():
        facts = key_of(f"{prefix}{name}")
        if isinstance(value, dict) and value:
            value = _without_newer(value, f"{prefix}{name}.")
            if not value:
                continue
        elif facts.newer and value == facts.default:
            continue
        rest[name] = value
    return rest


def from_dict(plain: Mapping[str, Any], changes: Sequence[str] = ()) -> DictConfig:
    """Rebuild a config from a `to_dict` result, applying dotted `key=value` changes.

    Keys newer than the run get their defaults. Raises UserError for a missing node, an unknown
    change, a class, or an interpolation: a config from elsewhere must not read the environment.
    """
    check_plain(plain)
    nodes = ("choices", "norm", *OPTIONS, *PARTS)
    lacks = [name for name in nodes if not isinstance(plain.get(name), Mapping)]
    if lacks or "seed" not in plain:
        why = "it is damaged or from another version"
        raise UserError(f"the run's config lacks {', '.join(lacks or ['seed'])}: {why}")
    config = in_schema(plain)
    copies: list[str] = []
    for change in changes:
        key, equals, value = change.partition("=")
        node, _, last = key.rpartition(".")
        parent = OmegaConf.select(config, node) if node else config
        if not (equals and isinstance(parent, DictConfig) and last in parent) or node == "choices":
            of_option = f" with {node}={config.choices[node]}" if node in config.choices else ""
            raise UserError(f"{change!r}: a run{of_option} has no such key.{meant(key)}")
        if isinstance(parent[last], DictConfig):
            raise UserError(f"{change!r}: {key} cannot be replaced; set {key}.KEY=value")
        if key == "data_dir" and not has_data_dir(config):
            raise UserError(f"{change!r}: the run's task={config.choices['task']} reads no files")
        copies += [f"{each}={value}" for each in keys_that_repeat(config, key)]
    changed = in_schema(config, OmegaConf.from_dotlist([*copies, *changes]))
    is_change = any(change.startswith("observe.threads=") for change in changes)
    threads = changed.observe.threads
    if isinstance(threads, int) and threads > MOST_THREADS and not is_change:
        changed.observe.threads = None  # the run may be from a machine with more cores
    check_values(to_dict(changed))
    return changed


def check_acting(changes: Sequence[str], acting: Collection[str]) -> None:
    """Raise UserError for a change of a key that a trained run does not read.

    `acting` are the keys that it reads, and nodes of which it reads all keys.
    """
    for change in changes:
        key = change.partition("=")[0]
        source = REPEATS.get(key, key)
        if not {source, source.partition(".")[0]} & {*acting}:
            raise UserError(
                f"{change!r}: {key} has no effect on a trained run; omit it, or train another run"
            )


def check_plain(config: Mapping[str, Any]) -> None:
    """Raise UserError for a class or an interpolation, because records hold only plain data."""
    for key, value in leaves(config):
        if TARGET in key.split(".") or (isinstance(value, list) and _names_classes(value)):
            raise UserError(
                f"{key}={value!r:.60}: run configs may not name classes; use an option's name"
            )
        if "${" in str(value):
            raise UserError(f"{key}={value!r:.60}: records hold only plain values")


def _names_classes(node: object) -> bool:
    """Return whether a mapping in a list, at any depth, names a class."""
    if isinstance(node, Mapping):
        return TARGET in node or any(map(_names_classes, node.values()))
    return isinstance(node, list) and any(map(_names_classes, node))


def keys_that_repeat(config: DictConfig, key: str) -> list[str]:
    """Return the keys of a config that repeat another key and still have its value."""
    value = OmegaConf.select(config, key)
    repeating = [name for name, source in REPEATS.items() if source == key]
    return [x for x in repeating if _has(config, x) and OmegaConf.select(config, x) == value]


def _has(config: DictConfig, key: str) -> bool:
    """Return whether a config has a dotted key, even if its value is null."""
    node, _, name = key.rpartition(".")
    parent = OmegaConf.select(config, node)
    return isinstance(parent, DictConfig) and name in parent


def reads_files(task: str, corpus: str | None) -> bool:
    """Return whether a task reads files from `data_dir`, given its option of `task/corpus`."""
    node = dict(registry.option_settings("task", task, "task"))
    if corpus is not None:
        node["corpus"] = registry.option_settings("task/corpus", corpus, "task/corpus")
    return reads_data_dir(OmegaConf.create({"data_dir": "FOLDER", "task": node}))


def reads_data_dir(config: DictConfig) -> bool:
    """Return whether the task of a config reads the `data_dir` that the config sets."""
    return bool(keys_that_repeat(config, "data_dir"))


def has_data_dir(config: DictConfig) -> bool:
    """Return whether the task of a config has a key that repeats `data_dir`."""
    return any(_has(config, key) for key, source in REPEATS.items() if source == "data_dir")


# Checks of values ---------------------------------------------------------------------------------


def check_values(config: Mapping[str, Any]) -> None:
    """Raise SettingError, with the key, for the first invalid value of a plain config."""
    nodes = {name: value for name, value in config.items() if name != "choices"}
    values = leaves(nodes, is_value=_is_value)
    # Top-level keys first, because the user did not set a task's copy of `batch_size`.
    for key, value in sorted(values, key=lambda leaf: leaf[0].count(".")):
        if problem := _problem(key, value):
            plain = isinstance(value, str) and value.isprintable()
            raise SettingError(f"{key}={value if plain else repr(value):.60} {problem}", key)
    for rule in _CONFLICTS:
        for conflict in rule(config):
            raise conflict


def _is_value(key: str, node: Mapping[str, Any]) -> bool:
    """Return whether a mapping is a wrong value, such as one where a number is expected."""
    limits = key_of(key).range
    return OPTION not in node and limits is not None and not limits.has(node)


def _problem(key: str, value: object) -> str | None:
    limits = key_of(key).range
    if limits is not None and value is not None and not limits.has(value):
        return not_allowed(key, value, limits)
    if limits not in (None, TEXT, PATH):
        return None
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str) and CONTROL.search(item):
            return "has characters that cannot be printed"
        if isinstance(item, float) and not math.isfinite(item):
            return "must be a finite number"
    return None


# Conflicts between values that are valid individually --------------------------------------------


def _get(config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key such as `model.dim`, or None if the node or key does not exist."""
    part, _, name = key.partition(".")
    return node.get(name) if isinstance(node := config.get(part), Mapping) else None


def _budget_without_limit(config: Mapping[str, Any]) -> Iterator[SettingError]:
    if (budget := config.get("budget")) and all(limit is None for limit in budget.values()):
        problem = "budget: set at least one of budget.steps, epochs, tokens, minutes"
        yield SettingError(problem, *(f"budget.{name}" for name in budget))


def _width_not_divisible(config: Mapping[str, Any]) -> Iterator[SettingError]:
    heads, dim = _get(config, "model.num_heads"), _get(config, "model.dim")
    if isinstance(heads, int) and isinstance(dim, int) and dim % heads:
        problem = f"model.num_heads={heads} does not divide the width {dim}"
        yield SettingError(problem, "model.num_heads", "model.dim")


def _norms_misplaced(config: Mapping[str, Any]) -> Iterator[SettingError]:
    """Yield an error for each norm of a run that does not fit its placement (`_norms_`)."""
    choices = config.get("choices") or {}
    placement, run = choices.get("placement"), choices.get("norm")
    option = option_of("placement", str(placement))
    norms = {site: choices.get(site) or run for site in ("norm", *STACK_NORMS)}
    match option.norms if option else "any":
        case "none":
            for site, norm in norms.items():
                if norm not in (None, "none"):
                    key = site if site == "norm" else f"norm@{site}"
                    has_none = f"placement={placement} has no norms, but {key}={norm} asks for one"
                    yield SettingError(f"{has_none}; set {key}=none", "placement", key)
        case "required" if "none" in norms.values():
            grows = f"placement={placement} makes the residual stream grow in each layer"
            problem = "but norm=none does not shrink it; set norm=ln, or placement=pre"
            yield SettingError(f"{grows}, {problem}", "placement", "norm")


def _schedule_without_end(config: Mapping[str, Any]) -> Iterator[SettingError]:
    schedule = config.get("schedule") or {}
    if "total" in schedule and _get(config, "schedule.total") is None:
        at_known_step = f"schedule={schedule.get('option')} ends at a known step"
        problem = "but budget.steps is not set; set steps=N, or another schedule"
        keys = ("schedule", "budget.steps", "budget.epochs")
        yield SettingError(f"{at_known_step}, {problem}", *keys)


def _warmup_beyond_end(config: Mapping[str, Any]) -> Iterator[SettingError]:
    warmup, total = _get(config, "schedule.warmup"), _get(config, "schedule.total")
    if isinstance(warmup, int) and isinstance(total, int) and total <= warmup:
        problem = f"schedule.total={total} must be above schedule.warmup={warmup}"
        yield SettingError(problem, "schedule.total", "schedule.warmup", "budget.steps")


def _targets_without_scores(config: Mapping[str, Any]) -> Iterator[SettingError]:
    if not isinstance(targets := _get(config, "observe.targets"), Mapping | None):
        example = "'observe.targets={mlm_accuracy:[0.25,0.5]}'"
        yield SettingError(
            f"observe.targets={targets!r:.60} is invalid; set {example}", "observe.targets"
        )


def _buckets_not_ascending(config: Mapping[str, Any]) -> Iterator[SettingError]:
    buckets = _get(config, "task.length_buckets")
    if buckets and buckets != sorted(set(buckets)):
        problem = f"task.length_buckets={buckets} must be ascending"
        yield SettingError(problem, "task.length_buckets")


def _best_and_average(config: Mapping[str, Any]) -> Iterator[SettingError]:
    average = _get(config, "validate.average")
    if average and _get(config, "validate.test") == "best":
        problem = (
            f"validate.test=best and validate.average={average} cannot be combined; set one of them"
        )
        yield SettingError(problem, "validate.test", "validate.average")


_CONFLICTS = (
    _budget_without_limit,
    _width_not_divisible,
    _norms_misplaced,
    _schedule_without_end,
    _warmup_beyond_end,
    _targets_without_scores,
    _buckets_not_ascending,
    _best_and_average,
)
"""The rules, in the order in which they are checked. Each rule yields an error per conflict."""
