"""Base classes of sources of text and of parallel text, and the cached preparation of a source."""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from normlab.data.cache import cache_key, cached_folder
from normlab.data.source import DataSource
from normlab.errors import UserError

REQUIRED = ("train", "valid", "test")
Form = Literal["raw", "tokenized", "bpe"]


@dataclass(frozen=True)
class ParallelText:
    """The sentence pairs of a split. Line i of `target` translates line i of `source`."""

    source: list[str]
    target: list[str]

    def __len__(self) -> int:
        return len(self.source)

    def checksums(self) -> list[str]:
        """Return the SHA-256 of each side, as `sha256sum` prints it for the unpacked file."""
        sides = ("".join(f"{line}\n" for line in side) for side in (self.source, self.target))
        return [hashlib.sha256(side.encode()).hexdigest() for side in sides]

    def pick(self, indices: Sequence[int]) -> "ParallelText":
        """Return the pairs at `indices`."""
        return ParallelText(*([side[i] for i in indices] for side in (self.source, self.target)))


class Source(DataSource):
    """A source of text.

    `name` is a short identifier, `label` is the name of the text in result tables, and `licence` is
    the license stated by the publisher.
    """

    name: str
    label: str
    licence: str

    @abstractmethod
    def key(self) -> str:
        """Return the cache key of the text, a string that changes whenever the text changes."""


class Corpus(Source):
    """A source of parallel text.

    `languages` are the source and target codes (see `normlab.data.languages`). `form` says what the
    lines are: `raw` text, `tokenized` (space-separated Moses tokens, or words of a language that
    writes no spaces, scored after detokenizing) or `bpe` (subword pieces joined at `@@ `).
    """

    languages: tuple[str, str]
    form: Form

    @abstractmethod
    def read(self) -> dict[str, ParallelText]:
        """Return `train`, `valid`, `test`, and any further test sets as `test_<name>`.

        Raises UserError if the text is missing or damaged.
        """

    @cached_property
    def splits(self) -> dict[str, ParallelText]:
        """The text of each split. It is read only once."""
        return self.read()

    def key(self) -> str:
        texts = [(split, text.checksums()) for split, text in sorted(self.splits.items())]
        return f"{self.name} {self.label} {self.languages} {self.form} {texts}"


@dataclass(kw_only=True, eq=False)
class GermanEnglish(Corpus):
    """A published corpus of German and English, in either direction."""

    data_dir: str | None
    source_language: str
    target_language: str

    def __post_init__(self) -> None:
        self.languages = (self.source_language, self.target_language)
        if set(self.languages) != {"de", "en"}:
            raise UserError(f"{self.name}: source_language and target_language must be de and en")


# How a source is prepared -------------------------------------------------------------------------

_DESCRIPTION = "description.json"


def cached_preparation(
    corpus: Source, settings: Mapping[str, object], build: Callable[[Path], dict[str, Any]]
) -> tuple[Path, dict[str, Any]]:
    """Return the folder of prepared data and its description, building them if not cached."""
    content = {"content": corpus.key(), "tokenizers": version("tokenizers")}
    name = f"{corpus.name}-{cache_key({**content, **settings})}"

    def fill(folder: Path) -> None:
        description = json.dumps(build(folder), indent=1)
        (folder / _DESCRIPTION).write_text(description, "utf-8")

    folder = cached_folder(name, fill)
    return folder, json.loads((folder / _DESCRIPTION).read_text("utf-8"))


def describe_corpus(
    corpus: Source, by_split: Mapping[str, Mapping[str, Any]], **values: Any
) -> dict[str, Any]:
    """Return the description of the data for a record: overall values, and values per split."""
    label = corpus.label.encode(errors="replace").decode()  # a folder's name may not be UTF-8
    origin = {"source": corpus.name, "label": label, "licence": corpus.licence}
    names = by_split["train"]
    tables = {name: {split: x[name] for split, x in by_split.items()} for name in names}
    return {**origin, **values, **tables}


def check_splits(
    name: str, sizes: Mapping[str, int], *, cure: str = "add the missing files"
) -> None:
    """Raise UserError if a required split of a corpus has no examples."""
    missing = [split for split in REQUIRED if not sizes.get(split)]
    if missing:
        counts = ", ".join(f"{split}: {size}" for split, size in sizes.items())
        raise UserError(
            f"corpus {name} has no examples in {' and '.join(missing)} "
            f"(sizes: {counts or 'none'}); {cure}"
        )
