"""Strict reading of a claim's file: every error names the file, the key and what to write there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from normlab.yaml_file import read_yaml

Where = Mapping[str, object]
"""What runs are chosen by: options of groups and dotted keys of the config, with their values."""


class Node:
    """A mapping of a file that knows which of its keys were read.

    `studies` is the folder of the study files, of which a claim names some.
    """

    def __init__(self, content: Any, origin: str, path: str = "", *, studies: Path) -> None:
        self.origin, self.path, self.studies = origin, path, studies
        self._read: set[str] = set()
        if not isinstance(content, dict):
            raise self.wrong("", f"expected keys and values, found {content!r:.60}")
        self.content: Mapping[str, Any] = content

    def wrong(self, key: str, problem: str) -> ValueError:
        """Return an error that names the file and the key in full."""
        name = ".".join(part for part in (self.path, key) if part) or "the file"
        return ValueError(f"{self.origin}: {name}: {problem}")

    def finish(self) -> None:
        """Refuse keys that nobody asked for."""
        for key in self.content:
            if key not in self._read:
                known = ", ".join(sorted(self._read))
                raise self.wrong(str(key), f"no such key here; allowed: {known}")

    def has(self, key: str) -> bool:
        """Tell whether a key is given, which counts as reading it."""
        self._read.add(key)
        return key in self.content

    def text(self, key: str) -> str:
        """Return a text that is not empty."""
        value = self._get(key, "a text", str)
        if not value.strip():
            raise self.wrong(key, "the text is empty")
        return value

    def optional_text(self, key: str, *, required: bool = False) -> str | None:
        """Return a text; None where it is null, or left out unless `required`."""
        if not self.has(key) and not required:
            return None
        return self._get(key, "a text or null", str, type(None))

    def integer(self, key: str) -> int:
        """Return a whole number."""
        return self._get(key, "a whole number", int)

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number; the default where it is left out."""
        if default is not None and not self.has(key):
            return default
        return float(self._get(key, "a number", int, float))

    def flag(self, key: str) -> bool:
        """Return true or false; false where it is left out."""
        return self.has(key) and self._get(key, "true or false", bool)

    def choice(self, key: str, allowed: Sequence[str]) -> Any:
        """Return one of some texts."""
        value = self._get(key, "a text", str)
        if value not in allowed:
            raise self.wrong(key, f"{value!r} is not one of {', '.join(allowed)}")
        return value

    def texts(
        self, key: str, *, allowed: Sequence[str] | None = None, required: bool = True
    ) -> tuple[str, ...]:
        """Return a list of different texts; one text alone stands for a list of it."""
        if not required and not self.has(key):
            return ()
        value = self._get(key, "a text or a list of texts", str, list)
        items: list[Any] = [value] if isinstance(value, str) else value
        if not items:
            raise self.wrong(key, "the list is empty")
        for item in items:
            if not isinstance(item, str) or (allowed is not None and item not in allowed):
                raise self.wrong(key, f"{item!r} is not one of {', '.join(allowed or ('a text',))}")
            if items.count(item) > 1:
                raise self.wrong(key, f"{item} is given twice")
        return tuple(items)

    def where(self, key: str, *, required: bool = False) -> dict[str, object]:
        """Return what runs are chosen by: names and plain values."""
        if not required and not self.has(key):
            return {}
        chosen = self._get(key, "names and values, such as {norm: ln}", dict)
        if required and not chosen:
            raise self.wrong(key, "names nothing; give at least one key, such as {norm: ln}")
        for name, value in chosen.items():
            if not isinstance(name, str) or isinstance(value, dict | list):
                raise self.wrong(f"{key}.{name}", f"expected one value, found {value!r:.60}")
        return dict(chosen)

    def node(self, key: str) -> "Node":
        """Return a mapping below this one."""
        content = self._get(key, "keys and values", dict)
        return Node(content, self.origin, self._below(key), studies=self.studies)

    def nodes(self, key: str, *, required: bool = False) -> list["Node"]:
        """Return a list of mappings below this one."""
        if not required and not self.has(key):
            return []
        items = self._get(key, "a list", list)
        if required and not items:
            raise self.wrong(key, "the list is empty")
        base = self._below(key)
        return [
            Node(item, self.origin, f"{base}[{n}]", studies=self.studies)
            for n, item in enumerate(items)
        ]

    def study(self) -> tuple[str, str]:
        """Return the keys `study` and `scale`, which must name a study's file and a scale of it."""
        name, scale = self.text("study"), self.text("scale")
        path = self.studies / f"{name}.yaml"
        if not path.is_file():
            known = ", ".join(sorted(each.stem for each in self.studies.glob("*.yaml")))
            raise self.wrong("study", f"no file {path}; write it, or name one of {known}")
        content = read_yaml(path)
        scales = content.get("scales") if isinstance(content, dict) else None
        known = list(scales) if isinstance(scales, dict) else []
        if scale not in known:
            raise self.wrong(
                "scale", f"{path} has no scale {scale!r}: add it, or name one of {', '.join(known)}"
            )
        return name, scale

    def _below(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _get(self, key: str, expected: str, *types: type) -> Any:
        self._read.add(key)
        if key not in self.content:
            raise self.wrong(key, f"missing; give {expected}")
        value = self.content[key]
        if type(value) not in types:  # exact: a bool is an int to isinstance
            raise self.wrong(key, f"expected {expected}, found {value!r:.60}")
        return value
