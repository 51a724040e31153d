"""Notes below tables, and the legend, which prints their brief forms on at most three lines."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from normlab.records.labels import one_line
from normlab.terminal import print_prose, wrapped

_LEGEND = 3  # lines of notes below a table


class About(Enum):
    """The subject of a note. Routine notes are collapsed on pages, because readers know them."""

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


@dataclass(frozen=True)
class Note:
    """A note below a table. `brief` is its short form, or "" if the legend can omit it.

    `in_terminal` replaces the text in a terminal, whose tables have no bold, for example.
    """

    text: str
    brief: str = ""
    about: About = About.OTHER
    in_terminal: str = ""

    @classmethod
    def short(cls, text: str) -> "Note":
        """Return a note that is short enough to be its own brief form."""
        return cls(text, text)


def print_legend(notes: Sequence[Note], *, whole: bool) -> None:
    """Print the notes below tables: in full if `whole` is set, otherwise on at most three lines.

    The short form mentions `--notes` if that would print more.
    """
    if whole:
        for text in dict.fromkeys(one_line(note.in_terminal or note.text) for note in notes):
            print_prose(text)
        return
    briefs = [*dict.fromkeys(one_line(note.brief) for note in notes if note.brief)]
    shortened = any(note.brief != note.text for note in notes)
    for count in range(len(briefs), -1, -1):  # notes that do not fit are left out
        more = ["all notes: --notes"] if shortened or count < len(briefs) else []
        lines = wrapped("; ".join([*briefs[:count], *more]), shutil.get_terminal_size().columns)
        if len(lines) <= _LEGEND:
            print("\n".join(filter(None, lines)), end="\n" if lines else "")
            return
