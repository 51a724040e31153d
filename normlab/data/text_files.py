"""Reads the lines of text files in UTF-8, plain or `.gz`, and pairs the lines of two languages."""

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from normlab.data.cache import MAX_BYTES
from normlab.data.corpus import ParallelText
from normlab.errors import UserError
from normlab.records.files import check_is_file

# What the user should do with a file that is not UTF-8 text, by its first two bytes.
_REMEDIES = {
    b"\x1f\x8b": "it is compressed with gzip; add .gz to its name",
    b"BZ": "it is compressed with bzip2; unpack it",
    b"\xfd7": "it is compressed with xz; unpack it",
    b"\x28\xb5": "it is compressed with zstd; unpack it",
    b"PK": "it is a zip archive; unpack it",
    b"\xff\xfe": "it is UTF-16: convert it with iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "it is UTF-16: convert it with iconv -f UTF-16 -t UTF-8",
}


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file; see `iterate_lines`, with a limit of `MAX_BYTES`."""
    return list(iterate_lines(path, most=MAX_BYTES))


def iterate_lines(path: Path, *, most: int | None = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file, plain or `.gz`.

    Raises UserError, with the file and the line, if the file cannot be read, is not UTF-8, or
    unpacks to more than `most` bytes.
    """
    try:
        check_is_file(path)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            lines = file if most is None else io.BytesIO(file.read(most))
            if most is not None and file.read(1):
                raise UserError(f"{path} unpacks to more than {most} bytes; unpack it yourself")
            yield from decoded(lines, origin=str(path))
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read {path}: {error}; restore or download it again") from error


def decoded(lines: Iterable[bytes], *, origin: str) -> Iterator[str]:
    """Decode lines of UTF-8 and strip LF or CR LF; `origin` describes the text in errors.

    Unicode's other line separators do not end a line, because they occur inside subtitles. Byte
    order marks are stripped from every line, because a text may be joined from files that have one.
    """
    number, blank = 0, True
    for number, line in enumerate(lines, 1):
        text = line.removesuffix(b"\n").rstrip(b"\r")
        remedy = _REMEDIES.get(line[:2] if number == 1 else b"", "convert it with iconv")
        try:
            decoded_line = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            where = f"{origin}, line {number} is not UTF-8"
            raise UserError(f"{where} ({error.reason}); {remedy}") from error
        if number == 1 and not line.endswith(b"\n") and b"\r" in text:
            raise UserError(
                f"{origin} has lines that end in CR only; convert them to LF with mac2unix"
            )
        if blank and decoded_line.count("\0") * 3 > len(decoded_line):  # the first filled line
            order = "BE" if number == 1 and decoded_line.startswith("\0") else "LE"
            raise UserError(
                f"{origin}, line {number} has NUL characters, so the text is UTF-16; convert it "
                f"with iconv -f UTF-16{order} -t UTF-8"
            )
        blank = blank and not decoded_line
        yield decoded_line
    if not number:
        raise UserError(f"{origin} is empty; it needs one sentence per line")


def find_text(folder: Path, name: str) -> Path | None:
    """Return the path of `name` or `name.gz` in a folder, or None if neither exists.

    Raises UserError if both exist, because they may differ.
    """
    paths = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if len(paths) > 1:
        raise UserError(f"{folder} has both {name} and {name}.gz; keep one")
    return paths[0] if paths else None


def files_of(folder: Path, stems: Iterable[str], languages: Sequence[str]) -> dict[str, Path]:
    """Return the files `{stem}.{language}[.gz]`, keyed by name.

    Raises UserError if one is missing.
    """
    paths = [path for stem in stems for path in parallel_files(folder, stem, languages)]
    return {path.name: path for path in paths}


def parallel_files(folder: Path, stem: str, languages: Sequence[str]) -> list[Path]:
    """Return `{stem}.{language}[.gz]` for each language, or raise UserError if one is missing."""
    if not folder.is_dir():
        names = " and ".join(f"{stem}.{language}" for language in languages)
        raise UserError(f"data_dir={folder} is not a folder; set it to the folder with {names}")
    paths: list[Path] = []
    for name in (f"{stem}.{language}" for language in languages):
        if (path := find_text(folder, name)) is None:
            raise UserError(
                f"{folder} has neither {name} nor {name}.gz; add the file, or change data_dir, "
                "the languages or the form of the text"
            )
        paths.append(path)
    return paths


def read_parallel(folder: Path, stem: str, languages: Sequence[str]) -> ParallelText:
    """Read `{stem}.{language}[.gz]` for both languages, or raise UserError if that fails."""
    paths = parallel_files(folder, stem, languages)
    return paired(paths, map(read_lines, paths))


def paired(files: Sequence[object], sides: Iterable[list[str]]) -> ParallelText:
    """Pair the lines of two files, or raise UserError if one has more lines."""
    text = ParallelText(*sides)
    if len(text.source) != len(text.target):
        raise UserError(
            f"{files[0]} has {len(text.source)} lines and {files[1]} has {len(text.target)}, but "
            "line i of one must translate line i of the other"
        )
    return text
