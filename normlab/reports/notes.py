"""Notes below tables, each in full and in a brief form for a legend of three lines."""

from enum import Enum


class About(Enum):
    """What a note is about. Routine notes are folded on pages, because readers know them."""

    DATA = "data"
    TESTED = "tested"
    VALUES = "values"
    BOLD = "bold"
    CODE = "code"
    ARTICLE = "article"
    SIGNATURE = "signature"
    BASELINE = "baseline"
    PAIRS = "pairs"
    SEEDS = "seeds"
    NOT_CLEAR = "not clear"
    NOT_ALIKE = "not alike"
    OTHER = "other"

    @property
    def is_routine(self) -> bool:
        return self not in (About.SEEDS, About.NOT_CLEAR, About.NOT_ALIKE, About.OTHER)


class Note(str):
    """A note below a table; `brief` is its short form, empty if the legend can omit it."""

    brief: str
    about: About

    def __new__(cls, text: str, brief: str = "", about: About = About.OTHER) -> "Note":
        note = super().__new__(cls, text)
        note.brief, note.about = brief, about
        return note


def in_brief(note: str) -> str:
    """Return a note's brief form; that of a plain text is the text."""
    return note.brief if isinstance(note, Note) else note
