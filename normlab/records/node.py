"""Reading a record key by key, for a message that says what is wrong where."""

from __future__ import annotations

from typing import Any, Literal, get_args

from normlab.records.canonical import number

Status = Literal["finished", "diverged", "interrupted", "failed"]
Column = list[float | None]


class DamagedError(Exception):
    """Says what is wrong with a record, without the file and what to do."""


class Node:
    """One JSON object of a record, whose errors name the full key."""

    def __init__(self, content: Any, *, path: str = "") -> None:
        self.path = path
        if not isinstance(content, dict):
            raise self._damaged("", f"expected an object, found {content!r:.60}")
        self.content: dict[str, Any] = content

    def _damaged(self, key: str, problem: str) -> DamagedError:
        name = ".".join(part for part in (self.path, key) if part) or "the file"
        return DamagedError(f"damaged record, {name}: {problem}")

    def _get(self, key: str, expected: str, *types: type) -> Any:
        if key not in self.content:
            raise self._damaged(key, "missing")
        value = self.content[key]
        if type(value) not in types:  # exact: a bool is an int to isinstance
            raise self._damaged(key, f"expected {expected}, found {value!r:.60}")
        return value

    def node(self, key: str) -> Node:
        """Return an object inside."""
        path = f"{self.path}.{key}" if self.path else key
        return Node(self._get(key, "an object", dict), path=path)

    def mapping(self, key: str) -> dict[str, Any]:
        """Return a plain object."""
        return self._get(key, "an object", dict)

    def text(self, key: str) -> str:
        """Return a string."""
        return self._get(key, "a string", str)

    def optional_text(self, key: str) -> str | None:
        """Return a string, or None where it is null."""
        return self._get(key, "a string or null", str, type(None))

    def integer(self, key: str) -> int:
        """Return a whole number."""
        return self._get(key, "a whole number", int)

    def boolean(self, key: str) -> bool:
        """Return true or false."""
        return self._get(key, "true or false", bool)

    def real(self, key: str) -> float:
        """Return a number, which may be written as the name of one that is not finite."""
        value = number(self._get(key, "a number", int, float, str))
        if value is None:
            raise self._damaged(key, f"expected a number, found {self.content[key]!r:.60}")
        return value

    def columns(self, key: str) -> dict[str, Column]:
        """Read named columns of numbers and gaps."""
        table = self.node(key)
        return {name: table.column(name) for name in table.content}

    def column(self, key: str) -> Column:
        """Read numbers and gaps."""
        items = self._get(key, "a list", list)
        values = [number(item) for item in items]
        for item, value in zip(items, values, strict=True):
            if value is None and item is not None:
                raise self._damaged(key, f"expected numbers and nulls, found {item!r:.60}")
        return values

    def status(self, key: str) -> Status:
        """Return how a run ended."""
        value = self.text(key)
        for allowed in get_args(Status):
            if value == allowed:
                return allowed
        raise self._damaged(key, f"{value!r} is not one of {', '.join(get_args(Status))}")
