"""Configs of older versions: which keys of today's schema they lack."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import Field, fields, is_dataclass
from enum import Enum
from typing import Any

from omegaconf import MISSING

from normlab.config.schema import RunConfig


def check_complete(config: Mapping[str, Any]) -> None:
    """Raise ValueError naming the keys that a plain config lacks, each with its default."""
    missing = [f"{key}={value}" for key, value in _missing(RunConfig, config, "")]
    if missing:
        raise ValueError(
            f"the config lacks {len(missing)} key{'s' * (len(missing) > 1)} that this version has: "
            f"{', '.join(missing)} (the default). Compose it anew by normlab.compose, or set what "
            "is missing"
        )


def _missing(schema: type, node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield dotted keys of a schema that a node has not, and how their defaults are written."""
    for part in fields(schema):
        default = _default(part)
        if part.name in node and is_dataclass(default):
            yield from _missing(type(default), node[part.name], f"{prefix}{part.name}.")
        elif part.name not in node:
            yield f"{prefix}{part.name}", _written(default)


def _default(part: Field[Any]) -> Any:
    made = part.default_factory
    return part.default if made is NO_DEFAULT else made()


def _written(value: Any) -> str:
    if value is None:
        return "null"
    if value == MISSING:
        return "(none: choose an option)"
    if is_dataclass(value) or isinstance(value, dict):
        return "{...}"
    return value.name if isinstance(value, Enum) else str(value)
