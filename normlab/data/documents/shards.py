"""A split as shards: parts of whole documents and bounded size, each mapped from files of its own.

Decides how they are called: the first has the name of its split (`train.ids.npy`), the others a
number (`train.shard-00001.ids.npy`). The files of the first are checked whenever the folder is
opened (see `normlab.data.cache`), those of another when it is first used.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from normlab.data.cache import check_files
from normlab.data.documents.encoded import EncodedDocuments

SHARD_TOKENS = 2**25
LATER = "*.shard-*.npy"  # the files that are checked when they are used
_OPEN = 4  # shards of a split that stay mapped


def stem(split: str, number: int) -> str:
    """Return what the names of the files of a shard begin with."""
    return split if number == 0 else f"{split}.shard-{number:05d}"


class ShardWriter:
    """Writes a split, shard by shard; each has `tokens` of them, and what its last part is over."""

    def __init__(self, folder: Path, split: str, *, tokens: int) -> None:
        self._folder, self._split, self._limit = folder, split, tokens
        self._parts: list[EncodedDocuments] = []
        self._tokens = 0
        self.count = 0

    def add(self, part: EncodedDocuments) -> None:
        """Take in some documents; a full shard goes to the disk."""
        self._parts.append(part)
        self._tokens += len(part.text.ids)
        if self._tokens >= self._limit:
            self.close()

    def close(self) -> None:
        """Write what is left, if there is anything."""
        if self._tokens:
            joined = EncodedDocuments.joined(self._parts)
            joined.save(self._folder, stem(self._split, self.count))
            self.count += 1
        self._parts, self._tokens = [], 0


class Shards:
    """The shards of a split that `ShardWriter` wrote, mapped when they are asked for.

    Raises ValueError naming the file of one that is damaged, and what to do.
    """

    def __init__(self, folder: Path, split: str, count: int) -> None:
        self._folder, self._split, self._count = folder, split, count
        self._open: OrderedDict[int, EncodedDocuments] = OrderedDict()
        self._checked = {0}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[EncodedDocuments]:
        return (self[number] for number in range(self._count))

    def __getitem__(self, number: int) -> EncodedDocuments:
        """Return the shard of a number from 0."""
        number = range(self._count)[number]
        if number not in self._open:
            self._open[number] = self._load(number)
        self._open.move_to_end(number)
        while len(self._open) > _OPEN:
            self._open.popitem(last=False)
        return self._open[number]

    def _load(self, number: int) -> EncodedDocuments:
        name = stem(self._split, number)
        if number not in self._checked:
            check_files(self._folder, f"{name}.*")
            self._checked.add(number)
        return EncodedDocuments.load(self._folder, name)

    def whole(self) -> EncodedDocuments:
        """Return the split in one piece; where there are several shards they are read."""
        return self[0] if self._count == 1 else EncodedDocuments.joined(list(self))


class WholeSplits(Mapping[str, Any]):
    """Splits in one piece, each put together when it is first asked for."""

    def __init__(self, shards: Mapping[str, Shards]) -> None:
        self._shards = shards
        self._joined: dict[str, EncodedDocuments] = {}

    def __getitem__(self, split: str) -> EncodedDocuments:
        if split not in self._joined:
            self._joined[split] = self._shards[split].whole()
        return self._joined[split]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shards)

    def __len__(self) -> int:
        return len(self._shards)
