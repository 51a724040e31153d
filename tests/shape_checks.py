"""Check shapes and types of the package's functions while tests run, at a small cost.

jaxtyping's import hook wraps every function twice, nested functions again at each call, and binds
each call's arguments, which took half of the time of many tests. Here jaxtyping checks only
functions whose hints name shapes, beartype alone checks the others, and nested functions are not
checked.
"""

import dataclasses
import functools
import inspect
import types
from typing import Any, get_args, get_type_hints

import beartype
import jaxtyping

_with_shapes = jaxtyping.jaxtyped


def install() -> None:
    """Check the functions of `normlab`, which must not have been imported yet."""
    jaxtyping.jaxtyped = _decorator  # the hook uses this name for its decorator
    jaxtyping.install_import_hook("normlab", "beartype.beartype")


def _decorator(*, typechecker):
    return functools.partial(_checked, typechecker)


def _checked(typechecker, function):
    if inspect.isclass(function):
        if dataclasses.is_dataclass(function) and "__init__" in vars(function):
            function.__init__ = _checked(typechecker, function.__init__)
        return function
    if "<locals>" in function.__qualname__ and function.__name__ != "__init__":
        return function
    hints = {name: _hint(function, name) for name in getattr(function, "__annotations__", {})}
    if not hints or hasattr(function, "__wrapped__"):
        return function
    # Beartype looks up `list` in the function's module, which may have a submodule of that name.
    package = "__path__" in function.__globals__
    if package or any(map(_names_shapes, hints.values())):
        return _with_shapes(function, typechecker=typechecker)
    if inspect.isgeneratorfunction(function):
        hints.pop("return", None)  # otherwise every yielded value is checked
    twin = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    twin.__kwdefaults__, twin.__qualname__ = function.__kwdefaults__, function.__qualname__
    twin.__module__, twin.__annotations__ = function.__module__, hints
    return functools.wraps(function)(beartype.beartype(twin))


def _hint(function, name):
    """Return a hint as a type; `Any` if it uses a name imported only for type checking."""

    def value(): ...

    value.__annotations__ = {"value": function.__annotations__[name]}
    try:
        return get_type_hints(value, function.__globals__, include_extras=True)["value"]
    except Exception:  # as jaxtyping does
        return Any


def _names_shapes(hint) -> bool:
    if inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(map(_names_shapes, get_args(hint)))
