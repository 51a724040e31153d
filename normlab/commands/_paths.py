"""Paths as arguments of commands."""

from argparse import ArgumentTypeError
from pathlib import Path


def as_path(text: str) -> Path:
    """Return the path that a text names; the empty one, which would be the folder of now, is none.

    As the type of an argument: `--publish "$RESULTS"` of a variable that is not set is an error.
    """
    if not text:
        raise ArgumentTypeError("expected a path, found nothing; is a variable not set?")
    return Path(text)
