"""Decides how a file reaches the disk: whole, or not at all.

A reader sees the former file or the new one, never a part: the content goes to a temporary name in
the same folder (a rename does not cross file systems), is forced to the disk and then renamed. A
writer holds a lock on its temporary file. One without a holder is of a process that was killed, and
whoever writes into the folder next removes it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any, Literal, overload

from filelock import FileLock

try:
    import fcntl
except ImportError:  # Windows, where a file that is open cannot be removed
    fcntl = None

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
    remove_leftovers(path.parent)
    with contextlib.ExitStack() as held:
        temporary, file = _temporary(path, held, binary=binary)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            if error.errno is None or error.filename not in (None, str(temporary)):
                raise
            # Writing to a full disk names no file at all.
            raise OSError(error.errno, error.strerror, str(path)) from error
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    _sync_folder(path.parent)


def _temporary(path: Path, held: contextlib.ExitStack, *, binary: bool) -> tuple[Path, IO[Any]]:
    """Open a temporary file beside `path`, its lock held until `held` ends, after its rename."""
    while True:
        # A name of its own for each writer: two processes that save the same file do not mix bytes.
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}")
        try:
            file = _create(temporary, binary=binary)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        if fcntl is None:
            return temporary, file
        descriptor = os.dup(file.fileno())  # the lock lasts until both are closed
        held.callback(os.close, descriptor)
        if _locked(descriptor) and temporary.exists():
            return temporary, file
        file.close()  # another has removed it, since nobody held it yet


def _locked(descriptor: int) -> bool:
    """Lock an open file; False where another process holds its lock."""
    assert fcntl is not None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: nobody can take the file for a leftover
        pass
    return True


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


def remove_leftovers(folder: Path | str, *, below: bool = False) -> list[Path]:
    """Remove temporary files that killed writers left in `folder`, and return their paths.

    Those of writers at work stay. `below` looks into the folders within it too.
    """
    pattern = f".*{_SUFFIX}"
    found = Path(folder).rglob(pattern) if below else Path(folder).glob(pattern)
    return [path for path in sorted(found) if _removed(path)]


def _removed(path: Path) -> bool:
    """Remove a temporary file unless its writer is at work; what cannot be removed stays."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as held:
        if fcntl is not None:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
        return True
    return False


@contextlib.contextmanager
def only_writer(path: Path) -> Generator[None]:
    """Wait to be the only process that changes a file, whose folder is made.

    For what is read, changed and written back: of two at once, one change would be lost.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        yield
