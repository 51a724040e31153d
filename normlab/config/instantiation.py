"""Builds the objects of a run from the nodes of its config, after all values are checked.

A node has the name and the values of an option. Its class is looked up in the option's file.
"""

import inspect
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin
from typing import get_type_hints as hints_of

import msgspec

from normlab.config.folders import add_to_import_path, folders, own_line, source_of
from normlab.config.registry import OPTION, TARGET, node_settings, sha256
from normlab.config.schema import REPEATS
from normlab.errors import UserError

_IMPORTED: dict[Path, str] = {}  # the checksum of each of the user's files that was used
_Kind = TypeVar("_Kind")


def instantiate(node: object, key: str, kind: type[_Kind], **live: Any) -> _Kind:
    """Build the object of a node and of all nodes inside it. The object must be a `kind`.

    `key` is the node's path in the config, such as `norm` or `observe.probe.tid`. `live` are
    arguments that no config holds, such as a width. Nothing is built unless all values are valid.
    """
    return cast("_Kind", builder_of(node, key, kind, live)(**live))


def builder_of(
    node: object,
    key: str,
    kind: type,
    live: Collection[str] = (),
    settings: Mapping[str, Any] | None = None,
) -> Callable[..., object]:
    """Return a function that builds the object of a node from the `live` arguments.

    Raise UserError for invalid values. The option's file names the class. `settings` is the file's
    content, if already known.
    """
    settings = settings or node_settings(node, key)
    assert isinstance(node, Mapping), "node_settings refuses anything else"
    target = _target(str(settings.get(TARGET)), key, kind)
    parameters = inspect.signature(target).parameters
    allowed = [name for name in parameters if name not in live]
    hints = hints_of(target.__init__, include_extras=True)
    values: dict[str, Any] = {}
    for name, value in node.items():
        if name in (OPTION, TARGET):
            continue
        if name not in allowed:
            known = f"choose from {', '.join(allowed)}" if allowed else f"{key} has no settings"
            raise UserError(f"{key}.{name} does not exist; {known}")
        values[name] = _value(value, hints.get(name, Any), f"{key}.{name}", settings.get(name))
    for name in allowed:
        if name not in values and parameters[name].default is inspect.Parameter.empty:
            raise UserError(f"{key}.{name} is missing")
    return partial(_build, target, key, values)


def _build(target: type, key: str, arguments: Mapping[str, Any], **live: Any) -> object:
    values = {name: v() if isinstance(v, partial) else v for name, v in arguments.items()}
    try:
        return target(**live, **values)
    except Exception as error:  # the user's code may raise anything
        if target.__module__.startswith("normlab."):
            raise
        text = ", ".join(f"{name}={value!r}" for name, value in values.items())
        with_values = f"rejects {text}" if text else "cannot be built"
        problem = f"{key}: {target.__name__} {with_values}: {error}{_at(error)}"
        raise UserError(problem) from error


def _at(error: Exception) -> str:
    """Return the line of the user's own code that raised an error, or "" for a `UserError`."""
    line = "" if isinstance(error, UserError) else own_line(error)
    return f" ({line})" if line else ""


def class_of(node: object, key: str, kind: type[_Kind]) -> type[_Kind]:
    """Return the class of a node. Raise UserError if it is not a `kind`."""
    return _target(str(node_settings(node, key).get(TARGET)), key, kind)


def _target(name: str, key: str, kind: type) -> type:
    module, _, attribute = name.rpartition(".")
    add_to_import_path()
    try:
        source = source_of(name)
        target = getattr(import_module(module), attribute)
    except Exception as error:  # a module of the user's own may raise anything
        raise UserError(f"{key}: {name!r} cannot be imported: {error}{_at(error)}") from error
    of_user = any(source.is_relative_to(folder) for folder in folders()[1:])
    if of_user and _IMPORTED.setdefault(source, checksum := sha256(source)) != checksum:
        raise UserError(f"{key}: {source} has changed since it was imported; restart Python")
    if not inspect.isclass(target) or not issubclass(target, kind) or inspect.isabstract(target):
        raise UserError(f"{key}: {name!r} is not a concrete subclass of {kind.__name__}")
    return target


def part_of(node: Mapping[str, Any], key: str, kind: type[_Kind]) -> _Kind | None:
    """Build the first of the nodes directly inside a node whose class is a `kind`.

    Return None if there is no such node.
    """
    settings = node_settings(node, key)
    for name, value in node.items():
        content = _content_of_node(value, f"{key}.{name}", settings.get(name))
        if content is not None:
            part = builder_of(value, f"{key}.{name}", object, settings=content)()
            if isinstance(part, kind):
                return part
    return None


def _content_of_node(value: Any, key: str, default: Any) -> Mapping[str, Any] | None:
    """Return the content of the file of a node's option, or None if the value is not a node.

    `default` is the content if the node does not name its option.
    """
    if not isinstance(value, Mapping):
        return None
    content = node_settings(value, key) if OPTION in value or TARGET in value else default
    return content if isinstance(content, Mapping) and TARGET in content else None


def _value(value: Any, hint: Any, key: str, settings: Any) -> Any:
    """Return a builder if the value is a node, otherwise the value converted to its annotation."""
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if (content := _content_of_node(value, key, settings)) is not None:
        for kind in choices:
            if inspect.isclass(kind) and kind not in (str, bool, int, float, type(None)):
                return builder_of(value, key, kind, settings=content)
        raise UserError(f"{key} must be a value, not an option")
    try:
        return msgspec.convert(value, hint)
    except TypeError:  # a type of torch, whose class checks the value itself
        return value
    except msgspec.ValidationError as error:
        words = _words(hint)
        problem = f" must be {', '.join(words)}" if words else f": {error}"
        written = "null" if value is None else repr(value)
        raise UserError(f"{REPEATS.get(key, key)}={written}{problem}") from None


def _words(hint: Any) -> list[str]:
    """Return the words that an annotation allows, also as elements of a list."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    words = [str(w) for kind in kinds if get_origin(kind) is Literal for w in get_args(kind)]
    lists = [kind for kind in kinds if get_origin(kind) in (list, Sequence)]
    words += [word for kind in lists for word in _words(*get_args(kind))]
    return [*(["true", "false"] if words and bool in kinds else []), *words]
