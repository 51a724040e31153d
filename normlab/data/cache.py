"""The cache of prepared data: one folder per content and settings, built once by one process.

A manifest, written last, holds the SHA-256 of each file; an entry that does not match is rebuilt.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from normlab.records.files import check_is_file, read_json

MANIFEST = "manifest.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


def cache_root() -> Path:
    """Return the folder of all cached data: `$NORMLAB_CACHE`, else `~/.cache/normlab`."""
    return Path(os.environ.get("NORMLAB_CACHE") or Path.home() / ".cache" / "normlab").expanduser()


def cache_key(settings: Mapping[str, object]) -> str:
    """Return 20 hex digits of the SHA-256 of plain settings; the order of keys does not matter."""
    canonical = json.dumps(settings, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:20]


def cached_folder(
    name: str,
    build: Callable[[Path], None],
    *,
    root: Path | None = None,
) -> Path:
    """Return the folder `name` of the cache, built by `build(empty folder)` where needed.

    It is needed where the entry is absent or damaged. Processes that ask at once wait for one of
    them. What `build` writes appears all together or not at all: a process that is killed leaves
    the old state. Raises ValueError where the cache cannot be written, and for a name that could
    leave the folder: it may come from a corpus's own.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot name prepared data: a corpus's name (task.corpus.name) is made of "
            "letters, digits, '-', '_' and '.', begins with a letter or digit, and is short"
        )
    root = cache_root() if root is None else root
    entry = root / name
    lock = FileLock(root / f"{name}.lock")
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise ValueError(
            f"cannot write the cache of prepared data {root}: {error}; set NORMLAB_CACHE to a "
            "folder of yours"
        ) from error
    try:
        if not is_whole(entry):
            _build(entry, build)
    finally:
        lock.release()
    return entry


def is_whole(entry: Path) -> bool:
    """Tell whether every file that the manifest of an entry lists is there with its checksum."""
    try:
        manifest = read_json(entry / MANIFEST)
        names = [name for name in manifest if Path(name).name == name]  # none outside the entry
        return bool(names) and all(
            name in names and file_checksum(entry / name) == digest
            for name, digest in manifest.items()
        )
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    check_is_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _build(entry: Path, build: Callable[[Path], None]) -> None:
    """Build beside the entry, then rename; the caller holds the lock, so leftovers are nobody's."""
    prefix = f"{entry.name}.building-"
    for leftover in entry.parent.glob(f"{prefix}*"):
        _remove(leftover)
    with (
        _naming(entry),
        tempfile.TemporaryDirectory(prefix=prefix, dir=entry.parent) as temporary,
    ):
        folder = Path(temporary) / "entry"
        folder.mkdir()
        build(folder)
        names = sorted(path.name for path in folder.iterdir())
        manifest = {name: file_checksum(folder / name) for name in names}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))
        _remove(entry)
        folder.rename(entry)


@contextmanager
def _naming(entry: Path) -> Iterator[None]:
    """Name the entry in an error of writing it, which names a file that is gone, or none."""
    try:
        yield
    except OSError as error:
        if error.filename is None or str(error.filename).startswith(f"{entry}.building-"):
            number = errno.ENOSPC if error.errno is None else error.errno  # numpy drops it
            raise OSError(number, os.strerror(number), str(entry)) from error
        raise


def _remove(path: Path) -> None:
    """Remove whatever is at a path; of a link, the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
