"""From documents to what masked and causal language models train on: ids and a description."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from normlab.data.cache import cache_key, cached_folder, file_checksum
from normlab.data.documents.corpus import REQUIRED, Document, DocumentCorpus, in_order
from normlab.data.documents.encoded import EncodedDocuments, ends
from normlab.data.documents.tokenizer import DocumentTokenizer, Pieces
from normlab.data.encoded import EncodedText

FORMAT = "normlab.documents/3"
SAMPLE_CHARACTERS = 100_000_000
"""Characters of training text that a vocabulary is learned from, at most."""
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

    The text may be larger than the memory. The vocabulary is learned from `train` alone.
    `max_length` changes no array: the description counts the sentences that are longer
    (`long_sentences`), which examples cut and windows continue. A document whose text has come
    before, in a split of higher rank or in its own, is left out and counted. Raises ValueError for
    a split that is missing or empty, and for a document that cannot be one.
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
        sizes, repeated = _write_text(corpus, folder)
        sample = list(_sample(folder / "train.txt"))
        sentences = [sentence for document in sample for sentence in document]
        tokenizer = DocumentTokenizer.train(
            sentences, pieces=pieces, vocab_size=vocab_size, lowercase=lowercase
        )
        tokenizer.save(folder)
        vocabulary = {"pieces": pieces, "lowercase": lowercase, "size": len(tokenizer)}
        if len(sample) < sizes["train"]:
            vocabulary["learnt_from_documents"] = len(sample)
        del sample, sentences
        description: dict[str, Any] = {**corpus.describe(), "vocabulary": vocabulary}
        description["repeated_documents"] = repeated
        lengths: dict[str, list[tuple[int, int]]] = {}
        for split in sizes:
            tally = _encode_split(folder, split, tokenizer)
            if not tally.sentence_lengths:
                raise ValueError(f"corpus {corpus.name}: no sentence of {split} has a token")
            lengths[split] = sorted(tally.sentence_lengths.items())
            for name, value in tally.described().items():
                description.setdefault(name, {})[split] = value
        for stem, values in (("description", description), ("lengths", lengths)):
            (folder / f"{stem}.json").write_text(json.dumps(values, indent=1), "utf-8")

    folder = cached_folder(f"{corpus.name}-{cache_key(settings)}", build, root=cache)
    description = json.loads((folder / "description.json").read_text("utf-8"))
    lengths = json.loads((folder / "lengths.json").read_text("utf-8"))
    description["max_length"] = max_length
    description["long_sentences"] = {
        split: sum(count for length, count in counts if length > max_length)
        for split, counts in lengths.items()
    }
    splits = {split: EncodedDocuments.load(folder, split) for split in lengths}
    return PreparedDocuments(splits, DocumentTokenizer.load(folder), description)


def _write_text(corpus: DocumentCorpus, folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Write the documents of each split to `<split>.txt`, a blank line between two.

    Returns by split how many documents were written, and how many were left out as repeated.
    """
    names = in_order(corpus.split_names())
    missing = [split for split in REQUIRED if split not in names]
    if missing:
        raise ValueError(
            f"corpus {corpus.name} has no {' and no '.join(missing)} split (it has "
            f"{', '.join(names) or 'none'}); give train, valid and test"
        )
    seen: set[bytes] = set()
    sizes, repeated = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.txt").open("wb")) for name in names}
        for split, document in corpus.stream():
            _check(split, document)
            text = document.text.encode()
            mark = hashlib.sha256(text).digest()[:8]
            if mark in seen:
                repeated[split] += 1
                continue
            seen.add(mark)
            files[split].write(b"\n" + text if sizes[split] else text)
            sizes[split] += 1
    for split, size in sizes.items():
        if not size:
            listed = ", ".join(f"{other}: {count}" for other, count in sizes.items())
            raise ValueError(
                f"corpus {corpus.name}: the split {split} has no document (documents by split: "
                f"{listed}); give more documents, files of your own for each split, or another "
                "valid_share and test_share"
            )
    return sizes, repeated


def _check(split: str, document: Document) -> None:
    if not document.sentences:
        raise ValueError(f"{document.origin} ({split}) has no sentence")
    for number, sentence in enumerate(document.sentences, 1):
        if not sentence.strip() or "\n" in sentence:
            raise ValueError(
                f"{document.origin} ({split}), sentence {number}: blank, or with a line "
                "break inside"
            )


def _read_text(path: Path) -> Iterator[list[str]]:
    """Yield the sentences of each document that `_write_text` wrote."""
    sentences: list[str] = []
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            if line == "\n":
                yield sentences
                sentences = []
            else:
                sentences.append(line[:-1])
    if sentences:
        yield sentences


