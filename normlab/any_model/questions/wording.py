"""Phrases shared by several questions: how much an output changes, and what was not examined."""

import math
from collections.abc import Sequence

from normlab.findings.relative_change import NonFinite, percent

NON_FINITE: dict[NonFinite, str] = {
    "became NaN": "becomes NaN",
    "was NaN": "is NaN before the change, but a number after it",
    "became infinite": "becomes infinite",
    "was infinite": "is infinite before the change, but finite after it",
    "was 0": "is 0 before the change, but not after it (a change relative to 0 has no size)",
}


def size(change: float) -> str:
    """Format a relative change: in percent if it is large, otherwise like `3e-7`."""
    if change in (0, 1e-3):  # a limit, which is exact
        return f"{100 * change:g} %" if change else "0"
    return percent(change) if change >= 1e-4 else f"{change:.0e}".replace("e-0", "e-")


def by_how_much(change: float, non_finite: NonFinite = "") -> str:
    """Describe how much something changes or, if the change is not finite, why it is not."""
    if non_finite and math.isinf(change):
        return NON_FINITE[non_finite]
    return f"changes by {size(change)}"


def unexamined(paths: Sequence[str]) -> str:
    """List norms that were not examined because they are in scripted modules, or return ""."""
    if not paths:
        return ""
    more = f" and {len(paths) - 3} more" * (len(paths) > 3)
    shown = ", ".join(path or "the model" for path in paths[:3]) + more
    return f"not examined (inside a scripted module): {shown}"


def listed(words: Sequence[str]) -> str:
    """Join words as in `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
