"""CIFAR-10 (Krizhevsky 2009): where its pictures are found, and what results may be called.

Two forms are known: the publisher's binary archive, and archives or folders of JPEG or PNG files,
a folder a class. JPEG loses detail, so results on it are labelled. Pictures are decoded once, into
the cache, a few at a time.
"""

import io
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from normlab.data.cache import cache_key, cached_folder, download, file_checksum, opened
from normlab.data.pictures import Pictures, PictureSource, by_class
from normlab.records.files import check_is_file

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
BINARY = "cifar-10-binary.tar.gz"
SIZES = {"train": 50_000, "test": 10_000}
SIDE, CHANNELS = 32, 3
CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_FORMAT = "normlab.cifar10/1"
_ROW = 1 + SIDE * SIDE * CHANNELS  # a byte of the class, then the three channels
_AT_ONCE = 512
_SUFFIXES = (".jpg", ".jpeg", ".png")

_File = tuple[str, bytes]


class Cifar10(PictureSource):
    """The 50,000 and 10,000 pictures of CIFAR-10.

    Args:
        data_dir: a folder with `cifar-10-binary.tar.gz`, with `{train,test}_jpeg.tar.xz`, or with
            `{train,test}/CLASS/*.jpg|png`; null downloads the first.
        valid_size: how many training pictures are held out.
        train_size: how many of the others are used, of each class its share; null is all.
    """

    licence = "none stated; cite Krizhevsky 2009"
    classes = CLASSES

    def __init__(self, data_dir: str | None, *, valid_size: int, train_size: int | None) -> None:
        self.valid_size = valid_size
        self.train_size = train_size
        self._folder = None if data_dir is None else Path(data_dir).expanduser()
        self._label = ""

    @property
    def label(self) -> str:
        """What results may be called: JPEG files are not the published pixels."""
        return self._label

    def published(self) -> Mapping[str, Pictures]:
        """Return both splits, from the cache where they were decoded before."""
        files = self._files()
        self._label = "CIFAR-10" if "binary" in files else "CIFAR-10 (JPEG)"
        sums = {name: _checksum(path) for name, path in files.items()}
        name = f"cifar10-{cache_key({'format': _FORMAT, **sums})}"
        try:
            folder = cached_folder(name, lambda entry: _decode(files, entry))
        except ValueError:
            if self._folder is None:  # what was downloaded and cannot be read is fetched again
                files["binary"].unlink(missing_ok=True)
            raise
        return {
            split: Pictures(
                np.load(folder / f"{split}.npy", mmap_mode="r"),
                np.load(folder / f"{split}_labels.npy"),
            )
            for split in SIZES
        }

    def description(self) -> dict[str, Any]:
        """Return which files they are of."""
        return {"source": ", ".join(sorted(path.name for path in self._files().values()))}

    def splits(self) -> dict[str, Pictures]:
        """Return the splits, the training pictures cut to `train_size`."""
        found = super().splits()
        if self.train_size is not None:
            train = found["train"]
            if self.train_size > len(train):
                raise ValueError(
                    f"task.source.train_size={self.train_size}: there are {len(train)} training "
                    "pictures that are not held out"
                )
            share = self.train_size / len(train)
            found["train"] = train.pick(by_class(train.labels, share, seed=self.train_size))
        return found

    def _files(self) -> dict[str, Path]:
        """Return `binary`, or `train` and `test`: archives, or folders of class folders."""
        if self._folder is None:
            return {"binary": _downloaded()}
        if (binary := self._folder / BINARY).exists():
            return {"binary": binary}
        for name in ("{}_jpeg.tar.xz", "{}"):
            found = {split: self._folder / name.format(split) for split in SIZES}
            if all(path.exists() for path in found.values()):
                return found
        raise ValueError(
            f"data_dir={self._folder} has no CIFAR-10: put {BINARY} ({URL}) there, or "
            "train_jpeg.tar.xz and test_jpeg.tar.xz, or folders train and test with a folder a "
            "class; without data_dir the first is downloaded"
        )


def _downloaded() -> Path:
    try:
        return download(URL, BINARY)
    except OSError as error:
        raise ValueError(
            f"CIFAR-10 cannot be downloaded ({error}): get {URL} on another machine and give its "
            "folder as data_dir=FOLDER; task=digits needs no download"
        ) from error


