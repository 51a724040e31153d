"""Parallel text: base classes of corpora, readers of files and tables, and the user's own text."""

import gzip
import hashlib
import io
import logging
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from normlab.data.cache import MAX_BYTES
from normlab.data.languages import check_script, language_of
from normlab.data.source import DataSource
from normlab.errors import UserError
from normlab.records.files import check_is_file

REQUIRED = ("train", "valid", "test")
# What the user should do with a file that is not UTF-8 text, by its first two bytes.
_REMEDIES = {
    b"\x1f\x8b": "it is packed by gzip: add .gz to its name",
    b"BZ": "it is packed by bzip2: unpack it",
    b"\xfd7": "it is packed by xz: unpack it",
    b"\x28\xb5": "it is packed by zstd: unpack it",
    b"PK": "it is a zip archive: unpack it",
    b"\xff\xfe": "it is UTF-16: convert it with iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "it is UTF-16: convert it with iconv -f UTF-16 -t UTF-8",
}
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

    `languages` are the source and target codes (see `language_of`). `form` says what the lines are:
    `raw` text, `tokenized` (space-separated Moses tokens, or words of a language that writes no
    spaces, scored after detokenizing) or `bpe` (subword pieces joined at `@@ `).
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
        """The text of each split, for which `read` is called only once."""
        return self.read()

    def key(self) -> str:
        texts = [(split, text.checksums()) for split, text in sorted(self.splits.items())]
        return f"{self.name} {self.label} {self.languages} {self.form} {texts}"


@dataclass(kw_only=True, eq=False)
class FolderCorpus(Corpus):
    """The user's own text, in any language pair.

    Files are called `{train,valid,test}.{language}`, plain or `.gz`. Runs on two texts with the
    same `name` count as runs on the same text.
    """

    data_dir: str | None
    source_language: str
    target_language: str
    form: Form
    name: str = "translation"
    licence = "as stated by the owner of the text"

    def __post_init__(self) -> None:
        self.languages = (self.source_language, self.target_language)
        for side, code in zip(("source", "target"), self.languages, strict=True):
            language_of(code, f"task.corpus.{side}_language")
        if self.source_language == self.target_language:
            raise UserError(
                f"task.corpus.source_language and target_language are both {self.source_language}: "
                "set different codes, which are also the files' suffixes"
            )
        if self.data_dir is None:
            files = ", ".join(f"{split}.{x}" for split in REQUIRED for x in self.languages)
            raise UserError(f"set data_dir=FOLDER to a folder with {files}")
        self._folder = Path(self.data_dir).expanduser()
        self.label = self._folder.resolve().name

    def read(self) -> dict[str, ParallelText]:
        texts = {split: read_parallel(self._folder, split, self.languages) for split in REQUIRED}
        for split, text in texts.items():
            for code, lines in zip(self.languages, (text.source, text.target), strict=True):
                check_script(lines, language_of(code, "languages"), f"{split}.{code}")
        return texts

    def files(self) -> Mapping[str, Path]:
        return files_of(self._folder, REQUIRED, self.languages)


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


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file of at most `MAX_BYTES` bytes unpacked (see `iterate_lines`)."""
    return list(iterate_lines(path, most=MAX_BYTES))


def iterate_lines(path: Path, *, most: int | None = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file of at most `most` bytes, plain or `.gz`.

    Raises UserError, with the file and the line, if the file cannot be read or is not UTF-8.
    """
    try:
        check_is_file(path)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            lines = file if most is None else io.BytesIO(file.read(most))
            if most is not None and file.read(1):
                raise UserError(f"{path}: unpacks to more than {most} bytes; unpack it yourself")
            yield from decoded(lines, origin=str(path))
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read {path}: {error}; restore or download it again") from error


