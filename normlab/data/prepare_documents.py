"""Prepares a corpus of documents: builds and caches its vocabulary, token ids and description."""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from normlab.data.cache import file_checksum
from normlab.data.corpus import (
    REQUIRED,
    cached_preparation,
    check_splits,
    describe_corpus,
)
from normlab.data.documents import DocumentCorpus, blocks
from normlab.data.encoded import EncodedDocuments, EncodedText, length_statistics, offsets_of
from normlab.data.text_files import iterate_lines
from normlab.data.vocabulary import DocumentTokenizer, Pieces
from normlab.errors import UserError

DOCUMENTS_FORMAT = "normlab.documents/8"
SAMPLE_BYTES = 100_000_000  # size of the sample of a longer text that a vocabulary is learned from
_DOCUMENTS = 1_000  # number of documents encoded at once
_TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class PreparedDocuments:
    """A corpus of documents, ready to train on. `description` goes into a run's record."""

    splits: dict[str, EncodedDocuments]
    tokenizer: DocumentTokenizer
    description: dict[str, Any]

    @classmethod
    def restored(
        cls, vocabulary: Mapping[str, str], description: dict[str, Any]
    ) -> "PreparedDocuments":
        """Return a corpus without splits, with the tokenizer from the file saved with a run."""
        return cls({}, DocumentTokenizer.of_text(vocabulary[_TOKENIZER]), description)

    def vocabulary(self) -> dict[str, str]:
        """Return the vocabulary file as text, keyed by its name."""
        return {_TOKENIZER: self.tokenizer.text()}


def prepare_documents(
    corpus: DocumentCorpus, *, vocab_size: int, pieces: Pieces, lowercase: bool
) -> PreparedDocuments:
    """Tokenize, encode and describe a corpus, or load it from the cache.

    The text may be larger than memory. The vocabulary is learned only from `train`. Duplicates of
    an earlier document, in the same or another split, are left out and counted. Raises UserError if
    a split is missing or empty.
    """
    how = {"pieces": pieces, "lowercase": lowercase}

    def build(folder: Path) -> dict[str, Any]:
        repeated = _write_text(corpus, folder)
        every = math.ceil((folder / "train.txt").stat().st_size / SAMPLE_BYTES)
        sample = islice(blocks(iterate_lines(folder / "train.txt")), 0, None, every)
        sentences = [sentence for document in sample for sentence in document]
        tokenizer = DocumentTokenizer.train(sentences, vocab_size=vocab_size, **how)
        tokenizer.save(folder / _TOKENIZER)
        by_split = {
            split: {"repeated_documents": count, **_encode_split(folder, split, tokenizer)}
            for split, count in repeated.items()
        }
        vocabulary = {**how, "size": len(tokenizer)}
        return describe_corpus(corpus, by_split, language=corpus.language, vocabulary=vocabulary)

    settings = {"format": DOCUMENTS_FORMAT, "vocab_size": vocab_size, **how}
    folder, description = cached_preparation(corpus, settings, build)
    splits = {split: EncodedDocuments.load(folder, split) for split in description["sizes"]}
    return PreparedDocuments(splits, DocumentTokenizer.load(folder / _TOKENIZER), description)


def _write_text(corpus: DocumentCorpus, folder: Path) -> dict[str, int]:
    """Write the documents of each split to `<split>.txt`, separated by blank lines.

    Return the number of duplicate documents that were left out of each split.
    """
    hashes: set[bytes] = set()
    repeated, sizes = Counter[str](), Counter[str]()
    for split, document in corpus.documents():
        text = "".join(f"{sentence}\n" for sentence in document).encode()
        digest = hashlib.sha256(text).digest()[:8]
        if digest in hashes:
            repeated[split] += 1
            continue
        hashes.add(digest)
        with (folder / f"{split}.txt").open("ab") as file:
            file.write(b"\n" + text if sizes[split] else text)
        sizes[split] += 1
    cure = (
        "add the missing files, put a blank line between documents, or raise "
        "task.corpus.valid_share and task.corpus.test_share"
    )
    check_splits(corpus.name, sizes, cure=cure)
    return {split: repeated[split] for split in dict.fromkeys([*REQUIRED, *sorted(sizes)])}


def _encode_split(folder: Path, split: str, tokenizer: DocumentTokenizer) -> dict[str, Any]:
    """Replace the text file of a split with its encoded arrays, and return their description.

    Sentences without tokens (for example, only control characters) are left out, and so are
    documents that consist of such sentences. `lengths` is in tokens per sentence.
    """
    path = folder / f"{split}.txt"
    documents = blocks(iterate_lines(path))
    while part := list(islice(documents, _DOCUMENTS)):
        sentences = [sentence for document in part for sentence in document]
        encoded = tokenizer.encode(sentences)
        has_tokens = np.array([len(ids) > 0 for ids, _ in encoded])
        owner = np.repeat(np.arange(len(part)), [len(document) for document in part])
        EncodedDocuments(
            EncodedText.from_sentences(ids for ids, _ in encoded if ids),
            documents=offsets_of(np.unique(owner[has_tokens], return_counts=True)[1]),
            begins=np.fromiter((b for _, begins in encoded for b in begins), bool),
            characters=np.fromiter((len(normalize("NFC", x)) for x in sentences), np.int32)[
                has_tokens
            ],
        ).append(folder, split)
    checksum = file_checksum(path)
    path.unlink()
    ids = folder / f"{split}.ids"  # missing if the split has only blank lines
    if not ids.is_file() or not ids.stat().st_size:
        raise UserError(f"no sentence of {split} has any tokens; check that it is text")
    data = EncodedDocuments.load(folder, split)
    return {
        "checksums": checksum,
        "sizes": len(data),
        "sentences": len(data.text),
        "tokens": len(data.text.ids),
        "unknown": int((data.text.ids == DocumentTokenizer.unk_id).sum()),
        "lengths": length_statistics(data.text.lengths),
    }