def _checksum(path: Path) -> str:
    """Return what the cache goes by: an archive's checksum; of a folder, what tells of changes.

    These are names, sizes and times of its files. The record has the checksum of the pixels.
    """
    if path.is_file():
        return file_checksum(path)
    found = {str(file.relative_to(path)): file.stat() for file in sorted(path.rglob("*.*"))}
    return cache_key({name: [stat.st_size, stat.st_mtime_ns] for name, stat in found.items()})


def _decode(files: Mapping[str, Path], entry: Path) -> None:
    """Write pixels and labels of both splits into an empty folder."""
    if "binary" in files:
        _decode_binary(files["binary"], entry)
    else:
        for split, path in files.items():
            _decode_files(split, path, entry)


def _decode_binary(archive: Path, entry: Path) -> None:
    found: dict[str, list[np.ndarray]] = {split: [] for split in SIZES}
    for name, content in _members(archive, (".bin",)):
        if len(content) % _ROW:
            raise ValueError(
                f"{archive}: {name} has {len(content)} bytes, no multiple of {_ROW}; remove the "
                f"archive and get it again from {URL}"
            )
        split = "test" if Path(name).name.startswith("test") else "train"
        rows = np.frombuffer(content, np.uint8).reshape(-1, _ROW)
        for number in np.flatnonzero(rows[:, 0] >= len(CLASSES)).tolist()[:1]:
            raise ValueError(
                f"{archive}: picture {number + 1} of {name} is of class {rows[number, 0]}, and "
                f"classes are 0 to {len(CLASSES) - 1}; remove the archive and get it again from "
                f"{URL}"
            )
        found[split].append(rows)
    for split, size in SIZES.items():
        rows = np.concatenate([np.empty((0, _ROW), np.uint8), *found[split]])
        _check_count(archive, split, len(rows), size)
        pixels = rows[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)
        np.save(entry / f"{split}.npy", np.ascontiguousarray(pixels))
        np.save(entry / f"{split}_labels.npy", rows[:, 0].astype(np.int64))


def _decode_files(split: str, path: Path, entry: Path) -> None:
    """Decode the pictures of an archive or a folder, some at a time on several threads."""
    shape = (SIZES[split], SIDE, SIDE, CHANNELS)
    pixels = np.lib.format.open_memmap(
        entry / f"{split}.npy", mode="w+", dtype=np.uint8, shape=shape
    )
    labels = np.empty(SIZES[split], np.int64)
    files = _members(path, _SUFFIXES) if path.is_file() else _in_folder(path)
    read = 0
    with ThreadPoolExecutor() as threads:
        while some := list(islice(files, _AT_ONCE)):
            end = read + len(some)
            if end > len(pixels):
                _check_count(path, split, end, len(pixels))
            labels[read:end] = [_label(path, name) for name, _ in some]
            pixels[read:end] = list(threads.map(lambda file: _pixels(path, file), some))
            read = end
    _check_count(path, split, read, len(pixels))
    pixels.flush()
    np.save(entry / f"{split}_labels.npy", labels)


def _members(archive: Path, suffixes: tuple[str, ...]) -> Iterator[_File]:
    """Yield the files of an archive that end so, without unpacking it."""
    with opened(archive) as tar:
        for member in tar:
            if member.isfile() and member.name.lower().endswith(suffixes):
                file = tar.extractfile(member)
                assert file is not None, "a file has content"
                yield member.name, file.read()


def _in_folder(folder: Path) -> Iterator[_File]:
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in _SUFFIXES:
            check_is_file(path)
            yield str(path.relative_to(folder)), path.read_bytes()


def _pixels(place: Path, file: _File) -> np.ndarray:
    from PIL import Image

    name, content = file
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.size != (SIDE, SIDE):
                raise ValueError(f"it has {image.size[0]}x{image.size[1]} pixels, not 32x32")
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError) as error:  # what Pillow raises for a damaged file
        raise ValueError(
            f"{place}: {name} is no picture of CIFAR-10: {error}; get it again"
        ) from error


def _label(place: Path, name: str) -> int:
    folder = Path(name).parent.name
    if folder not in CLASSES:
        raise ValueError(
            f"{place}: {name} lies in a folder {folder!r}, which is no class: there are "
            f"{', '.join(CLASSES)}"
        )
    return CLASSES.index(folder)


def _check_count(place: Path, split: str, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(
            f"{place} has {'more than ' if found > expected else ''}{min(found, expected):,} "
            f"pictures of {split}, and CIFAR-10 has {expected:,}: get it again"
        )
