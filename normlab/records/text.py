"""Text from anywhere, made fit for a terminal, a line of a table or a cell of a sheet.

Names, reasons and signatures come from records, and records from strangers: a control character
could clear a terminal or hide a line, a line end could add a row to a table, and a leading `=`
makes a formula of a cell.
"""

from __future__ import annotations

import re

# Not printed: all controls but tab and line end, and marks that turn the direction of a line.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)
_BREAKS = re.compile(r"\s+")
_MARKUP = re.compile(r"<(?=[A-Za-z/!?])")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def printable(text: str) -> str:
    r"""Return text with control characters written out, as `\x1b`; line ends stay."""
    if text.isascii() and text.isprintable():
        return text
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """Return text as `printable` does, in one line."""
    if text.isascii() and text.isprintable():
        return text
    return printable(_BREAKS.sub(" ", text)) if not text.isprintable() else text


def in_prose(text: str) -> str:
    """Return text for a line of Markdown, in which it opens no tag."""
    return _MARKUP.sub("&lt;", one_line(text))


def in_markdown(text: str) -> str:
    """Return text for a cell of Markdown, in which it opens no tag and no cell."""
    return in_prose(text).replace("|", r"\|")


def in_sheet(value: object) -> object:
    """Return a value for a cell of CSV: a text that a program would compute is quoted."""
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if len(text) > 1 and text.startswith(_FORMULA) else text
