"""The name of a row in a study's file, and its words: `bn+ln in the encoder, padding counted`.

A name may begin with norms, which are options of the group `norm` joined by `+`. Other words follow
after a space, and settings after commas. Only this file knows how a name is read.
"""

from typing import NamedTuple

from normlab.config.registry import option_names


class RowWords(NamedTuple):
    """The words of a row's name: its norms, the words after them, and its settings."""

    norms: tuple[str, ...]
    words: str
    settings: tuple[str, ...]


def row_words(name: str) -> RowWords:
    """Split a row's name into its words. There are no norms if it begins with another word."""
    start, *settings = name.split(", ")
    word, space, rest = start.partition(" ")
    norms = word.split("+")
    if {*norms} <= {*option_names("norm")}:
        return RowWords(tuple(norms), space + rest, tuple(settings))
    return RowWords((), start, tuple(settings))
