"""Decides how a file reaches the disk: whole, or not at all.

A reader sees the former file or the new one, never a part: the content goes to a temporary name in
the same folder (a rename does not cross file systems), is forced to the disk and then renamed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any, Literal, overload

_SUFFIX = ".partial"


@overload
def atomic_write(
    path: Path | str, mode: Literal["w"] = "w"
) -> contextlib.AbstractContextManager[IO[str]]: ...
@overload
def atomic_write(
    path: Path | str, mode: Literal["wb"]
) -> contextlib.AbstractContextManager[IO[bytes]]: ...
def atomic_write(
    path: Path | str, mode: Literal["w", "wb"] = "w"
) -> contextlib.AbstractContextManager[IO[Any]]:
    """Open a file for writing that takes the place of `path` only when the block ends well.

    Text is UTF-8 with LF line ends. On any exception, a full disk and Ctrl-C included, the
    temporary file is removed and the old file stands; an `OSError` names `path`.
    """
    assert mode in ("w", "wb"), mode
    return _replacing(Path(path), binary=mode == "wb")


@contextlib.contextmanager
def _replacing(path: Path, *, binary: bool) -> Generator[IO[Any]]:
    # A name of its own for each writer: two processes that save the same file do not mix bytes.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}")
    try:
        with _create(temporary, binary=binary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        # Writing to a full disk names no file at all; opening names the temporary one.
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _create(path: Path, *, binary: bool) -> IO[Any]:
    return path.open("xb") if binary else path.open("x", encoding="utf-8", newline="\n")


def _sync_folder(folder: Path) -> None:
    # The rename itself lives in the folder. Not every system can open one; there it is left to
    # the system, since the file is already whole.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_leftovers(folder: Path | str) -> list[Path]:
    """Remove temporary files that killed writers left in `folder`, and return their paths.

    Call it only where no other process can be writing, such as a run folder that is being resumed.
    """
    found = sorted(Path(folder).glob(f".*{_SUFFIX}"))
    for path in found:
        path.unlink(missing_ok=True)
    return found