def decoded(lines: Iterable[bytes], *, origin: str) -> Iterator[str]:
    """Decode lines of UTF-8 and strip LF or CR LF; `origin` describes the text in errors.

    Unicode's other line separators do not end a line, because they occur inside subtitles. Byte
    order marks are stripped from every line, because a text may be joined from files that have one.
    """
    number = 0
    for number, line in enumerate(lines, 1):
        text = line.removesuffix(b"\n").rstrip(b"\r")
        if number == 1 and not line.endswith(b"\n") and b"\r" in text:
            raise UserError(f"{origin}: its lines end in CR only; convert them to LF with mac2unix")
        remedy = _REMEDIES.get(line[:2] if number == 1 else b"", "convert it with iconv")
        try:
            decoded_line = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            where = f"{origin}, line {number}: not UTF-8"
            raise UserError(f"{where} ({error.reason}); {remedy}") from error
        if number == 1 and decoded_line.count("\0") * 3 > len(decoded_line):
            raise UserError(
                f"{origin}, line {number}: has NUL characters, so it is UTF-16; convert it with "
                "iconv -f UTF-16LE -t UTF-8"
            )
        yield decoded_line
    if not number:
        raise UserError(f"{origin} is empty; it needs one sentence per line")


def find_text(folder: Path, name: str) -> Path | None:
    """Return the path of `name` or `name.gz` in a folder, or None if neither exists.

    Raises UserError if both exist, because they may differ.
    """
    paths = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if len(paths) > 1:
        raise UserError(f"{folder} has both {name} and {name}.gz: keep one")
    return paths[0] if paths else None


def files_of(folder: Path, stems: Iterable[str], languages: Sequence[str]) -> dict[str, Path]:
    """Return the files `{stem}.{language}[.gz]` by name, or raise UserError if one is missing."""
    paths = [path for stem in stems for path in parallel_files(folder, stem, languages)]
    return {path.name: path for path in paths}


def parallel_files(folder: Path, stem: str, languages: Sequence[str]) -> list[Path]:
    """Return `{stem}.{language}[.gz]` for each language, or raise UserError if one is missing."""
    if not folder.is_dir():
        names = " and ".join(f"{stem}.{language}" for language in languages)
        raise UserError(f"data_dir={folder} is not a folder: set it to the folder with {names}")
    paths: list[Path] = []
    for name in (f"{stem}.{language}" for language in languages):
        if (path := find_text(folder, name)) is None:
            raise UserError(
                f"{folder} has neither {name} nor {name}.gz: add the file, or change data_dir, the "
                "languages or the form of the text"
            )
        paths.append(path)
    return paths


def read_parallel(folder: Path, stem: str, languages: Sequence[str]) -> ParallelText:
    """Read `{stem}.{language}[.gz]` of each language, or raise UserError if that fails."""
    paths = parallel_files(folder, stem, languages)
    return paired(paths, map(read_lines, paths))


def paired(files: Sequence[object], sides: Iterable[list[str]]) -> ParallelText:
    """Pair the lines of two files, or raise UserError if one has more lines."""
    text = ParallelText(*sides)
    if len(text.source) != len(text.target):
        raise UserError(
            f"{files[0]} has {len(text.source)} lines and {files[1]} has {len(text.target)}: line "
            "i of one must translate line i of the other"
        )
    return text


def load_tables(path: str, config: str | None = None, *, files: str) -> Any:
    """Load a data set from the Hugging Face Hub or a local folder, and return its tables by split.

    Raises UserError if that fails. `files` describes for the user what data_dir must contain.
    """
    import datasets  # slow to import, and not needed for plain files

    hub = logging.getLogger("huggingface_hub")
    former = hub.level
    hub.setLevel(logging.ERROR)  # without a network, the library warns about each retry
    try:
        return datasets.load_dataset(path, config)
    except Exception as error:
        cause = " ".join(str(error).split())[:200]
        raise UserError(
            f"cannot load the data set {path} ({type(error).__name__}: {cause}); set data_dir="
            f"FOLDER to a folder with {files} (task=toy and task/corpus=pydoc need no data)"
        ) from error
    finally:
        hub.setLevel(former)
