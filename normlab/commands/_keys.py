"""Every key of a run: those of `configs/config.yaml` with their comments, and the options' own."""

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, get_type_hints

from normlab.constraints import CONSTRAINTS, constraint_of
from normlab.registry import CONFIG_DIR

_LINE = re.compile(r"(?P<indent> *)(?P<name>\w+):(?: +(?P<value>[^#]*?))?(?: +# (?P<said>.*))?")
_NOT_KEYS = ("defaults", "hydra")


@dataclass(frozen=True)
class Key:
    """A dotted key: its default (empty for a key of options), what it may be, what it is."""

    name: str
    default: str
    allowed: str
    description: str


def keys() -> list[Key]:
    """Return the keys of the schema in the order of the config file, then those of options."""
    own = list(_of_the_schema())
    named = {key.name for key in own}
    options = [
        Key(name, "", _allowed(name, None), constraint.unit)
        for name, constraint in CONSTRAINTS.items()
        if name not in named
    ]
    return own + options


def _of_the_schema() -> Iterator[Key]:
    from normlab.config import CONFIG_NAME
    from normlab.schema import RunConfig

    top, node = "", RunConfig
    for line in (CONFIG_DIR / f"{CONFIG_NAME}.yaml").read_text("utf-8").splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        if not found["indent"]:
            top = found["name"]
        if top in _NOT_KEYS:
            continue
        hints = get_type_hints(RunConfig)
        if found["indent"]:
            name, node = f"{top}.{found['name']}", hints[top]
        elif dataclasses.is_dataclass(hints[top]):
            continue
        else:
            name, node = top, RunConfig
        hint = get_type_hints(node)[name.rpartition(".")[2]]
        yield Key(name, found["value"] or "", _allowed(name, hint), found["said"] or _unit(name))


def _allowed(name: str, hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(member.name for member in hint)
    constraint = constraint_of(name)
    if constraint is not None:
        return constraint.rule.removeprefix("must be ").replace("must not be", "not")
    return "true, false" if hint is bool else ""


def _unit(name: str) -> str:
    constraint = constraint_of(name)
    return "" if constraint is None else constraint.unit
