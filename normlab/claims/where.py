"""A selection of runs by their settings, such as `{norm: bn, placement: pre}` in a claim's file."""

import json
from collections.abc import Mapping

Where = Mapping[str, object]
"""Config groups with their options, and dotted config keys with their values."""


def words_of(where: Where) -> list[str]:
    """Return the settings of a selection, such as `["norm=bn", "placement=pre"]`."""
    return [f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in where.items()]


def where_text(where: Where) -> str:
    """Return the settings of a selection in one line, such as `norm=bn placement=pre`."""
    return " ".join(words_of(where))
