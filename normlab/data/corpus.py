"""Parallel text: what a corpus is, text files and tables, and language pairs in a folder."""

import gzip
import hashlib
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from normlab.records.files import check_is_file

REQUIRED = ("train", "valid", "test")
Form = Literal["raw", "tokenized", "bpe"]
EmptyLines = Literal["error", "drop"]
MOST_TEXT = 4 * 2**30
"""Bytes that a parallel text may have, unpacked."""

_LANGUAGE = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*")
_TABLES = ("*.jsonl", "*.jsonl.gz", "*.parquet")


@dataclass(frozen=True)
class ParallelText:
    """Sentence pairs of one split: line i of `target` translates line i of `source`.

    `origins` names where the two sides came from (a file, a data set), for messages; `dropped`
    counts the pairs that the reader left out on purpose.
    """

    source: list[str]
    target: list[str]
    origins: tuple[str, str] = ("source", "target")
    dropped: int = 0

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise ValueError(
                f"the two sides differ in length: {self.origins[0]} has {len(self.source)} lines "
                f"and {self.origins[1]} has {len(self.target)}; line i of one must translate "
                "line i of the other, so repair the files"
            )

    def __len__(self) -> int:
        return len(self.source)

    def checksums(self) -> tuple[str, str]:
        """Return the SHA-256 of each side as `sha256sum` gives it for the unpacked file."""
        source, target = (
            hashlib.sha256("".join(line + "\n" for line in side).encode()).hexdigest()
            for side in (self.source, self.target)
        )
        return source, target

    def pick(self, indices: Sequence[int], *, dropped: int = 0) -> "ParallelText":
        """Return some of the pairs."""
        source, target = ([side[i] for i in indices] for side in (self.source, self.target))
        return ParallelText(source, target, origins=self.origins, dropped=self.dropped + dropped)

    def checked(self, *, empty_lines: EmptyLines = "error") -> "ParallelText":
        """Return the text without pairs that have a blank side.

        They are dropped and counted, or the first raises ValueError; so do a line break inside a
        sentence and a text without any pair.
        """
        kept: list[int] = []
        for i, pair in enumerate(zip(self.source, self.target, strict=True)):
            blank = [not line.strip() for line in pair]
            for origin, line in zip(self.origins, pair, strict=True):
                if "\n" in line:
                    raise ValueError(f"{origin}, sentence {i + 1}: a line break inside a sentence")
            if not any(blank):
                kept.append(i)
            elif empty_lines == "error":
                raise ValueError(
                    f"{self.origins[blank.index(True)]}, line {i + 1}: the line is empty; remove "
                    "the pair from both files (task.corpus.empty_lines=drop does so for your own "
                    "training text)"
                )
        if not kept:
            raise ValueError(f"{' and '.join(self.origins)}: no pair, or all have an empty side")
        return self.pick(kept, dropped=len(self) - len(kept))


class Source(ABC):
    """Where text comes from.

    `name` is a short identifier, `label` what a table must call results on the text, `licence` what
    its origin states.
    """

    name: str
    label: str
    licence: str

    @abstractmethod
    def key(self) -> str:
        """Return a string that changes whenever the text does, for the cache of prepared data."""

    def origin(self) -> str:
        """Return where the text comes from without a data_dir; reads nothing."""
        return "built in"

    def describe(self) -> dict[str, object]:
        """Return plain values for the record: what the text is, its licence, sizes, checksums."""
        return {"source": self.name, "label": self.label, "licence": self.licence}


class Corpus(Source):
    """A source of parallel text.

    `languages` are the source and target codes. `form` says what the lines are: `raw` text,
    `tokenized` (space-separated Moses tokens, scored after detokenizing) or `bpe` (pieces, `@@ `
    marks a join).
    """

    languages: tuple[str, str]
    form: Form

    @abstractmethod
    def splits(self) -> dict[str, ParallelText]:
        """Return `train`, `valid` and `test`, and any further test set as `test_<name>`."""

    def key(self) -> str:
        digest = hashlib.sha256()
        for split, text in sorted(self.splits().items()):
            files, sides = map(" ".join, (map(_file_name, text.origins), text.checksums()))
            digest.update(f"{split} {sides} {text.dropped} {files}\n".encode())
        return f"{self.name}-{'-'.join(self.languages)}-{self.form}-{digest.hexdigest()}"

    def describe(self) -> dict[str, object]:
        splits = self.splits()
        return {
            **super().describe(),
            "languages": list(self.languages),
            "form": self.form,
            "sizes": {split: len(text) for split, text in splits.items()},
            "checksums": {
                split: dict(zip(self.languages, text.checksums(), strict=True))
                for split, text in splits.items()
            },
            "files": {s: [_file_name(name) for name in x.origins] for s, x in splits.items()},
            "dropped_empty": {split: text.dropped for split, text in splits.items()},
        }


def _file_name(origin: str) -> str:
    """Return the last part of a path: a record travels, and folders say nothing elsewhere."""
    return origin.rsplit("/", 1)[-1]


class FolderCorpus(Corpus):
    """Text of the user's own, of any language pair.

    Files are `{split}{infix}.{language}`, plain or `.gz`; further test sets are
    `test_<name>{infix}.{language}`. `form` is stated, not guessed: scores and subwords depend on
    it. `empty_lines` applies to training text: `error`, or `drop` the pair and count it. `name` is
    part of the experiment: runs on two texts of one name would be taken for the same.
    """

    licence = "as stated by the owner of the text"

    def __init__(
        self,
        data_dir: str | None,
        *,
        source_language: str,
        target_language: str,
        form: Form,
        infix: str,
        empty_lines: EmptyLines,
        name: str = "translation",
    ) -> None:
        if data_dir is None:
            raise ValueError(
                "task=translation reads your own text: set data_dir=FOLDER to a folder with train, "
                f"valid and test as train{infix}.{source_language}, train{infix}.{target_language} "
                "and so on (plain or .gz)"
            )
        self.name, self.form = name, form
        self._folder = Path(data_dir).expanduser()
        self._infix = infix
        self._empty_lines: EmptyLines = empty_lines
        for key, code in (("source", source_language), ("target", target_language)):
            if not _LANGUAGE.fullmatch(code):
                raise ValueError(
                    f"task.corpus.{key}_language={code!r}: give a language's code, such as de or "
                    "pt_BR, which the file's name ends in"
                )
        self.languages = (source_language, target_language)
        self.label = self._folder.resolve().name

    def splits(self) -> dict[str, ParallelText]:
        return self._text

    @cached_property
    def _text(self) -> dict[str, ParallelText]:
        end = f"{self._infix}.{self.languages[0]}"
        names = {
            path.name.removesuffix(".gz").removesuffix(end)
            for path in self._folder.glob("test_*")
            if path.name.removesuffix(".gz").endswith(end)
        }
        return {
            split: read_parallel(
                self._folder,
                f"{split}{self._infix}",
                *self.languages,
                empty_lines=self._empty_lines if split == "train" else "error",
            )
            for split in (*REQUIRED, *sorted(name for name in names if "." not in name))
        }


def check_german_english(corpus: str, source: str, target: str) -> tuple[str, str]:
    """Return the two languages of a German-English corpus; ValueError for any other."""
    if {source, target} != {"de", "en"}:
        raise ValueError(
            f"{corpus} here is German-English: task.corpus.source_language={source} and "
            f"target_language={target} must be de and en, in either order"
        )
    return source, target


def read_lines(path: Path) -> list[str]:
    """Read the lines of a parallel text, of at most `MOST_TEXT` bytes (see `stream_lines`)."""
    return list(stream_lines(path, most=MOST_TEXT))


