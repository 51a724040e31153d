"""Converts the content of a YAML file to a class. Errors name the file, the key and the value.

The key is found by converting the values of a mapping or list one by one, because msgspec reports
the place of an error only in the text of its message.
"""

import dataclasses
from collections.abc import Iterator
from collections.abc import Mapping as AbstractMapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from normlab.errors import UserError

_T = TypeVar("_T")
Text = Annotated[str, msgspec.Meta(min_length=1)]
"""Text that is not empty."""


class WrongField(ValueError):
    """Raised in `__post_init__`, with the key and the problem, if a value conflicts with others."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key, self.problem = key, problem


class OneOfKinds:
    """Base class of a value that may have several forms in a file.

    Each form is a subclass that is also a Struct.
    """

    @classmethod
    def kind_of(cls, node: Any) -> type[Any]:
        """Return the class of a value's form. Raises `WrongField` if it has none of the forms."""
        raise NotImplementedError


class _Culprit(NamedTuple):
    """A value that cannot be converted, with its keys from the top and the problem."""

    keys: tuple[str | int, ...]
    problem: str


def convert(content: Any, kind: type[_T], path: Path, key: str = "", *, strict: bool = True) -> _T:
    """Convert a mapping to `kind`.

    `path` is the file that contains it, and `key` is its key in the file, or "" for the whole file.
    Raise UserError with file, key and value if a value does not fit. Unless `strict`, a number or a
    boolean may be written as text.
    """
    if not isinstance(content, dict):
        raise wrong_value(path, key, f"expected keys and values, found {content!r:.60}")
    try:
        return _converted(content, kind, strict=strict)
    except msgspec.ValidationError:
        culprit = _culprit(content, kind, strict=strict)
    assert culprit is not None
    below = "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in culprit.keys)
    raise wrong_value(path, f"{key}{below}".lstrip("."), culprit.problem)


def wrong_value(path: Path, key: str, problem: str) -> UserError:
    """Return the error for a key of a file. An empty key means the whole file."""
    return UserError(f"{path}: {key or 'the file'}: {problem}")


def _culprit(node: Any, kind: Any, *, strict: bool) -> _Culprit | None:
    """Return the innermost value that does not fit `kind`, or None if all values fit."""
    try:
        _converted(node, kind, strict=strict)
    except msgspec.ValidationError as error:
        if not isinstance(error.__cause__, WrongField):
            kind = _kind_of(kind, node)
        for name, value, type_ in _below(node, kind):
            if (culprit := _culprit(value, type_, strict=strict)) is not None:
                return _Culprit((name, *culprit.keys), culprit.problem)
        cause, problem = error.__cause__, str(error)
    else:
        return None
    if isinstance(cause, WrongField):
        return _Culprit((cause.key,) if cause.key else (), cause.problem)
    known = getattr(_plain(kind), "__struct_encode_fields__", None)
    if isinstance(node, dict) and known is not None:
        if unknown := [name for name in node if name not in known]:
            problem = f"`{unknown[0]}` does not exist; choose from {', '.join(known)}"
        return _Culprit((), problem)
    return _Culprit((), f"{problem}, found {node!r:.60}")


def _converted(node: Any, kind: Any, *, strict: bool) -> Any:
    """Convert a value.

    A value that may have several forms is converted to the class of its form.
    """

    def of_its_form(kind: type[Any], node: Any) -> Any:
        form = _kind_of(kind, node)
        return node if form is kind else _converted(node, form, strict=strict)

    return msgspec.convert(node, kind, strict=strict, dec_hook=of_its_form)


def _kind_of(kind: Any, node: Any) -> Any:
    """Return the class of a value that may have several forms. Return other types unchanged."""
    if isinstance(kind, type) and issubclass(kind, OneOfKinds) and not _takes_mappings(kind):
        return kind.kind_of(node)
    return kind


def _below(node: Any, kind: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """Yield the key, value and type of each direct element of a mapping or list."""
    kind = _plain(kind)
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        for each in arguments:
            if isinstance(node, dict) == _takes_mappings(each):
                yield from _below(node, each)
    elif isinstance(node, dict) and _takes_mappings(kind):
        if arguments:
            yield from ((str(name), value, arguments[1]) for name, value in node.items())
        elif origin not in (dict, AbstractMapping):
            hints = get_type_hints(kind, include_extras=True)
            encoded = getattr(kind, "__struct_encode_fields__", tuple(hints))
            names = dict(zip(encoded, getattr(kind, "__struct_fields__", encoded), strict=True))
            yield from ((x, node[x], hints[name]) for x, name in names.items() if x in node)
    elif isinstance(node, list) and arguments and origin in (list, tuple):
        yield from ((number, value, arguments[0]) for number, value in enumerate(node))


def _takes_mappings(kind: Any) -> bool:
    """Return whether values of a type are written as mappings."""
    kind = _plain(kind)
    origin = get_origin(kind) or kind
    return (
        origin in (dict, AbstractMapping)
        or dataclasses.is_dataclass(origin)
        or hasattr(origin, "__struct_fields__")
    )


def _plain(kind: Any) -> Any:
    """Return a type without its constraints."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind
