"""From a node of the config to the object it names, with everything checked before it is built.

A node is a mapping with `_target_` and the keyword arguments of that class. Values come from the
config; live objects (a width, a factory) are handed over by the builder. Configs come from
strangers too, inside their records: a target must be a class of the kind that its place takes (a
norm for `norm`), defined where it is named. Functions, modules and names that a module has only
imported are refused. A wrong key, type or value is a ValueError that names the full key and what is
allowed.
"""

import inspect
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

_ALLOWED = ("normlab.", "torch.optim.")
# Where classes are now that the configs of older records name elsewhere.
_MOVED = {"normlab.tasks.documents.LengthChange": "normlab.tasks.document_stream.LengthChange"}
_Kind = TypeVar("_Kind")


def instantiate(node: Mapping[str, Any], key: str, kind: type[_Kind], **live: Any) -> _Kind:
    """Build the object of a node, a `kind`, and those of the nodes inside it.

    `key` is the node's path in the config, for messages. Nothing is built unless all of it fits.
    """
    return cast("_Kind", _plan(node, key, kind, live).build(live))


def check(node: object, key: str, kind: type, live: Collection[str] = ()) -> None:
    """Raise ValueError where `instantiate` would refuse a node; `live` names its live objects."""
    _plan(node, key, kind, live)


@dataclass(frozen=True)
class _Plan:
    """A class and its checked values; nodes inside are plans of their own."""

    key: str
    target: type
    values: Mapping[str, Any]

    def build(self, live: Mapping[str, Any]) -> object:
        values = {
            name: value.build({}) if isinstance(value, _Plan) else value
            for name, value in self.values.items()
        }
        if self.target.__module__.startswith("normlab."):
            return self.target(**live, **values)
        try:
            return self.target(**live, **values)
        except (TypeError, ValueError) as error:  # what torch finds wrong does not name the key
            text = ", ".join(f"{name}={value!r}" for name, value in values.items())
            raise ValueError(
                f"{self.key}: {self.target.__name__} refuses {text}: {error}"
            ) from error


def _plan(node: object, key: str, kind: type, live: Collection[str]) -> _Plan:
    target = locate(node, key, kind)
    assert isinstance(node, Mapping), "what is none names no class"
    parameters = inspect.signature(target).parameters
    allowed = [name for name in parameters if name not in live]
    hints = get_type_hints(target.__init__)
    values: dict[str, Any] = {}
    for name, value in node.items():
        if name == "_target_":
            continue
        if name not in allowed:
            raise ValueError(f"{key}.{name} does not exist: {key} has {', '.join(allowed)}")
        values[name] = _value(value, hints.get(name, Any), f"{key}.{name}")
    for name in allowed:
        if name not in values and parameters[name].default is inspect.Parameter.empty:
            raise ValueError(f"{key}.{name} is missing")
    return _Plan(key, target, values)


def _value(value: Any, hint: Any, key: str) -> Any:
    """Return a plan for a node, else the value if it fits the annotation."""
    if not isinstance(value, Mapping) or "_target_" not in value:
        return _fit(value, hint, key)
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds = [option for option in options if inspect.isclass(option) and option not in _PLAIN]
    if not kinds:
        raise ValueError(f"{key} takes a value, not a node with _target_: allowed is {_say(hint)}")
    return _plan(value, key, kinds[0], ())


def locate(node: object, key: str, kind: type[_Kind]) -> type[_Kind]:
    """Return the class that a node names; ValueError unless its place takes it."""
    name = node.get("_target_") if isinstance(node, Mapping) else None
    if not isinstance(name, str) or not name.startswith(_ALLOWED):
        raise ValueError(
            f"{key}._target_={name!r} is not allowed: it must start with {' or '.join(_ALLOWED)}"
        )
    module, _, attribute = _MOVED.get(name, name).rpartition(".")
    try:
        target = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{key}._target_={name!r} cannot be imported: {error}") from error
    if not inspect.isclass(target) or not issubclass(target, kind):
        raise ValueError(
            f"{key}._target_={name!r} is no {kind.__name__}: it must name a class that derives "
            f"from {kind.__module__}.{kind.__name__}"
        )
    own = f"{target.__module__}.".startswith(f"{module}.")  # a package may show what is in it
    if name.startswith("normlab.") and not own:
        raise ValueError(
            f"{key}._target_={name!r} is only imported there: name it {target.__module__}."
            f"{target.__name__}"
        )
    if inspect.isabstract(target):
        raise ValueError(f"{key}._target_={name!r} is abstract: name a class that derives from it")
    return target


_PLAIN = (str, bool, int, float, type(None))


def _fit(value: Any, hint: Any, key: str) -> Any:
    """Return `value` if it fits the annotation, else raise ValueError."""
    if not _fits(value, hint):
        raise ValueError(f"{key}={value!r} does not fit: allowed is {_say(hint)}")
    whole = isinstance(value, int) and not isinstance(value, bool)
    numbers = (float,) if hint is float else get_args(hint)
    return float(value) if whole and float in numbers and int not in numbers else value


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
    if inspect.isclass(hint) and hint.__module__.startswith("normlab."):
        return isinstance(value, hint)
    return True  # anything richer is the target's own business


def _say(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_say(option) for option in get_args(hint))
    return "null" if hint is type(None) else getattr(hint, "__name__", str(hint))