def stream_lines(path: Path, *, most: int | None = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file, gzip-packed where its name ends in `.gz`.

    Raises ValueError naming the file, and the line that is not UTF-8; also above `most` bytes.
    """
    try:
        check_is_file(path)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from decoded(_limited(file, path, most), origin=str(path))
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(
            f"cannot read {path}: {error}; restore the file or download it again"
        ) from error


def _limited(file: Any, path: Path, most: int | None) -> Iterator[bytes]:
    read = 0
    while line := file.readline(-1 if most is None else most + 1):
        read += len(line)
        if most is not None and read > most:
            raise ValueError(f"{path}: unpacks to more than {most} bytes; unpack it yourself")
        yield line


def decoded(lines: Iterable[bytes], *, origin: str) -> Iterator[str]:
    """Yield lines of UTF-8 without LF (or CR LF); `origin` names them in errors.

    Unicode's own line separators occur inside subtitles, so they end no line here.
    """
    number = 0
    for number, line in enumerate(lines, 1):
        end = b"\r\n" if line.endswith(b"\r\n") else b"\n"
        try:
            yield line.removesuffix(end).decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{origin}, line {number}: not UTF-8 ({error.reason}); convert the file, for "
                "example with: iconv -f ISO-8859-1 -t UTF-8"
            ) from error
    if not number:
        raise ValueError(f"{origin} is empty; give a file with one sentence per line")


def find_text(folder: Path, name: str) -> Path | None:
    """Return the file `name` of a folder, plain before `.gz`, or None."""
    paths = (folder / name, folder / f"{name}.gz")
    return next((path for path in paths if path.is_file()), None)


def read_parallel(
    folder: Path, stem: str, source: str, target: str, *, empty_lines: EmptyLines = "error"
) -> ParallelText:
    """Read `{stem}.{language}`, plain or `.gz`, for both languages of a folder.

    Raises ValueError naming file and line, or the folder's files where one is missing.
    """
    names = (f"{stem}.{source}", f"{stem}.{target}")
    paths = [find_text(folder, name) for name in names]
    for name, path in zip(names, paths, strict=True):
        if path is None:
            raise ValueError(missing_text(folder, name))
    found = [path for path in paths if path is not None]
    return paired([read_lines(path) for path in found], found).checked(empty_lines=empty_lines)


def paired(sides: Sequence[list[str]], files: Sequence[Path | str]) -> ParallelText:
    """Pair two sides read from files, which name them in errors."""
    source, target = sides
    return ParallelText(source, target, origins=(str(files[0]), str(files[1])))


def missing_text(folder: Path, wanted: str) -> str:
    """Return a sentence: which file is missing, what there is instead, and what to do."""
    if not folder.is_dir():
        return f"no folder {folder} (looked for {wanted} in it); set data_dir to where the text is"
    found = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))[:20]
    return (
        f"{folder} has neither {wanted} nor {wanted}.gz; it holds {', '.join(found) or 'nothing'}. "
        "Add the file, or set data_dir, the languages or the form of the text to match it"
    )


def read_table(
    path: str,
    *,
    splits: Iterable[str],
    languages: tuple[str, str],
    revision: str | None = None,
) -> dict[str, ParallelText]:
    """Load `splits` of a data set of the Hugging Face Hub, or of a folder of its files.

    A row holds both sentences as columns named by language (`de`, `en`), or under `translation`.
    Raises what `datasets` raises where it finds nothing, and ValueError for other splits or rows.
    """
    import datasets  # heavy, and not needed where the text is in plain files

    tables: Any = datasets.load_dataset(path, revision=revision)
    missing = [split for split in splits if split not in tables]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}; it has {', '.join(map(str, tables))}")
    return {split: _pairs(tables[split], f"{path}:{split}", languages) for split in splits}


def _pairs(table: Any, origin: str, languages: tuple[str, str]) -> ParallelText:
    columns = table.column_names
    if "translation" in columns:
        rows = table["translation"]
        sides = [[row[lang] for row in rows] for lang in languages if rows and lang in rows[0]]
    else:
        sides = [list(table[lang]) for lang in languages if lang in columns]
    if len(sides) != 2:
        raise ValueError(
            f"{origin} has the columns {', '.join(columns)}; needed are {' and '.join(languages)}, "
            "or `translation` with both; give a data set of this language pair"
        )
    return paired(
        [[str(line).strip() for line in side] for side in sides],
        [f"{origin}:{lang}" for lang in languages],
    )


def has_tables(folder: Path) -> bool:
    """Tell whether a folder holds JSON lines or Parquet files, at its top or one level below."""
    kinds = (*_TABLES, *(f"*/{kind}" for kind in _TABLES))
    return any(next(folder.glob(kind), None) is not None for kind in kinds)


def unavailable(what: str, tried: str, error: Exception, ways_out: str) -> ValueError:
    """Return the error for data that could not be had: what was tried and the ways out."""
    cause = " ".join(str(error).split())
    short = cause if len(cause) <= 200 else cause[:200] + "..."
    return ValueError(
        f"cannot get {what}: tried {tried}, which failed with {type(error).__name__}: {short}. "
        f"{ways_out} Or use task=toy, which needs no data and no network."
    )
