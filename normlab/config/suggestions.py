"""Suggestions for unknown words."""

from collections.abc import Sequence
from difflib import get_close_matches

_MOST = 3  # maximum number of suggestions
_MOST_LISTED = 12  # maximum number of options in an error


def did_you_mean(word: str, known: Sequence[str], *, before: str = "") -> str:
    """Return ` Did you mean ...?` with the most similar words, or "" if none is similar.

    Each word gets the prefix `before`.
    """
    near = get_close_matches(word.lower(), known, n=_MOST, cutoff=0.5)
    return suggestion([f"{before}{each}" for each in near])


def suggestion(names: Sequence[str]) -> str:
    """Return ` Did you mean ...?` with some words, or "" if there are none."""
    return f" Did you mean {' or '.join(names)}?" if names else ""


def choice_of(known: Sequence[str], listing: str, near: str) -> str:
    """Return the end of an error about an unknown word: similar words (`near`), then all words.

    If there are too many words, the text names the command `listing`, which prints them.
    """
    if len(known) > _MOST_LISTED:
        return f"{'.' if near else ';'}{near} `{listing}` shows all"
    names = ", ".join(known) or "none"
    return f".{near} Choose from {names}" if near else f"; choose from {names}"
