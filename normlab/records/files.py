"""Files that are written whole or not at all, and safe reading of files from anywhere.

A reader sees the old file or the new one, never a mix: the content is written to a temporary file
in the same folder (a rename does not cross file systems), synced to disk and then renamed.

A path to read may be a folder, a pipe that never answers or an endless device, and JSON may nest
without limit. All of these raise a one-line `ValueError`; errors of the system are `OSError`.
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
_MOST_BYTES = 2**30  # larger than any text file of a run


@contextlib.contextmanager
def atomic_write(path: Path | str, mode: str = "w") -> Generator[IO[Any]]:
    """Open a file for writing that replaces `path` only if the block succeeds.

    Text (mode "w", not "wb") is UTF-8 with LF line endings. On any exception, including a full disk
    and Ctrl-C, the temporary file is removed and the old file stays; an `OSError` names `path`.
    """
    path = Path(path)
    remove_leftovers(path.parent)
    # Each writer has its own temporary file: two processes that save one file do not mix bytes.
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
        # The error of a write to a full disk names no file.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to disk where the system can; files are whole anyway."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_leftovers(folder: Path | str) -> None:
    """Remove temporary files in `folder` left by killed processes of this machine."""
    for path in Path(folder).glob(f".*.{platform.node()}.*{_SUFFIX}"):
        process = path.name.removesuffix(_SUFFIX).rpartition(".")[2].partition("-")[0]
        if not process.isdecimal() or os.name == "nt":  # os.kill would end it there
            continue
        try:
            os.kill(int(process), 0)
        except (ProcessLookupError, OverflowError):
            path.unlink(missing_ok=True)
        except PermissionError:  # it runs as another user
            pass


@contextlib.contextmanager
def only_writer(path: Path) -> Generator[None]:
    """Hold a lock that makes this process the only writer of a file, and create its folder.

    For read-modify-write: of two concurrent writers, one would lose its change.
    """
    from filelock import FileLock  # only a few commands need it

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        yield


def check_is_file(path: Path | str) -> os.stat_result:
    """Return the status of a regular file or a link to one; raises ValueError for anything else."""
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
    """Return the content of a JSON file; raises OSError and ValueError, as its two steps do.

    Decoding errors do not name the file: the caller says what to do about it.
    """
    return from_json(read_file(path))


def from_json(text: bytes | str) -> Any:
    """Decode JSON; raises ValueError if it is invalid or nests too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deep") from None
