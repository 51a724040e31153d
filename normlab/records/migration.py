"""Records of older formats: one step from each version to the next.

A step is given the content of a record by its keys, and returns that of the next version. None
touches `config`, whose hash names the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

VERSION = 2
_NAME = "normlab.record"
FORMAT = f"{_NAME}/{VERSION}"
Content = Mapping[str, Any]


class NewerFormatError(ValueError):
    """The record is of a version that does not exist yet here."""


def _empty_parts_are_written(content: Content) -> Content:
    """From 1 to 2: what a run has none of is written empty, and was left out, or not known yet.

    A record of version 1 without `weights` has tested those best by `validate.select_by`.
    """
    return {"last_steps": {}, "weights": {}, "floors": {}, "milestones": {}, **content}


STEPS: Mapping[int, Callable[[Content], Content]] = {1: _empty_parts_are_written}
"""What leads from a version to the next."""


def migrated(content: Content) -> Content:
    """Return the content of a record in today's format.

    Raises ValueError for a format that is none of `STEPS`, of which `NewerFormatError` is one.
    """
    version = version_of(content["format"])
    while version < VERSION:
        content = STEPS[version](content)
        version += 1
    return {**content, "format": FORMAT}


def version_of(name: str) -> int:
    """Return the version that a format's name ends with."""
    found = re.fullmatch(rf"{re.escape(_NAME)}/(\d{{1,9}})", name)
    version = int(found[1]) if found else 0
    if version > VERSION:
        raise NewerFormatError(
            f"format is {name!r} and this version reads up to {FORMAT!r}: it was written by a "
            "newer normlab; update normlab to read it"
        )
    if version not in STEPS and version != VERSION:
        raise ValueError(f"format is {name!r:.60}, and not one of {_NAME}/1 to {FORMAT}")
    return version
