"""Reads YAML files. Errors name the file, and a key that occurs twice is refused."""

import re
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import yaml

from normlab.errors import UserError

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is about ten times as fast
_TEXT_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def _check_keys(node: Any) -> None:
    """Raise UserError for a key that occurs twice, because YAML would silently use the last."""
    keys = [str(key.value) for key, _ in node.value]
    if twice := [key for key, count in Counter(keys).items() if count > 1]:
        raise UserError(f"{twice[0]} occurs twice")


class _EachOnce(_LOADER):
    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        _check_keys(node)
        return super().construct_mapping(node, deep)


class _TextEachOnce(_TEXT_LOADER):
    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        _check_keys(node)
        return super().construct_mapping(node, deep)


class _Yaml12Loader(_EachOnce):
    """Reads numbers as YAML 1.2 does: `1e-5` is a number, `010` is ten, and `no` is a word."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def construct_yaml_int(self, node: Any) -> int:
        return int(node.value)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
):
    _Yaml12Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), [*_first]
    )
_Yaml12Loader.add_constructor("tag:yaml.org,2002:int", _Yaml12Loader.construct_yaml_int)


def read_yaml12(path: Path) -> Any:
    """Parse a YAML file as Hydra does: by YAML 1.2's rules for numbers and words."""
    return _load(path, _Yaml12Loader)


def read_yaml(path: Path, *, as_text: bool = False) -> Any:
    """Parse a YAML file. Raise UserError with the file's name if it is not YAML or repeats a key.

    With `as_text`, every value is the text in the file: YAML would read `010` as 8, `no` as false
    and `2024_11_28` as a number.
    """
    return _load(path, _TextEachOnce if as_text else _EachOnce)


def _load(path: Path, loader: Any) -> Any:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def parse_config(text: str) -> Any:
    """Parse a run's `config.yaml`.

    Raise YAMLError for aliases, which can expand to more than fits into memory.
    """
    for token in yaml.scan(text, Loader=_LOADER):
        if isinstance(token, yaml.AliasToken):
            line = token.start_mark.line + 1
            raise yaml.YAMLError(
                f"line {line} has an alias, which is not allowed in the config of a run"
            )
    return yaml.load(text, Loader=_LOADER)
