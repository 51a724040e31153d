"""Files that are written whole or not at all, and files from anywhere, read within limits.

A reader sees the former file or the new one, never a part: the content goes to a temporary name in
the same folder (a rename does not cross file systems), is forced to the disk and then renamed.

What is read may be a folder, a pipe that never answers or a device without end, and JSON may nest
without end or hold numbers of hundreds of digits. All of that is a `ValueError` in one line; what
the system refuses is an `OSError`.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import secrets
import stat
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any, Literal, overload

_SUFFIX = ".partial"
MOST_BYTES = 2**30
"""More than any text that a run leaves."""
DEEPEST = 100
"""Levels of JSON, far more than any file here has."""
MOST_DIGITS = 100
_LONG_NUMBER = re.compile(rb"[:\[,]\s*-?\d{%d,}" % (MOST_DIGITS + 1))
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_DIGITS = bytes(48 if 48 <= code < 58 else 32 for code in range(256))
_ZEROS = b"0" * (MOST_DIGITS + 1)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


@overload
def atomic_write(
    path: Path | str, mode: Literal["w"] = "w"
) -> contextlib.AbstractContextManager[IO[str]]: ...
@overload
def atomic_write(
    path: Path | str, mode: Literal["wb"]
) -> contextlib.AbstractContextManager[IO[bytes]]: ...
@contextlib.contextmanager
def atomic_write(path: Path | str, mode: Literal["w", "wb"] = "w") -> Generator[IO[Any]]:
    """Open a file for writing that replaces `path` only when the block ends well.

    Text is UTF-8 with LF line ends. On any exception, a full disk and Ctrl-C included, the
    temporary file is removed and the old file stays; an `OSError` names `path`.
    """
    path = Path(path)
    remove_leftovers(path.parent)
    # Each writer has a name of its own: two processes that save the same file do not mix bytes.
    writer = f"{platform.node()}.{os.getpid()}-{secrets.token_hex(4)}"
    temporary = path.with_name(f".{path.name}.{writer}{_SUFFIX}")
    text: dict[str, Any] = {} if mode == "wb" else {"encoding": "utf-8", "newline": "\n"}
    try:
        with open(temporary, mode.replace("w", "x"), **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        # Writing to a full disk names no file at all.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk; not every system can, and files are whole anyway."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_leftovers(folder: Path | str) -> None:
    """Remove temporary files in `folder` whose writers on this machine were killed."""
    for path in Path(folder).glob(f".*.{platform.node()}.*{_SUFFIX}"):
        process = path.name.removesuffix(_SUFFIX).rpartition(".")[2].partition("-")[0]
        if process.isdecimal() and not _is_running(int(process)):
            with contextlib.suppress(OSError):
                path.unlink()


def _is_running(process: int) -> bool:
    if os.name == "nt":  # where asking would end the process
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextlib.contextmanager
def only_writer(path: Path) -> Generator[None]:
    """Wait to be the only process that changes a file, and create its folder.

    For what is read, changed and written back: of two at once, one change would be lost.
    """
    from filelock import FileLock  # only few commands need it

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        yield


def read_file(path: Path | str, *, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file, or of one that a link leads to.

    Raises OSError where the system refuses, and ValueError naming a path that is no file, or one of
    more than `most` bytes.
    """
    # Without blocking: a pipe is opened at once, and found to be one.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        _check_mode(path, status.st_mode)
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
    _check_mode(path, os.stat(path).st_mode)


def _check_mode(path: Path | str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        names = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        kind = names.get(stat.S_IFMT(mode), "a device")
        raise ValueError(f"{path}: {kind}, not a file; remove it")


def read_json(path: Path | str) -> Any:
    """Return what a JSON file holds; raises OSError and ValueError as `read_file` and `from_json`.

    The errors of its content do not name the file: the caller says what to do about it.
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

    Quick for text that is fine: ten thousand runs are to be listed at once.
    """
    # Brackets in strings are looked at only where all brackets together are too many.
    if _nests_deep(text) and _nests_deep(_STRING.sub(b"", text)):
        return f"nests more than {DEEPEST} levels deep"
    if _ZEROS in text.translate(_DIGITS) and (found := _LONG_NUMBER.search(text)) is not None:
        line = text.count(b"\n", 0, found.end()) + 1
        return f"has a number of more than {MOST_DIGITS} digits at line {line}"
    return None


def _nests_deep(text: bytes) -> bool:
    brackets = text.translate(None, _NO_BRACKETS)
    for _ in range(DEEPEST):
        fewer = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if len(fewer) == len(brackets):  # unclosed ones are left, as of a file that was cut
            return len(brackets) > DEEPEST
        brackets = fewer
    return bool(brackets)
