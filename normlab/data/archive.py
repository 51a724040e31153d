"""Published archives: fetched once, unpacked without trusting what they contain.

Decides where a download lies (`downloads/` of the cache), that it appears whole or not at all, and
which archives are refused: members that leave the folder, links out of it, devices, and archives
that unpack to more than a text corpus can be.
"""

import lzma
import os
import shutil
import tarfile
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from normlab.data.cache import cache_root
from normlab.records.atomic import atomic_write

MAX_BYTES = 4 * 2**30
TIMEOUT_SECONDS = 30
_OFFLINE = "HF_HUB_OFFLINE"  # of the Hugging Face Hub, whose data sets obey it too


def is_offline() -> bool:
    """Tell whether nothing may be fetched."""
    return os.environ.get(_OFFLINE, "").lower() in ("1", "true", "yes", "on")


@contextmanager
def offline() -> Iterator[None]:
    """Fetch nothing for a while: what is not on this machine cannot be had."""
    before = os.environ.get(_OFFLINE)
    os.environ[_OFFLINE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_OFFLINE]
        else:
            os.environ[_OFFLINE] = before


def download(url: str, name: str, *, root: Path | None = None) -> Path:
    """Return the file `name` of the download folder, fetched from `url` where it is not there yet.

    Raises OSError where the network or the disk fails, where the download breaks off, and where
    nothing may be fetched; no part of a file is kept.
    """
    folder = (cache_root() if root is None else root) / "downloads"
    path = folder / name
    if not path.exists():
        if is_offline():
            raise OSError(f"{path} is not there, and {_OFFLINE} is set")
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(path, "wb") as file:
                shutil.copyfileobj(response, file)
                announced, received = response.headers.get("Content-Length"), file.tell()
                if announced is not None and received != int(announced):
                    raise OSError(f"{url} broke off after {received:,} of {int(announced):,} bytes")
    return path


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive into a folder; ValueError naming it where it is damaged or unsafe."""
    try:
        with tarfile.open(archive) as tar:
            total = sum(member.size for member in tar.getmembers())
            if total > MAX_BYTES:
                raise ValueError(
                    f"{archive} unpacks to {total} bytes, more than the {MAX_BYTES} that a text "
                    "corpus may have; unpack it yourself and set data_dir to the folder"
                )
            tar.extractall(folder, filter="data")
    except tarfile.FilterError as error:
        raise ValueError(
            f"{archive} is not safe to unpack: {error}; get the archive from its publisher again"
        ) from error
    except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")  # then come all forms that it is not
        raise ValueError(
            f"cannot unpack {archive}: {reason}; if the file is damaged, remove it and get it again"
        ) from error
