"""Notes below tables: each in full, and in brief for a legend of three lines."""


class Note(str):
    """A note below a table; `brief` says it in a few words, or is empty if it can wait."""

    brief: str

    def __new__(cls, text: str, brief: str = "") -> "Note":
        note = super().__new__(cls, text)
        note.brief = brief
        return note


def in_brief(note: str) -> str:
    """Return a note's brief form; that of a plain text is the text."""
    return note.brief if isinstance(note, Note) else note
