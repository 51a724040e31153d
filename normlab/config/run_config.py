"""The config of a run: in the types of its schema, and as the plain data of a record.

Nothing here imports torch.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from normlab.config import registry
from normlab.config.error_messages import meant, setting_error
from normlab.config.machine import MOST_THREADS
from normlab.config.ranges import check_values
from normlab.config.registry import TARGET
from normlab.config.schema import OPTIONS, PARTS, REPEATS, RunConfig, key_of, leaves
from normlab.errors import SettingError, UserError


def in_schema(*parts: Any) -> DictConfig:
    """Merge configs into the schema; UserError for an unknown key or a value of the wrong type."""
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
    """Return a node without newer keys at their defaults, and without nodes that this empties."""
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
        why = "it is damaged, or made by another version"
        raise UserError(f"the run's config lacks {', '.join(lacks or ['seed'])}: {why}")
    config = in_schema(plain)
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
        if key == "data_dir" and not has_data_dir(config):
            raise UserError(f"{change!r}: the run's task={config.choices['task']} reads no files")
        copies += [f"{each}={value}" for each in keys_that_repeat(config, key)]
    changed = in_schema(config, OmegaConf.from_dotlist([*copies, *changes]))
    is_change = any(change.startswith("observe.threads=") for change in changes)
    threads = changed.observe.threads
    if isinstance(threads, int) and threads > MOST_THREADS and not is_change:
        changed.observe.threads = None  # the run was made on a machine with more cores
    check_values(to_dict(changed))
    return changed


def check_plain(config: Mapping[str, Any]) -> None:
    """Raise UserError for a class or an interpolation: records hold only plain data."""
    for key, value in leaves(config):
        if TARGET in key.split(".") or (isinstance(value, list) and _names_classes(value)):
            raise UserError(f"{key}={value!r:.60}: a run cannot name classes: give an option")
        if "${" in str(value):
            raise UserError(f"{key}={value!r:.60}: records hold only plain values")


def _names_classes(node: object) -> bool:
    """Return whether a mapping in a list, at any depth, names a class."""
    if isinstance(node, Mapping):
        return TARGET in node or any(map(_names_classes, node.values()))
    return isinstance(node, list) and any(map(_names_classes, node))


def keys_that_repeat(config: DictConfig, key: str) -> list[str]:
    """Return the keys of a config that repeat a key, and do not have a value of their own."""
    value = OmegaConf.select(config, key)
    repeating = [name for name, source in REPEATS.items() if source == key]
    return [x for x in repeating if _has(config, x) and OmegaConf.select(config, x) == value]


def _has(config: DictConfig, key: str) -> bool:
    """Return whether a config has a dotted key, even if it is null."""
    node, _, name = key.rpartition(".")
    parent = OmegaConf.select(config, node)
    return isinstance(parent, DictConfig) and name in parent


def reads_files(task: str) -> bool:
    """Return whether a task has a `data_dir`, as it does if a corpus can be chosen for it."""
    node = dict(registry.option_settings("task", task, "task"))
    config = OmegaConf.create({"data_dir": None, "task": node})
    return has_data_dir(config) or not config.task.keys() & {"corpus", "source"}


def has_data_dir(config: DictConfig) -> bool:
    """Return whether the task of a config has a key that repeats `data_dir`."""
    return any(_has(config, key) for key, source in REPEATS.items() if source == "data_dir")
