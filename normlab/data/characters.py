"""A text read as a single sequence of characters with line breaks, for `task.pieces=characters`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from unicodedata import normalize

from normlab.data.cache import file_checksum
from normlab.data.documents import Document, DocumentCorpus
from normlab.data.text_files import iterate_lines
from normlab.data.vocabulary import LINE_BREAK
from normlab.errors import UserError


@dataclass(kw_only=True, eq=False)
class CharacterText(DocumentCorpus):
    """A UTF-8 text file, plain or `.gz`, whose end is held out.

    The last fraction `test_share` of the characters is the test split, and the fraction
    `valid_share` before it is the validation split. Each split is one document of one sentence, in
    which `LINE_BREAK` stands for a line break. `data_dir` is the file, or a folder with `file`,
    which can be downloaded from `url`.
    """

    data_dir: str | None
    name: str
    file: str
    url: str | None
    licence: str
    valid_share: float
    test_share: float
    language: str = "en"

    def __post_init__(self) -> None:
        self.label = self.name
        if self.data_dir is None:
            raise UserError(f"set data_dir to {self.file}, or to its folder{self._offer}")
        if not self._path.is_file():
            raise UserError(f"data_dir={self._path} does not exist{self._offer}")

    @property
    def _offer(self) -> str:
        return "" if self.url is None else f"; download it from {self.url}"

    @property
    def _path(self) -> Path:
        place = Path(str(self.data_dir)).expanduser()
        return place / self.file if place.is_dir() else place

    @cached_property
    def _text(self) -> str:
        lines = (line.rstrip("\r\n") for line in iterate_lines(self._path))
        return normalize("NFC", LINE_BREAK.join(lines))

    def files(self) -> Mapping[str, Path]:
        return {self._path.name: self._path}

    def key(self) -> str:
        shares = f"{self.valid_share} {self.test_share}"
        return f"{self.name} {file_checksum(self._path)} {shares} normlab.characters/1"

    def documents(self) -> Iterator[tuple[str, Document]]:
        text = self._text
        end = len(text) - round(self.test_share * len(text))
        middle = end - round(self.valid_share * len(text))
        valid = f"task.corpus.valid_share={self.valid_share}"
        test = f"task.corpus.test_share={self.test_share}"
        parts = {
            "test": (text[end:], f"raise {test}"),
            "valid": (text[middle:end], f"raise {valid}"),
            "train": (text[:middle], f"lower {valid} or {test}"),
        }
        for split, (part, cure) in parts.items():
            if not part.strip():
                raise UserError(
                    f"{self._path} has {len(text)} characters, which leaves no text for {split}; "
                    f"{cure}, or add text"
                )
            yield split, [part]
