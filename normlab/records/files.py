"""Writes files atomically, and reads untrusted files safely.

A reader sees the old file or the new one, never a mix, because the content is written to a
temporary file in the same folder, synced to disk and then renamed. Pipes and devices, which could
block or never end, raise a one-line `UserError`.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any

from normlab.errors import UserError

_SUFFIX = ".partial"


@contextlib.contextmanager
def atomic_write(path: Path | str, mode: str = "w") -> Generator[IO[Any]]:
    """Open a file for writing that replaces `path` only if the block succeeds.

    Text (mode "w", not "wb") is UTF-8 with LF line endings. On any exception, including a full disk
    and Ctrl-C, the temporary file is removed and the old file is kept. An `OSError` contains
    `path`.
    """
    path = Path(path)
    remove_leftovers(path.parent, after=3600.0)
    # Each writer has a temporary file of its own, so that two writers of a file do not mix bytes.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_SUFFIX}")
    encoding, newline = (None, None) if mode == "wb" else ("utf-8", "\n")
    try:
        with open(temporary, mode.replace("w", "x"), encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        # The error for a full disk does not contain a path.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk if the system supports it.

    Files are complete even if it does not.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_leftovers(folder: Path | str, *, after: float = 0.0) -> None:
    """Remove temporary files in `folder` that were last written more than `after` seconds ago."""
    for path in Path(folder).glob(f".*{_SUFFIX}"):
        with contextlib.suppress(OSError):  # its writer may have renamed it
            if time.time() - path.stat().st_mtime > after:
                path.unlink()


@contextlib.contextmanager
def only_writer(path: Path) -> Generator[None]:
    """Create a file's folder, and hold a lock on the file while it is read and rewritten."""
    from filelock import FileLock  # imported here because only a few commands need it

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        yield


def check_is_file(path: Path | str) -> None:
    """Raise UserError if a path is not a regular file, or OSError if it does not exist."""
    if not Path(path).is_file():
        os.stat(path)  # raises FileNotFoundError
        raise UserError(f"{path} is not a regular file; remove it")


def check_writable(folder: Path, *, instead: str = "set runs_dir=FOLDER") -> None:
    """Raise UserError if a folder cannot be made or written to, with what to do `instead`."""
    place = next(path for path in (folder, *folder.parents) if path.exists() or path.is_symlink())
    if not place.is_dir():
        to = f" to {place.readlink()}, which does not exist" if place.is_symlink() else ""
        kind = "a link" if place.is_symlink() else "a file"
        raise UserError(f"{place.absolute()} is {kind}{to}; {instead}")
    if not os.access(place, os.W_OK | os.X_OK):
        raise UserError(f"{place.absolute()} cannot be written to; {instead}")


def read_file(path: Path | str) -> bytes:
    """Return the content of a regular file, or raise UserError for a folder, pipe or device."""
    check_is_file(path)
    return Path(path).read_bytes()
