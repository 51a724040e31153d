"""Lines into documents: what a blank line and a line break mean.

Decides the two forms of text: `sentences` has one a line; of `paragraphs` each line is one, and a
library finds its sentences. In both a blank line ends a document.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

from normlab.data.documents.corpus import Document
from normlab.data.documents.sentences import split_sentences

TextForm = Literal["sentences", "paragraphs"]


def read_documents(
    lines: Iterable[str], *, form: TextForm, language: str, origin: str
) -> list[Document]:
    """Return the documents of lines; each is named by `origin` and the number of its first line."""
    documents: list[Document] = []
    for number, block in blocks(lines):
        sentences = tuple(_sentences(block, form, language))
        documents.append(Document(f"{origin}, line {number}", sentences))
    return documents


def whole_document(
    lines: Iterable[str], *, form: TextForm, language: str, origin: str
) -> list[Document]:
    """Return all lines as one document, or none where all are blank.

    Here a blank line ends a paragraph, and the lines of a paragraph that was wrapped are joined.
    """
    sentences: list[str] = []
    for _, block in blocks(lines):
        paragraph = block if form == "sentences" else [" ".join(block)]
        sentences.extend(_sentences(paragraph, form, language))
    return [Document(origin, tuple(sentences))] if sentences else []


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
