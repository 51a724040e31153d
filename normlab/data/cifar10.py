"""CIFAR-10 (Krizhevsky 2009), from the publisher's binary archive or two archives of JPEG files.

JPEG is lossy, so results on JPEG files are labelled "JPEG". Decoded images are cached.
"""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from normlab.data.cache import cache_key, cached_folder, download, file_checksum, members
from normlab.data.images import Images, ImageSource
from normlab.errors import UserError

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
BINARY = "cifar-10-binary.tar.gz"
SIZES = {"train": 50_000, "test": 10_000}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer")
CLASSES += ("dog", "frog", "horse", "ship", "truck")


@dataclass(kw_only=True, eq=False)
class Cifar10(ImageSource):
    """The 50,000 training and 10,000 test images of CIFAR-10.

    Attributes:
        data_dir: a folder with `cifar-10-binary.tar.gz`, or with `{train,test}_jpeg.tar.xz` (files
            `CLASS/*.jpg|png`), or with a subfolder `cifar10` that has one of these; null downloads
            the binary archive.
        valid_size, train_size: see `LabelledSource`.
    """

    data_dir: str | None
    valid_size: int
    train_size: int | None
    licence = "none stated; cite Krizhevsky 2009"
    classes = CLASSES

    def files(self) -> Mapping[str, Path]:
        if self.data_dir is None:
            return {}
        return {path.name: path for path in self._files().values()}

    def published(self) -> Mapping[str, Images]:
        files = self._files()
        self.origin = ", ".join(sorted({path.name for path in files.values()}))
        self.label = "CIFAR-10" if files["train"] == files["test"] else "CIFAR-10 (JPEG)"
        sums = {split: file_checksum(path) for split, path in files.items()}
        name = f"cifar10-{cache_key({'format': 'normlab.cifar10/1', **sums})}"
        folder = cached_folder(name, lambda entry: _decode(files, entry))
        return {
            x: Images(np.load(folder / f"{x}.npy", "r"), np.load(folder / f"{x}_labels.npy"))
            for x in SIZES
        }

    def _files(self) -> dict[str, Path]:
        """Return the archive of each split. The binary archive holds both splits."""
        if self.data_dir is None:
            return dict.fromkeys(SIZES, download("CIFAR-10", URL, BINARY))
        # A folder that holds several data sets has CIFAR-10 in the subfolder `cifar10`.
        folder = Path(self.data_dir).expanduser()
        folder = folder / "cifar10" if (folder / "cifar10").is_dir() else folder
        for name in (BINARY, "{}_jpeg.tar.xz"):
            files = {split: folder / name.format(split) for split in SIZES}
            if all(path.exists() for path in files.values()):
                return files
        raise UserError(
            f"data_dir={self.data_dir} has no CIFAR-10: put {BINARY} ({URL}) there, or "
            f"train_jpeg.tar.xz and test_jpeg.tar.xz, or omit data_dir to download {BINARY}"
        )


def _decode(files: Mapping[str, Path], entry: Path) -> None:
    """Write the pixels and labels of both splits into an empty folder."""
    read = _binary if files["train"] == files["test"] else _compressed
    for split, path in files.items():
        parts = list(read(path, split))
        count = sum(len(labels) for _, labels in parts)
        if count != SIZES[split]:
            raise UserError(f"{path} has {count} {split} images instead of {SIZES[split]}")
        pixels, labels = map(np.concatenate, zip(*parts, strict=True))
        np.save(entry / f"{split}.npy", pixels)
        np.save(entry / f"{split}_labels.npy", labels.astype(np.int64))


def _binary(archive: Path, split: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for name, content in members(archive, (".bin",)):
        if Path(name).name.startswith("test") == (split == "test"):
            rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)  # class, channels
            yield rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


def _compressed(archive: Path, split: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from PIL import Image

    for name, content in members(archive, (".jpg", ".jpeg", ".png")):
        try:
            label = CLASSES.index(Path(name).parent.name)
            with Image.open(io.BytesIO(content)) as image:
                pixels = np.asarray(image.convert("RGB")).reshape(1, 32, 32, 3)
        except (OSError, ValueError, SyntaxError) as error:  # Pillow raises them for a bad file
            raise UserError(
                f"{archive}: {name}: not a 32x32 image in a folder named after a CIFAR-10 class: "
                f"{error}"
            ) from error
        yield pixels, np.array([label])
