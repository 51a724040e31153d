"""The cache: downloads, and one checksummed folder per prepared data set."""

import hashlib
import http.client
import json
import lzma
import os
import re
import shutil
import sys
import tarfile
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from normlab.errors import UserError
from normlab.records.files import atomic_write, check_is_file, read_file

MANIFEST = "manifest.json"
_LARGE, _SETTLED = 2**24, 5.0  # minimum size (bytes) and age (s) of a file whose checksum is cached
_MOST_NAMED = 100  # if data are read from more files, a single checksum stands for all of them
MAX_BYTES = 4 * 2**30  # maximum size of an unpacked file or archive
_OFFLINE = "HF_HUB_OFFLINE"  # the Hugging Face Hub's variable: it also stops the Hub's downloads
# Modules that read `_OFFLINE` only when they are imported.
_OFFLINE_READERS = ("huggingface_hub.constants", "datasets.config")


def cache_root() -> Path:
    """Return the folder of all cached data: `$NORMLAB_CACHE`, or by default `~/.cache/normlab`.

    Raises UserError if the user has no home folder, as in many containers.
    """
    try:
        folder = os.environ.get("NORMLAB_CACHE") or Path.home() / ".cache" / "normlab"
        return Path(folder).expanduser()
    except RuntimeError:
        raise UserError(
            "this user has no home folder; set HOME, or NORMLAB_CACHE to a folder for prepared data"
        ) from None


def cache_key(settings: Mapping[str, object]) -> str:
    """Return the first 20 hex digits of the settings' SHA-256; key order does not matter."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:20]


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    check_is_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_checksum(path: Path) -> str:
    """Return the SHA-256 of a file. A large file's checksum is cached until the file changes.

    A file counts as unchanged if its inode, size, change time and modification time are unchanged.
    The checksum of a file that changed seconds ago is not cached, because another change could have
    the same time.
    """
    check_is_file(path)
    path = path.resolve()
    stat = path.stat()
    if stat.st_size < _LARGE:
        return file_checksum(path)
    identity = [str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    cached = cache_root() / "checksums" / cache_key({"file": identity})
    with suppress(OSError, ValueError):
        if re.fullmatch("[0-9a-f]{64}", checksum := read_file(cached).decode()):
            return checksum
    checksum = file_checksum(path)
    if time.time() - max(stat.st_mtime, stat.st_ctime) > _SETTLED:
        with suppress(OSError):  # the cache may be read-only
            cached.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(cached) as file:
                file.write(checksum)
    return checksum


def checksums_of(files: Mapping[str, Path] | None) -> dict[str, str] | None:
    """Return the SHA-256 of each of a source's files, keyed by name, or None if `files` is None.

    More than `_MOST_NAMED` files are summarized by a single checksum.
    """
    if files is None:
        return None
    checksums = {name: known_checksum(path) for name, path in sorted(files.items())}
    if len(checksums) > _MOST_NAMED:
        return {f"{len(checksums):,} files": cache_key(checksums)}
    return checksums


def cached_folder(name: str, build: Callable[[Path], None]) -> Path:
    """Return the cache folder `name`, filled by `build(folder)` if it is missing or damaged.

    If several processes need the folder, one builds it and the others wait, so that no process sees
    a partial folder. The manifest, written last, holds the SHA-256 of each file. Raises UserError
    if the name, which a user may choose, could point outside the cache.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}", name):
        raise UserError(
            f"{name!r} is not a name for prepared data: task.corpus.name must be short, use only "
            "letters, digits, '-', '_' and '.', and start with a letter or digit"
        )
    root = cache_root()
    entry, place = root / name, root / f"{name}.building"
    if is_whole(entry):  # before locking, so that this works on a read-only disk
        return entry
    with ExitStack() as stack:
        try:
            root.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(root / f"{name}.lock"))
        except OSError as error:
            raise UserError(
                f"prepared data cannot be written to {root} ({error.strerror}); set NORMLAB_CACHE "
                "to a folder that you may write to"
            ) from error
        if not is_whole(entry):
            for old in (place, entry):
                if old.is_symlink() or (old.exists() and not old.is_dir()):
                    old.unlink()  # `rmtree` would hang on a pipe
                shutil.rmtree(old, ignore_errors=True)
            try:
                place.mkdir()
                build(place)
                manifest = {path.name: file_checksum(path) for path in sorted(place.iterdir())}
                (place / MANIFEST).write_text(json.dumps(manifest, indent=1))
                place.rename(entry)
            finally:
                shutil.rmtree(place, ignore_errors=True)
    return entry


def is_whole(entry: Path) -> bool:
    """Return whether every file in an entry's manifest exists and has the right checksum."""
    try:
        manifest = json.loads(read_file(entry / MANIFEST))
        return bool(manifest) and all(
            Path(name).name == name and file_checksum(entry / name) == digest
            for name, digest in manifest.items()
        )
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False


@contextmanager
def offline() -> Iterator[None]:
    """Refuse downloads in this context, even by libraries that already read HF_HUB_OFFLINE."""
    before = os.environ.get(_OFFLINE)
    loaded = [sys.modules[name] for name in _OFFLINE_READERS if name in sys.modules]
    flags = [getattr(module, _OFFLINE) for module in loaded]
    os.environ[_OFFLINE] = "1"
    for module in loaded:
        setattr(module, _OFFLINE, True)
    try:
        yield
    finally:
        for module, flag in zip(loaded, flags, strict=True):
            setattr(module, _OFFLINE, flag)
        if before is None:
            del os.environ[_OFFLINE]
        else:
            os.environ[_OFFLINE] = before


def download(what: str, url: str, name: str) -> Path:
    """Return the path of `downloads/<name>` in the cache, downloading it from `url` if missing.

    If the download fails, raises UserError saying what to do, and keeps no partial file.
    """
    path = cache_root() / "downloads" / name
    if path.exists():
        return path
    try:
        if os.environ.get(_OFFLINE, "").lower() in ("1", "true", "yes", "on"):
            raise OSError(f"{path} does not exist, and {_OFFLINE} is set")
        with urllib.request.urlopen(url, timeout=30) as response:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path, "wb") as file:
                shutil.copyfileobj(response, file)
                announced, received = response.headers.get("Content-Length"), file.tell()
                if announced is not None and received != int(announced):
                    raise OSError(f"it stopped after {received:,} of {int(announced):,} bytes")
    except (OSError, http.client.HTTPException) as error:
        raise UserError(
            f"{what} cannot be downloaded ({error}); download {url} on another machine and set "
            "data_dir to its folder; task=toy and task=digits need no download"
        ) from error
    return path


def members(archive: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file with one of `suffixes` in a tar archive.

    Nothing is unpacked to disk. If the archive is damaged or unpacks to more than `MAX_BYTES`,
    raises UserError with its path.
    """
    check_is_file(archive)
    total = 0
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                total += member.size
                if total > MAX_BYTES:
                    raise UserError(
                        f"{archive} unpacks to {total} bytes or more; unpack it yourself"
                    )
                if member.isfile() and member.name.lower().endswith(suffixes):
                    file = tar.extractfile(member)
                    assert file is not None, "a file has content"
                    yield member.name, file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")  # the rest lists the formats tried
        raise UserError(
            f"cannot read {archive}: {reason}; if it is damaged, delete it and download it again"
        ) from error
