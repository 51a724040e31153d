"""Building the object that a node of the config names, once all of the node is checked.

A node is a mapping with an `option` and the values of that option. The class is looked up in
`configs/`: a config names options and values, so that a stranger's record cannot name code. A node
inside another, such as `task.valid_search`, needs no option where the outer option's file says what
it is. A wrong key, type or value is a ValueError that names the full key and what is allowed.
"""

import inspect
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from normlab.registry import OPTION, TARGET, settings_of

_Kind = TypeVar("_Kind")


def instantiate(node: object, key: str, kind: type[_Kind], **live: Any) -> _Kind:
    """Build the object of a node, a `kind`, and those of the nodes inside it.

    `key` is the node's path in the config, such as `norm` or `observe.probe.tid`; `live` are
    objects that no config holds, such as a width. Nothing is built unless all of it fits.
    """
    return cast("_Kind", _plan(node, key, kind, live, settings_of(node, key)).build(live))


def check(node: object, key: str, kind: type, live: Collection[str] = ()) -> None:
    """Raise ValueError where `instantiate` would refuse a node; `live` names its live objects."""
    _plan(node, key, kind, live, settings_of(node, key))


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


def _plan(
    node: object, key: str, kind: type, live: Collection[str], settings: Mapping[str, Any]
) -> _Plan:
    """Check a node against its class; `settings` are what the option's file says of it."""
    target = _target(settings, key, kind)
    assert isinstance(node, Mapping), "what is none has no settings"
    parameters = inspect.signature(target).parameters
    allowed = [name for name in parameters if name not in live]
    hints = get_type_hints(target.__init__)
    values: dict[str, Any] = {}
    for name, value in node.items():
        if name in (OPTION, TARGET):
            continue
        if name not in allowed:
            raise ValueError(f"{key}.{name} does not exist: {key} has {', '.join(allowed)}")
        values[name] = _value(value, hints.get(name, Any), f"{key}.{name}", settings.get(name))
    for name in allowed:
        if name not in values and parameters[name].default is inspect.Parameter.empty:
            raise ValueError(f"{key}.{name} is missing")
    return _Plan(key, target, values)


def _value(value: Any, hint: Any, key: str, settings: Any) -> Any:
    """Return a plan for a node, else the value if it fits the annotation."""
    if not isinstance(value, Mapping):
        return _fit(value, hint, key)
    own = settings_of(value, key) if OPTION in value or TARGET in value else settings
    if not isinstance(own, Mapping) or TARGET not in own:
        return _fit(value, hint, key)
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds = [option for option in options if inspect.isclass(option) and option not in _PLAIN]
    if not kinds:
        raise ValueError(f"{key} takes a value, not an option: allowed is {_say(hint)}")
    return _plan(value, key, kinds[0], (), own)


def locate(node: object, key: str, kind: type[_Kind]) -> type[_Kind]:
    """Return the class of a node's option; ValueError unless its place takes it."""
    return _target(settings_of(node, key), key, kind)


def _target(settings: Mapping[str, Any], key: str, kind: type[_Kind]) -> type[_Kind]:
    name = str(settings.get(TARGET))
    module, _, attribute = name.rpartition(".")
    try:
        target = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{key}: {name!r} cannot be imported: {error}") from error
    if not inspect.isclass(target) or not issubclass(target, kind):
        raise ValueError(
            f"{key}: {name!r} is no {kind.__name__}: an option here names a class that derives "
            f"from {kind.__module__}.{kind.__name__}"
        )
    if inspect.isabstract(target):
        raise ValueError(f"{key}: {name!r} is abstract: name a class that derives from it")
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
