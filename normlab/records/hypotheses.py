"""What the tested weights of a run made of each test split: a file a split, a line a sentence.

`hypotheses.txt` is of the split `test`, `hypotheses-<split>.txt` of another, in the order of the
split. They are published gzipped (`.txt.gz`), of which equal texts are equal bytes.
"""

from __future__ import annotations

import gzip
import io
import zlib
from typing import TYPE_CHECKING

from normlab.records.files import read_file

if TYPE_CHECKING:
    from pathlib import Path

STEM = "hypotheses"
HYPOTHESES_FILE = f"{STEM}.txt"
PACKED = ".gz"
MOST_UNPACKED = 2**28
"""Bytes of text; a test split of a million sentences has fewer."""


def hypotheses_file(split: str) -> str:
    """Return the name of the file of a test split in a run's folder."""
    return HYPOTHESES_FILE if split == "test" else f"{STEM}-{split}.txt"


def hypotheses_splits(folder: Path) -> list[str]:
    """Return the test splits of which a folder holds hypotheses, plain or gzipped, in order."""
    names = {path.name.removesuffix(PACKED) for path in folder.glob(f"{STEM}*.txt*")}
    parts = [name.removesuffix(".txt").removeprefix(STEM).removeprefix("-") for name in names]
    return sorted(part or "test" for part in parts)


def read_hypotheses(folder: Path, split: str = "test") -> tuple[Path, list[str]]:
    """Return a split's file and its lines, the plain file before the gzipped one.

    Raises FileNotFoundError where there is neither, and ValueError naming a file that is damaged.
    """
    path = folder / hypotheses_file(split)
    packed = path.with_name(path.name + PACKED)
    if not path.is_file() and packed.is_file():
        path = packed
    content = read_file(path)
    try:
        text = (_unpacked(content) if path == packed else content).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: damaged ({error})") from None
    return path, text.split("\n")[:-1]


def _unpacked(content: bytes) -> bytes:
    """Decompress gzip; OSError for what unpacks to more than `MOST_UNPACKED` bytes."""
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        text = file.read(MOST_UNPACKED + 1)
    if len(text) > MOST_UNPACKED:
        raise OSError(f"unpacks to more than {MOST_UNPACKED} bytes")
    return text


def packed_hypotheses(folder: Path) -> dict[str, bytes]:
    """Return the files to publish of a run's folder, by name: gzip without name and time."""
    plain = [folder / hypotheses_file(split) for split in hypotheses_splits(folder)]
    return {path.name + PACKED: _packed(path) for path in plain if path.is_file()}


def _packed(path: Path) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as file:
        file.write(read_file(path))
    return out.getvalue()
