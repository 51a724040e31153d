"""Reading files that may come from anywhere: a file that is none, or is too large, is named.

A path may be a folder, a pipe that never answers or a device without end, and JSON may nest without
end or hold numbers of hundreds of digits. All of that is a `ValueError` in one line; what the
system refuses is an `OSError` as always.
"""

from __future__ import annotations

import json
import os
import re
import stat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 2**30
"""More than any text that a run leaves."""
DEEPEST = 100
"""Levels of JSON that anything here nests, many times over."""
MOST_DIGITS = 100
_LONG_NUMBER = re.compile(rb"[:\[,]\s*-?\d{%d,}" % (MOST_DIGITS + 1))
_DIGITS = bytes(48 if 48 <= code < 58 else 32 for code in range(256))
_ZEROS = b"0" * (MOST_DIGITS + 1)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def read_file(path: Path | str, *, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file, or of one that a link leads to.

    Raises OSError where the system refuses, and ValueError naming a path that is no file, or one of
    more than `most` bytes.
    """
    # Without blocking: a pipe is opened at once, and found to be one.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path}: {_kind(status.st_mode)}, not a file; remove it")
        if status.st_size > most:
            raise ValueError(
                f"{path}: {status.st_size} bytes, more than the {most} that it can have; remove it"
            )
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def check_is_file(path: Path | str) -> None:
    """Raise as `read_file` does where a path is no regular file."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path}: {_kind(mode)}, not a file; remove it")


def _kind(mode: int) -> str:
    names = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return names.get(stat.S_IFMT(mode), "a device")


def read_json(path: Path | str) -> Any:
    """Return what a JSON file holds; raises OSError and ValueError as `read_file` and `from_json`.

    The errors of its content do not name it: the caller says what to do about the file.
    """
    return from_json(read_file(path))


def from_json(text: bytes | str) -> Any:
    """Decode JSON; ValueError where it is none, nests too deep, or has a number too long."""
    content = text.encode() if isinstance(text, str) else text
    if (problem := unreadable(content)) is not None:
        raise ValueError(problem)
    return json.loads(content)


def unreadable(text: bytes) -> str | None:
    """Say what keeps JSON text from being used, before it is decoded; None for nothing.

    Quick for text that is fine: a list of ten thousand runs is to answer at once.
    """
    brackets = text.translate(None, _NO_BRACKETS)
    for _ in range(DEEPEST):
        fewer = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if len(fewer) == len(brackets):
            break
        brackets = fewer
    if brackets and _is_deep(text):
        return f"nests more than {DEEPEST} levels deep"
    if _ZEROS in text.translate(_DIGITS) and (found := _LONG_NUMBER.search(text)) is not None:
        line = text.count(b"\n", 0, found.end()) + 1
        return f"has a number of more than {MOST_DIGITS} digits at line {line}"
    return None


def _is_deep(text: bytes) -> bool:
    """Tell whether brackets nest too deep outside of strings."""
    depth = 0
    in_string = escaped = False
    for code in text:
        if in_string:
            in_string = escaped or code != 0x22
            escaped = code == 0x5C and not escaped
        elif code == 0x22:
            in_string = True
        elif code in b"[{":
            depth += 1
            if depth > DEEPEST:
                return True
        elif code in b"]}":
            depth -= 1
    return False
