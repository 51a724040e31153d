"""The time that a queue may take: `--budget 2.5h`, and until when that is."""

import argparse
import math
import re
import time

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")


def read_budget(text: str) -> float:
    """Return the seconds of `90m`, `2.5h` or `45s`; ArgumentTypeError for anything else."""
    found = _TEXT.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text}: expected a time, such as 90m or 2.5h")
    return float(found[1]) * _UNITS[found[2]]


def deadline(seconds: float | None) -> float:
    """Return when a budget that begins now is spent, as `time.monotonic` counts."""
    return math.inf if seconds is None else time.monotonic() + seconds
