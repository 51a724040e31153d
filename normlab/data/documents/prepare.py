"""From documents to what masked and causal language modelling train on: ids and a description.

Decides what is left out (a document that stands in a split already, a sentence without a token),
what the cache key depends on, and what a record says about its text.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from normlab.data.cache import cache_key, cached_folder
from normlab.data.documents.corpus import (
    Document,
    DocumentCorpus,
    check_splits,
    checksum,
    distinct,
)
from normlab.data.documents.encoded import EncodedDocuments
from normlab.data.documents.tokenizer import DocumentTokenizer, Pieces
from normlab.data.encoded import EncodedText
from normlab.data.prepare import length_statistics

FORMAT = "normlab.documents/1"
_CHUNK = 20_000  # sentences that are lists of Python numbers at a time


@dataclass(frozen=True)
class PreparedDocuments:
    """A corpus ready to train on: one vocabulary, the encoded splits, and what a record says."""

    splits: dict[str, EncodedDocuments]
    tokenizer: DocumentTokenizer
    description: dict[str, Any]


def prepare_documents(
    corpus: DocumentCorpus,
    *,
    vocab_size: int,
    pieces: Pieces,
    lowercase: bool,
    max_length: int,
    cache: Path | None = None,
) -> PreparedDocuments:
    """Segment, encode and describe a corpus, or take that from the cache (null: the user's).

    The vocabulary is learnt from `train` alone. `max_length` changes no array: the description
    counts the sentences that are longer (`long_sentences`), which examples cut and windows
    continue. Raises ValueError for what `check_splits` and `DocumentTokenizer.train` refuse.
    """
    settings = {
        "format": FORMAT,
        "content": corpus.key(),
        "label": corpus.label,
        "vocab_size": vocab_size,
        "pieces": pieces,
        "lowercase": lowercase,
        "tokenizers": tokenizers.__version__,
    }

    def build(folder: Path) -> None:
        _build(folder, corpus, vocab_size=vocab_size, pieces=pieces, lowercase=lowercase)

    folder = cached_folder(f"{corpus.name}-{cache_key(settings)}", build, root=cache)
    description = json.loads((folder / "description.json").read_text("utf-8"))
    splits = {split: EncodedDocuments.load(folder, split) for split in description["sizes"]}
    description["max_length"] = max_length
    description["long_sentences"] = {
        split: int((data.text.lengths > max_length).sum()) for split, data in splits.items()
    }
    return PreparedDocuments(splits, DocumentTokenizer.load(folder), description)


def _build(
    folder: Path, corpus: DocumentCorpus, *, vocab_size: int, pieces: Pieces, lowercase: bool
) -> None:
    """Write everything that `prepare_documents` reads."""
    given = corpus.splits()
    check_splits(corpus.name, given)
    splits, repeated = distinct(given)
    check_splits(corpus.name, splits)
    tokenizer = DocumentTokenizer.train(
        [sentence for document in splits["train"] for sentence in document.sentences],
        pieces=pieces,
        vocab_size=vocab_size,
        lowercase=lowercase,
    )
    tokenizer.save(folder)
    description: dict[str, Any] = {
        **corpus.describe(),
        "vocabulary": {"pieces": pieces, "lowercase": lowercase, "size": len(tokenizer)},
        "repeated_documents": repeated,
    }
    for split, documents in splits.items():
        encoded, without_token = _encode(documents, tokenizer)
        if len(encoded) == 0:
            raise ValueError(f"corpus {corpus.name}: no sentence of {split} has a token")
        encoded.save(folder, split)
        figures = {**_figures(documents, encoded), "without_token": without_token}
        for name, value in figures.items():
            description.setdefault(name, {})[split] = value
    text = json.dumps(description, indent=1, sort_keys=False)
    (folder / "description.json").write_text(text, "utf-8")


def _encode(
    documents: Sequence[Document], tokenizer: DocumentTokenizer
) -> tuple[EncodedDocuments, int]:
    """Encode documents; sentences without a token, such as one of control characters, go.

    Returns how many these were. A document that has no other sentence goes with them.
    """
    sentences = [sentence for document in documents for sentence in document.sentences]
    ids, begins, counts = [], [], []
    for start in range(0, len(sentences), _CHUNK):
        chunk = tokenizer.encode(sentences[start : start + _CHUNK])
        ids.append(np.fromiter((i for x, _ in chunk for i in x), np.int32))
        begins.append(np.fromiter((b for _, x in chunk for b in x), bool))
        counts.append(np.fromiter((len(x) for x, _ in chunk), np.int64, count=len(chunk)))
    tokens = np.concatenate(counts)
    characters = np.fromiter(map(len, sentences), np.int32, count=len(sentences))
    owner = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    kept = tokens > 0
    _, sizes = np.unique(owner[kept], return_counts=True)
    zero = np.zeros(1, np.int64)
    return EncodedDocuments(
        EncodedText(np.concatenate(ids), np.concatenate([zero, np.cumsum(tokens[kept])])),
        documents=np.concatenate([zero, np.cumsum(sizes)]),
        begins=np.concatenate(begins),
        characters=characters[kept],
    ), int((~kept).sum())


def _figures(documents: Sequence[Document], encoded: EncodedDocuments) -> dict[str, Any]:
    """Return what the record says of one split, before anything is cut to a sequence.

    `characters` and `bytes` (UTF-8) count each sentence with the blank or line break after it,
    `words` what stands between blanks; `lengths` are tokens a sentence, `document_lengths` tokens a
    document; `one_sentence` counts documents that have only one.
    """
    sentences = np.diff(encoded.documents)
    tokens = np.diff(encoded.text.offsets[encoded.documents])
    texts = [document.text for document in documents]
    return {
        "sizes": len(encoded),
        "sentences": len(encoded.text),
        "tokens": len(encoded.text.ids),
        "characters": sum(map(len, texts)),
        "bytes": sum(len(text.encode()) for text in texts),
        "words": sum(len(text.split()) for text in texts),
        "unknown": int((encoded.text.ids == DocumentTokenizer.unk_id).sum()),
        "one_sentence": int((sentences == 1).sum()),
        "lengths": length_statistics(encoded.text.lengths),
        "document_lengths": length_statistics(tokens),
        "checksums": checksum(documents),
    }
