"""Lines into documents, one at a time: what a blank line and a line break mean.

Decides the two forms of text: `sentences` has one a line; of `paragraphs` each line is one, and a
library finds its sentences. In both a blank line ends a document.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from normlab.data.documents.corpus import Document
from normlab.data.documents.sentences import split_sentences

TextForm = Literal["sentences", "paragraphs"]


def stream_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file, gzip-packed where its name ends in `.gz`.

    Only LF (or CR LF) ends a line. Raises ValueError naming the file, and the line that is not
    UTF-8.
    """
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                ended = line.removesuffix(b"\n")
                whole = ended.removesuffix(b"\r") if ended != line else line
                yield whole.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file, for example "
            f"with: iconv -f ISO-8859-1 -t UTF-8"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(
            f"cannot read {path}: {error}; restore the file or download it again"
        ) from error
    if not number:
        raise ValueError(f"{path} is empty; give a file with one sentence a line")


def read_documents(
    lines: Iterable[str], *, form: TextForm, language: str, origin: str
) -> Iterator[Document]:
    """Yield the documents of lines; each is named by `origin` and the number of its first line."""
    for number, block in blocks(lines):
        sentences = tuple(_sentences(block, form, language))
        yield Document(f"{origin}, line {number}", sentences)


def whole_document(
    lines: Iterable[str], *, form: TextForm, language: str, origin: str
) -> Iterator[Document]:
    """Yield all lines as one document, or none where all are blank.

    Here a blank line ends a paragraph, and the lines of a paragraph that was wrapped are joined.
    """
    sentences: list[str] = []
    for _, block in blocks(lines):
        paragraph = block if form == "sentences" else [" ".join(block)]
        sentences.extend(_sentences(paragraph, form, language))
    if sentences:
        yield Document(origin, tuple(sentences))


def blocks(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines between blank lines, stripped, with the number of the first from 1."""
    block: list[str] = []
    number = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            block.append(line.strip())
        elif block:
            yield number - len(block), block
            block = []
    if block:
        yield number + 1 - len(block), block


def _sentences(lines: Iterable[str], form: TextForm, language: str) -> Iterator[str]:
    for line in lines:
        if form == "sentences":
            yield line
        else:
            yield from split_sentences(line, language=language)
