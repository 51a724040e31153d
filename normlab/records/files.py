"""Files that are written whole or not at all, and files from anywhere, read within limits.

A reader sees the former file or the new one, never a part: the content goes to a temporary name in
the same folder (a rename does not cross file systems), is forced to the disk and then renamed.

What is read may be a folder, a pipe that never answers or a device without end, and JSON may nest
without end. All of that is a `ValueError` in one line; what the system refuses is an `OSError`.
"""

import contextlib
import json
import os
import platform
import secrets
import stat
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any

_SUFFIX = ".partial"
_MOST_BYTES = 2**30  # more than any text that a run leaves


@contextlib.contextmanager
def atomic_write(path: Path | str, mode: str = "w") -> Generator[IO[Any]]:
    """Open a file for writing that replaces `path` only when the block ends well.

    Text (mode "w", not "wb") is UTF-8 with LF line ends. On any exception, a full disk and Ctrl-C
    included, the temporary file is removed and the old file stays; an `OSError` names `path`.
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
        if not process.isdecimal() or os.name == "nt":  # where asking would end the process
            continue
        try:
            os.kill(int(process), 0)
        except (ProcessLookupError, OverflowError):
            path.unlink(missing_ok=True)
        except PermissionError:  # it runs, and is somebody else's
            pass


@contextlib.contextmanager
def only_writer(path: Path) -> Generator[None]:
    """Wait to be the only process that changes a file, and create its folder.

    For what is read, changed and written back: of two at once, one change would be lost.
    """
    from filelock import FileLock  # only few commands need it

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        yield


def check_is_file(path: Path | str) -> os.stat_result:
    """Raise ValueError where a path is no regular file and no link to one; return its status."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        names = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        kind = names.get(stat.S_IFMT(status.st_mode), "a device")
        raise ValueError(f"{path}: {kind}, not a file; remove it")
    return status


def read_file(path: Path | str) -> bytes:
    """Return the content of a regular file of at most 1 GiB; ValueError for anything else."""
    if (size := check_is_file(path).st_size) > _MOST_BYTES:
        raise ValueError(f"{path}: {size} bytes, more than it can have; remove it")
    return Path(path).read_bytes()


def read_json(path: Path | str) -> Any:
    """Return what a JSON file holds; raises OSError and ValueError as `read_file` and `from_json`.

    The errors of its content do not name the file: the caller says what to do about it.
    """
    return from_json(read_file(path))


def from_json(text: bytes | str) -> Any:
    """Decode JSON; ValueError where it is none or nests too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deep") from None
