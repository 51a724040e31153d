"""A point of a study's grid, such as `batch_size=8 placement=pre`: a value for each axis.

Records, rates and pages contain points as text. Only this file knows how the text is made.
"""

import re
from collections.abc import Mapping

_AXIS = re.compile(r"(?:^| )([^\s=]+)=")
_AT = " @ "


def point_text(values: Mapping[str, str]) -> str:
    """Return a point as text, from the value of each axis, or "" if there are no axes."""
    return " ".join(f"{axis}={value}" for axis, value in values.items())


def point_values(point: str) -> dict[str, str]:
    """Return the value of each axis at a point. A value may contain spaces, an axis may not."""
    parts = _AXIS.split(point)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def place_text(row: str, point: str) -> str:
    """Return a row at a point as text, such as `bn @ batch_size=8`."""
    return f"{row}{_AT}{point}" if point else row


def split_place(place: str) -> tuple[str, str]:
    """Return the row and the point of a text such as `bn @ batch_size=8`."""
    row, _, point = place.partition(_AT)
    return row, point
