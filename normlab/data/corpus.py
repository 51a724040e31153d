"""Parallel text as every source of it hands it over, and how it is read from files.

Decides the common form (`ParallelText`, `Corpus`), where lines end, and what is refused: files of
unequal length, bytes that are not UTF-8, missing or empty files, empty lines. Nothing here knows of
subwords or tensors.
"""

import gzip
import hashlib
import io
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from normlab.records.files import read_file

Form = Literal["raw", "tokenized", "bpe"]
EmptyLines = Literal["error", "drop"]
MOST_TEXT = 4 * 2**30
"""Bytes that a text may have, unpacked."""


@dataclass(frozen=True)
class ParallelText:
    """Sentence pairs of one split: line i of `source` says what line i of `target` says.

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
                "line i of the other, so repair the files (a lost line shifts all that follow)"
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

    def checked(self, *, empty_lines: EmptyLines = "error") -> "ParallelText":
        """Return the text without pairs that have a blank side.

        They are dropped and counted, or the first raises ValueError. A text without any pair and a
        line break inside a sentence raise ValueError too.
        """
        if not self.source:
            raise ValueError(
                f"{self.origins[0]} and {self.origins[1]} hold no sentence; give files with text, "
                "or point data_dir at another folder"
            )
        kept: list[int] = []
        for number, pair in enumerate(zip(self.source, self.target, strict=True)):
            for origin, line in zip(self.origins, pair, strict=True):
                if "\n" in line:
                    raise ValueError(
                        f"{origin}, sentence {number + 1}: a line break inside a sentence"
                    )
                if not line.strip() and empty_lines == "error":
                    raise ValueError(
                        f"{origin}, line {number + 1}: the line is empty; remove the pair from "
                        "both files (for training text of your own, task.corpus.empty_lines=drop "
                        "leaves such pairs out and counts them)"
                    )
            if pair[0].strip() and pair[1].strip():
                kept.append(number)
        if len(kept) == len(self.source):
            return self
        if not kept:
            raise ValueError(
                f"{self.origins[0]} and {self.origins[1]}: every pair has an empty side"
            )
        return ParallelText(
            [self.source[i] for i in kept],
            [self.target[i] for i in kept],
            origins=self.origins,
            dropped=self.dropped + len(self.source) - len(kept),
        )


class Corpus(ABC):
    """A source of parallel text.

    A concrete corpus sets the attributes and `splits`. `name` is a short identifier, `label` what a
    table must call results on it, `licence` what its origin states, `languages` the source and
    target codes. `form` says what the lines are: `raw` text, `tokenized` (space-separated Moses
    tokens, scored after detokenising) or `bpe` (pieces, `@@ ` marks a join).
    """

    name: str
    label: str
    licence: str
    languages: tuple[str, str]
    form: Form

    @abstractmethod
    def splits(self) -> dict[str, ParallelText]:
        """Return `train`, `valid` and `test`, and any further test set as `test_<name>`."""

    def origin(self) -> str:
        """Return where the text comes from without a data_dir; reads nothing."""
        return "built in"

    def key(self) -> str:
        """Return a string that changes whenever the text does; the cache of prepared data uses it.

        The default reads everything. Override it where a cheaper statement is as sure, such as the
        settings of a generator or the checksum of an archive.
        """
        digest = hashlib.sha256()
        for split, text in sorted(self.splits().items()):
            files = " ".join(map(_name, text.origins))
            sides = " ".join(text.checksums())
            digest.update(f"{split} {sides} {text.dropped} {files}\n".encode())
        return f"{self.name}-{'-'.join(self.languages)}-{self.form}-{digest.hexdigest()}"

    def describe(self) -> dict[str, object]:
        """Return plain values for the record: what the text is, its licence, sizes, checksums."""
        splits = self.splits()
        return {
            "source": self.name,
            "label": self.label,
            "licence": self.licence,
            "languages": list(self.languages),
            "form": self.form,
            "sizes": {split: len(text) for split, text in splits.items()},
            "checksums": {
                split: dict(zip(self.languages, text.checksums(), strict=True))
                for split, text in splits.items()
            },
            "files": {split: [_name(x) for x in text.origins] for split, text in splits.items()},
            "dropped_empty": {split: text.dropped for split, text in splits.items()},
        }


def _name(origin: str) -> str:
    """Return the last part of a path: in a record that travels, folders say nothing."""
    return origin.rsplit("/", 1)[-1]


def read_lines(path: Path) -> list[str]:
    """Read a UTF-8 text file, gzip-packed where its name ends in `.gz`, into lines.

    Only LF (or CR LF) ends a line: Unicode's own separators occur inside subtitles and would shift
    the pairing. Raises ValueError naming the file, and the line of the first byte that is not
    UTF-8.
    """
    try:
        data = read_file(path, most=MOST_TEXT)
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                data = packed.read(MOST_TEXT + 1)
        if len(data) > MOST_TEXT:
            raise ValueError(f"{path}: unpacks to more than {MOST_TEXT} bytes; unpack it yourself")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(
            f"cannot read {path}: {error}; restore the file or download it again"
        ) from error
    return split_lines(data, origin=str(path))


def split_lines(data: bytes, *, origin: str) -> list[str]:
    """Decode UTF-8 bytes into lines (see `read_lines`); `origin` names them in errors."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # utf-8-sig counts positions after the byte-order mark; find the line by decoding line by
        # line.
        number = next(n for n, line in enumerate(data.split(b"\n"), 1) if not _is_utf8(line))
        raise ValueError(
            f"{origin}, line {number}: not UTF-8 ({error.reason}); convert the file, for example "
            f"with: iconv -f ISO-8859-1 -t UTF-8"
        ) from error
    lines = text.replace("\r\n", "\n").split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    if not lines:
        raise ValueError(f"{origin} is empty; give a file with one sentence a line")
    return lines


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def find_text(folder: Path, split: str, lang: str, *, infix: str = "") -> Path | None:
    """Return the file `{split}{infix}.{lang}` of a folder, plain before `.gz`, or None."""
    for suffix in ("", ".gz"):
        path = folder / f"{split}{infix}.{lang}{suffix}"
        if path.is_file():
            return path
    return None


def read_parallel(
    folder: Path,
    split: str,
    source_lang: str,
    target_lang: str,
    *,
    infix: str = "",
    empty_lines: EmptyLines = "error",
) -> ParallelText:
    """Read `{split}{infix}.{lang}`, plain or `.gz`, for both languages of a folder.

    Raises ValueError naming file and line for everything that `ParallelText.checked` and
    `read_lines` refuse, and a list of what the folder holds where a file is missing.
    """
    paths: list[Path] = []
    for lang in (source_lang, target_lang):
        path = find_text(folder, split, lang, infix=infix)
        if path is None:
            raise ValueError(missing_text(folder, f"{split}{infix}.{lang}"))
        paths.append(path)
    source, target = paths
    text = ParallelText(read_lines(source), read_lines(target), origins=(str(source), str(target)))
    return text.checked(empty_lines=empty_lines)


def missing_text(folder: Path, wanted: str) -> str:
    """Say in one sentence that a file is missing, what there is instead, and what to do."""
    if not folder.is_dir():
        return f"no folder {folder} (looked for {wanted} in it); set data_dir to where the text is"
    found = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    shown = ", ".join(found[:20]) + (f" and {len(found) - 20} more" if len(found) > 20 else "")
    return (
        f"{folder} has neither {wanted} nor {wanted}.gz; it holds {shown or 'nothing'}. Add the "
        "file, or set data_dir, the language codes or the form of the text to match what is there"
    )
