"""CIFAR-10 (Krizhevsky 2009): the publisher's binary archive, or two archives of JPEG files.

JPEG loses detail, so results on it are labelled. Images are decoded once, into the cache.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from normlab.data.cache import cache_key, cached_folder, download, file_checksum, members
from normlab.data.images import Images, ImageSource

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


class Cifar10(ImageSource):
    """The 50,000 and 10,000 images of CIFAR-10.

    Args:
        data_dir: a folder with `cifar-10-binary.tar.gz`, or with `{train,test}_jpeg.tar.xz` whose
            files are `CLASS/*.jpg|png`; null downloads the first.
        valid_size, train_size: see `ImageSource`.
    """

    label = "CIFAR-10"
    licence = "none stated; cite Krizhevsky 2009"
    classes = CLASSES

    def __init__(self, data_dir: str | None, *, valid_size: int, train_size: int | None) -> None:
        self.valid_size, self.train_size = valid_size, train_size
        self._folder = None if data_dir is None else Path(data_dir).expanduser()

    def published(self) -> Mapping[str, Images]:
        files = self._files()
        self.label = "CIFAR-10" if "binary" in files else "CIFAR-10 (JPEG)"
        sums = {name: file_checksum(path) for name, path in files.items()}
        name = f"cifar10-{cache_key({'format': _FORMAT, **sums})}"
        try:
            folder = cached_folder(name, lambda entry: _decode(files, entry))
        except ValueError:
            if self._folder is None:  # download it again next time
                files["binary"].unlink(missing_ok=True)
            raise
        return {
            split: Images(
                np.load(folder / f"{split}.npy", mmap_mode="r"),
                np.load(folder / f"{split}_labels.npy"),
            )
            for split in SIZES
        }

    def description(self) -> dict[str, Any]:
        return {"source": ", ".join(sorted(path.name for path in self._files().values()))}

    def _files(self) -> dict[str, Path]:
        """Return the archive `binary`, or the archives `train` and `test`."""
        if self._folder is None:
            try:
                return {"binary": download(URL, BINARY)}
            except OSError as error:
                raise ValueError(
                    f"CIFAR-10 cannot be downloaded ({error}): get {URL} on another machine and "
                    "give its folder as data_dir=FOLDER; task=digits needs no download"
                ) from error
        if (binary := self._folder / BINARY).exists():
            return {"binary": binary}
        found = {split: self._folder / f"{split}_jpeg.tar.xz" for split in SIZES}
        if all(path.exists() for path in found.values()):
            return found
        raise ValueError(
            f"data_dir={self._folder} has no CIFAR-10: put {BINARY} ({URL}) there, or "
            "train_jpeg.tar.xz and test_jpeg.tar.xz; without data_dir the first is downloaded"
        )


def _decode(files: Mapping[str, Path], entry: Path) -> None:
    """Write pixels and labels of both splits into an empty folder."""
    for split, size in SIZES.items():
        path = files.get("binary") or files[split]
        read = _binary if "binary" in files else _compressed
        pixels, labels = read(path, split)
        if len(labels) != size:
            raise ValueError(
                f"{path} has {len(labels):,} images of {split}, and CIFAR-10 has {size:,}: get it "
                "again"
            )
        np.save(entry / f"{split}.npy", pixels)
        np.save(entry / f"{split}_labels.npy", labels)


def _binary(archive: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    rows = [np.empty((0, _ROW), np.uint8)]
    for name, content in members(archive, (".bin",)):
        if Path(name).name.startswith("test") == (split == "test"):
            if len(content) % _ROW:
                raise ValueError(
                    f"{archive}: {name} has {len(content)} bytes, no multiple of {_ROW}; remove "
                    f"the archive and get it again from {URL}"
                )
            rows.append(np.frombuffer(content, np.uint8).reshape(-1, _ROW))
    every = np.concatenate(rows)
    pixels = every[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), every[:, 0].astype(np.int64)


def _compressed(archive: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    from PIL import Image

    pixels, labels = [np.empty((0, SIDE, SIDE, CHANNELS), np.uint8)], []
    for name, content in members(archive, (".jpg", ".jpeg", ".png")):
        folder = Path(name).parent.name
        if folder not in CLASSES:
            raise ValueError(f"{archive}: {name}: {folder!r} is no class ({', '.join(CLASSES)})")
        labels.append(CLASSES.index(folder))
        try:
            with Image.open(io.BytesIO(content)) as image:
                pixels.append(np.asarray(image.convert("RGB")).reshape(1, SIDE, SIDE, CHANNELS))
        except (OSError, ValueError, SyntaxError) as error:  # Pillow raises these for a bad file
            raise ValueError(
                f"{archive}: {name} is no {SIDE}x{SIDE} image: {error}; get it again"
            ) from error
    return np.concatenate(pixels), np.array(labels, np.int64)
