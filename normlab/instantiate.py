"""From a node of the config to the object it names, with every value checked first.

A node is a mapping with `_target_` and the keyword arguments of that class or function. Values come
from the config; live objects (a width, a factory) are handed over by the builder. A wrong key, type
or value is a ValueError that names the full key and what is allowed.
"""

import inspect
import types
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_ALLOWED = ("normlab.", "torch.optim.")


def instantiate(node: Mapping[str, Any], key: str, **live: Any) -> Any:
    """Build the object of a node.

    `key` is the node's path in the config, for messages. Nodes inside it are built first.
    """
    target = _locate(node, key)
    values = {name: value for name, value in node.items() if name != "_target_"}
    values = {
        name: instantiate(value, f"{key}.{name}")
        if isinstance(value, Mapping) and "_target_" in value
        else value
        for name, value in values.items()
    }
    checked = _checked(target, values, key, live)
    if target.__module__.startswith("normlab."):
        return target(**live, **checked)
    try:
        return target(**live, **checked)
    except (TypeError, ValueError) as error:  # what torch finds wrong does not name the key
        raise ValueError(f"{key}: {target.__name__} refuses {_text(checked)}: {error}") from error


def _text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _locate(node: Mapping[str, Any], key: str) -> Any:
    name = node.get("_target_") if isinstance(node, Mapping) else None
    if not isinstance(name, str) or not name.startswith(_ALLOWED):
        raise ValueError(
            f"{key}._target_={name!r} is not allowed: it must start with {' or '.join(_ALLOWED)}"
        )
    module, _, attribute = name.rpartition(".")
    try:
        target = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{key}._target_={name!r} cannot be imported: {error}") from error
    if not callable(target):
        raise ValueError(f"{key}._target_={name!r} is no class or function")
    return target


def _checked(
    target: Any, values: dict[str, Any], key: str, live: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values, whole numbers made floats where a float is wanted."""
    parameters = inspect.signature(target).parameters
    allowed = [name for name in parameters if name not in live]
    for name in values:
        if name not in allowed:
            raise ValueError(f"{key}.{name} does not exist: {key} has {', '.join(allowed)}")
    for name in allowed:
        parameter = parameters[name]
        if name not in values and parameter.default is inspect.Parameter.empty:
            raise ValueError(f"{key}.{name} is missing")
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target)
    return {
        name: _fit(value, hints.get(name, Any), f"{key}.{name}") for name, value in values.items()
    }


def _fit(value: Any, hint: Any, key: str) -> Any:
    """Return `value` if it fits the annotation, else raise ValueError."""
    if not _fits(value, hint):
        raise ValueError(f"{key}={value!r} does not fit: allowed is {_say(hint)}")
    return float(value) if hint is float else value


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (str, bool, type(None)):
        return isinstance(value, hint)
    return True  # anything richer is the target's own business


def _say(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_say(option) for option in get_args(hint))
    return "null" if hint is type(None) else getattr(hint, "__name__", str(hint))
