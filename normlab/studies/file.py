"""Reading the file of a study: nodes, texts, numbers and overrides, each checked.

No torch, no Hydra.
"""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from normlab.yaml_file import read_yaml


class StudyFile:
    """The nodes of one file, checked as they are read; errors name the file and the key."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def file(self) -> object:
        """Return what the file holds; ValueError where it is not YAML."""
        return read_yaml(self.path)

    def wrong(self, key: str, problem: str) -> ValueError:
        """Return the error for a key."""
        return ValueError(f"{self.path}: {key}: {problem}")

    def node(
        self, value: object, key: str, keys: Sequence[str], may: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return a mapping that has these keys, perhaps those of `may`, and no other."""
        node = self.mapping(value, key)
        for name in keys:
            if name not in node:
                raise self.wrong(key, f"{name} is missing")
        self.among(node, (*keys, *may), key)
        return node

    def mapping(self, value: object, key: str) -> dict[str, Any]:
        """Return keys and values, the keys as text."""
        if not isinstance(value, dict):
            raise self.wrong(key, f"expected keys and values, found {value!r:.60}")
        return {self.text(name, key): item for name, item in value.items()}

    def text(self, value: object, key: str) -> str:
        """Return text; a number or a truth value as the command line writes it."""
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float) or value == "":
            raise self.wrong(key, f"expected text, found {value!r:.60}")
        return str(value)

    def texts(self, value: object, key: str) -> tuple[str, ...]:
        """Return a list of different texts, at least one."""
        if not isinstance(value, list) or not value:
            raise self.wrong(key, f"expected a list, found {value!r:.60}")
        texts = tuple(self.text(item, key) for item in value)
        for text in texts:
            if texts.count(text) > 1:
                raise self.wrong(key, f"{text} is given twice")
        return texts

    def numbers(self, value: object, key: str) -> tuple[int, ...]:
        """Return a list of different whole numbers, at least one."""
        texts = self.texts(value, key)
        for text in texts:
            if not text.isdecimal():
                raise self.wrong(key, f"expected whole numbers, found {text}")
        return tuple(int(text) for text in texts)

    def overrides(self, value: object, key: str) -> tuple[str, ...]:
        """Return a list of `key=value`, which may be empty."""
        texts = () if value == [] else self.texts(value, key)
        for text in texts:
            if not text.partition("=")[1]:
                raise self.wrong(key, f"expected key=value, found {text}")
        return texts

    def among(self, names: Iterable[str], allowed: Collection[str], key: str) -> None:
        """Refuse a name that is not allowed, naming those that are."""
        for name in names:
            if name not in allowed:
                raise self.wrong(key, f"no {name!r}: there are {', '.join(allowed)}")