def _sample(path: Path) -> Iterator[list[str]]:
    """Yield every document, or every k-th where the file has over `SAMPLE_CHARACTERS` bytes."""
    every = math.ceil(path.stat().st_size / SAMPLE_CHARACTERS)
    return (document for n, document in enumerate(_read_text(path)) if n % every == 0)


def _encode_split(folder: Path, split: str, tokenizer: DocumentTokenizer) -> "_Tally":
    """Write the arrays of a split in place of its text."""
    path, tally = folder / f"{split}.txt", _Tally()
    tally.checksum = file_checksum(path)
    part: list[list[str]] = []
    sentences = 0
    for document in _read_text(path):
        part.append(document)
        sentences += len(document)
        tally.add_text(document)
        if sentences >= _CHUNK:
            tally.add(*_append(part, tokenizer, folder, split))
            part, sentences = [], 0
    if part:
        tally.add(*_append(part, tokenizer, folder, split))
    path.unlink()
    return tally


def _append(
    documents: Sequence[Sequence[str]], tokenizer: DocumentTokenizer, folder: Path, split: str
) -> tuple[EncodedDocuments, int]:
    """Encode documents and add them to the files of a split.

    Sentences without a token, such as one of control characters, are left out; returns their number
    as well. A document that has no other sentence is left out too.
    """
    sentences = [sentence for document in documents for sentence in document]
    encoded = tokenizer.encode(sentences)
    tokens = np.array([len(ids) for ids, _ in encoded])
    kept = tokens > 0
    owner = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    _, sizes = np.unique(owner[kept], return_counts=True)
    found = EncodedDocuments(
        EncodedText(np.fromiter((i for x, _ in encoded for i in x), np.int32), ends(tokens[kept])),
        documents=ends(sizes),
        begins=np.fromiter((b for _, x in encoded for b in x), bool),
        characters=np.fromiter(map(len, sentences), np.int32, count=len(sentences))[kept],
    )
    found.append(folder, split)
    return found, int((~kept).sum())


class _Tally:
    """Counts of the documents of a split, before anything is cut to a sequence."""

    def __init__(self) -> None:
        self.sentence_lengths: Counter[int] = Counter()
        self.document_lengths: Counter[int] = Counter()
        self.checksum = ""
        self.characters = self.bytes = self.words = 0
        self.one_sentence = self.unknown = self.without_token = 0

    def add_text(self, document: Sequence[str]) -> None:
        for sentence in document:
            self.characters += len(sentence) + 1
            self.bytes += len(sentence.encode()) + 1
            self.words += len(sentence.split())

    def add(self, encoded: EncodedDocuments, without_token: int) -> None:
        self.sentence_lengths.update(encoded.text.lengths.tolist())
        self.document_lengths.update(np.diff(encoded.text.offsets[encoded.documents]).tolist())
        self.one_sentence += int((np.diff(encoded.documents) == 1).sum())
        self.unknown += int((encoded.text.ids == DocumentTokenizer.unk_id).sum())
        self.without_token += without_token

    def described(self) -> dict[str, Any]:
        """Return what the record says of a split.

        `characters` and `bytes` (UTF-8) count each sentence with the blank or line break after it,
        `words` what is between blanks; `lengths` are tokens per sentence, `document_lengths` tokens
        per document; `one_sentence` counts documents that have only one.
        """
        lengths = self.sentence_lengths
        return {
            "sizes": self.document_lengths.total(),
            "sentences": lengths.total(),
            "tokens": sum(length * count for length, count in lengths.items()),
            "characters": self.characters,
            "bytes": self.bytes,
            "words": self.words,
            "unknown": self.unknown,
            "one_sentence": self.one_sentence,
            "lengths": _statistics(lengths),
            "document_lengths": _statistics(self.document_lengths),
            "checksums": self.checksum,
            "without_token": self.without_token,
        }


def _statistics(counts: Counter[int]) -> dict[str, float]:
    """Return mean, median, 95th percentile and maximum of counted lengths, in tokens."""
    values = np.array(sorted(counts))
    ends = np.cumsum([counts[value] for value in values.tolist()])
    total = int(ends[-1])

    def percentile(share: float) -> float:
        """Interpolate between the two lengths that a place falls between, as numpy does."""
        place = share * (total - 1)
        low, high = (
            float(values[np.searchsorted(ends, n, side="right")])
            for n in (math.floor(place), math.ceil(place))
        )
        return low + (high - low) * (place - math.floor(place))

    return {
        "mean": round(sum(v * n for v, n in counts.items()) / total, 2),
        "median": percentile(0.5),
        "p95": round(percentile(0.95), 1),
        "max": int(values[-1]),
    }
