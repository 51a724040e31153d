"""The config of a run in the types of its schema, and as the plain data of a record.

Nothing here imports torch.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from normlab.config import ranges, registry
from normlab.config.error_messages import error_line, meant
from normlab.config.machine import MOST_THREADS
from normlab.config.overrides import typed
from normlab.config.registry import TARGET
from normlab.config.schema import LATER, NORM_KEYS, OPTIONS, PARTS, RunConfig, leaves
from normlab.errors import UserError

# Top-level keys that composition copies into the task's nodes, under the same name.
_COPIED = ("batch_size", "max_tokens", "batching", "data_dir")
_TASK_NODES = ("task", "task.corpus", "task.source")  # the nodes they are copied to


def in_schema(*parts: Any) -> DictConfig:
    """Merge configs into the schema; UserError for an unknown key or a value of the wrong type."""
    try:
        return cast("DictConfig", OmegaConf.merge(OmegaConf.structured(RunConfig), *parts))
    except Exception as error:  # OmegaConf raises errors of many kinds
        raise UserError(f"the run's config: {error_line(error)}") from None


def to_dict(config: Any) -> dict[str, Any]:
    """Return a config as plain values, with enumerations as their names.

    Newer keys at their defaults are left out, so that older runs keep their fingerprints.
    """
    plain = cast("dict[str, Any]", OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    for key, default in LATER.items():
        node, *names = key.split(".")
        norms = [*map(plain.get, NORM_KEYS), *(plain.get("sites") or {}).values()]
        for each in norms if node == "norm" else [plain.get(node)]:
            _drop(each, names, default)
    return plain


def _drop(node: Any, names: Sequence[str], default: object) -> None:
    """Remove a key that is at its default from a node, and a node that this leaves empty."""
    name, *below = names
    if not isinstance(node, dict) or name not in node:
        return
    if below:
        _drop(node[name], below, default)
    if node[name] == ({} if below else default):
        del node[name]


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
        copied = nodes_with(config, key) if key in _COPIED else []
        if key == "data_dir" and not copied:
            raise UserError(f"{change!r}: the run's task={config.choices['task']} reads no files")
        copies += [f"{task}.{key}={value}" for task in copied]
    changed = in_schema(config, OmegaConf.from_dotlist([*changes, *copies]))
    threads, is_change = changed.observe.threads, "observe.threads" in typed(changes)
    if isinstance(threads, int) and threads > MOST_THREADS and not is_change:
        changed.observe.threads = None  # the run was made on a machine with more cores
    ranges.check(to_dict(changed))
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


def nodes_with(config: DictConfig, key: str) -> list[str]:
    """Return the nodes of the task that have a key."""
    return [node for node in _TASK_NODES if key in (OmegaConf.select(config, node) or {})]


def reads_files(task: str) -> bool:
    """Return whether a task has a `data_dir`, as it does if a corpus can be chosen for it."""
    node = OmegaConf.create({"task": dict(registry.option_settings("task", task, "task"))})
    return bool(nodes_with(node, "data_dir")) or not node.task.keys() & {"corpus", "source"}
