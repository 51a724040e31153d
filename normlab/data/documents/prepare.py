"""From documents to what masked and causal language modelling train on: ids and a description.

The text may be larger than the memory: it goes to the disk once (see `spool`), the vocabulary is
learnt from a sample of bounded size, and the ids are written shard by shard (see `shards`).

Decides what is left out (a document that stands in a split already, a sentence without a token),
what the cache key depends on, and what a record says about its text.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from normlab.data.cache import cache_key, cached_folder
from normlab.data.documents.corpus import Document, DocumentCorpus
from normlab.data.documents.encoded import EncodedDocuments
from normlab.data.documents.shards import LATER, SHARD_TOKENS, Shards, ShardWriter, WholeSplits
from normlab.data.documents.spool import SAMPLE_CHARACTERS, Sample, Spooled, spool
from normlab.data.documents.tokenizer import DocumentTokenizer, Pieces
from normlab.data.encoded import EncodedText

FORMAT = "normlab.documents/2"
_CHUNK = 20_000  # sentences that are lists of Python numbers at a time


@dataclass(frozen=True)
class PreparedDocuments:
    """A corpus ready to train on: one vocabulary, the encoded splits, and what a record says.

    `splits` hold what `shards` do, in one piece; training text is read shard by shard.
    """

    shards: dict[str, Shards]
    splits: WholeSplits
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
    shard_tokens: int = SHARD_TOKENS,
    sample_characters: int = SAMPLE_CHARACTERS,
) -> PreparedDocuments:
    """Segment, encode and describe a corpus, or take that from the cache (null: the user's).

    The vocabulary is learnt from `train` alone, from `sample_characters` of it at most. A shard has
    about `shard_tokens`. `max_length` changes no array: the description counts the sentences that
    are longer (`long_sentences`), which examples cut and windows continue. Raises ValueError for
    what `spool` and `DocumentTokenizer.train` refuse.
    """
    settings = {
        "format": FORMAT,
        "content": corpus.key(),
        "label": corpus.label,
        "vocab_size": vocab_size,
        "pieces": pieces,
        "lowercase": lowercase,
        "shard_tokens": shard_tokens,
        "sample_characters": sample_characters,
        "tokenizers": tokenizers.__version__,
    }

    def build(folder: Path) -> None:
        texts, sample = spool(corpus, folder, sample_characters=sample_characters)
        tokenizer = DocumentTokenizer.train(
            sample.sentences(), pieces=pieces, vocab_size=vocab_size, lowercase=lowercase
        )
        tokenizer.save(folder)
        vocabulary = {"pieces": pieces, "lowercase": lowercase, "size": len(tokenizer)}
        vocabulary |= _learnt_from(sample, texts["train"])
        del sample
        description = {**corpus.describe(), "vocabulary": vocabulary}
        _encode_splits(folder, corpus.name, texts, tokenizer, description, shard_tokens)

    entry = f"{corpus.name}-{cache_key(settings)}"
    folder = cached_folder(entry, build, root=cache, later=LATER)
    description = json.loads((folder / "description.json").read_text("utf-8"))
    lengths = json.loads((folder / "lengths.json").read_text("utf-8"))
    shards = {split: Shards(folder, split, count) for split, count in description["shards"].items()}
    description["max_length"] = max_length
    description["long_sentences"] = {
        split: sum(count for length, count in lengths[split] if length > max_length)
        for split in shards
    }
    tokenizer = DocumentTokenizer.load(folder)
    return PreparedDocuments(shards, WholeSplits(shards), tokenizer, description)


def _learnt_from(sample: Sample, train: Spooled) -> dict[str, int]:
    """Say from how many documents the vocabulary was learnt where it was not all."""
    return {} if len(sample) == train.documents else {"learnt_from_documents": len(sample)}


def _encode_splits(
    folder: Path,
    name: str,
    texts: Mapping[str, Spooled],
    tokenizer: DocumentTokenizer,
    description: dict[str, Any],
    shard_tokens: int,
) -> None:
    """Write the shards of all splits in place of their texts, and what is known of them."""
    description["repeated_documents"] = {split: text.repeated for split, text in texts.items()}
    lengths: dict[str, list[tuple[int, int]]] = {}
    for split, text in texts.items():
        writer, tally = ShardWriter(folder, split, tokens=shard_tokens), _Tally()
        for documents in _parts(text.read(), characters=shard_tokens):
            encoded, without_token = _encode(documents, tokenizer)
            writer.add(encoded)
            tally.add(encoded, without_token)
        writer.close()
        text.path.unlink()
        if not writer.count:
            raise ValueError(f"corpus {name}: no sentence of {split} has a token")
        lengths[split] = sorted(tally.sentence_lengths.items())
        for figure, value in {**tally.figures(text), "shards": writer.count}.items():
            description.setdefault(figure, {})[split] = value
    for stem, values in (("description", description), ("lengths", lengths)):
        (folder / f"{stem}.json").write_text(json.dumps(values, indent=1), "utf-8")


def _parts(documents: Iterable[Document], *, characters: int) -> Iterator[list[Document]]:
    """Yield documents, some at a time: `_CHUNK` sentences, or so many characters."""
    part: list[Document] = []
    sentences = size = 0
    for document in documents:
        part.append(document)
        sentences += len(document)
        size += sum(map(len, document.sentences))
        if sentences >= _CHUNK or size >= characters:
            yield part
            part, sentences, size = [], 0, 0
    if part:
        yield part


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


class _Tally:
    """Counts of the encoded documents of a split, before anything is cut to a sequence."""

    def __init__(self) -> None:
        self.sentence_lengths: Counter[int] = Counter()
        self.document_lengths: Counter[int] = Counter()
        self.one_sentence = self.unknown = self.without_token = 0

    def add(self, encoded: EncodedDocuments, without_token: int) -> None:
        _count(self.sentence_lengths, encoded.text.lengths)
        _count(self.document_lengths, np.diff(encoded.text.offsets[encoded.documents]))
        self.one_sentence += int((np.diff(encoded.documents) == 1).sum())
        self.unknown += int((encoded.text.ids == DocumentTokenizer.unk_id).sum())
        self.without_token += without_token

    def figures(self, text: Spooled) -> dict[str, Any]:
        """Return what the record says of a split.

        `characters` and `bytes` (UTF-8) count each sentence with the blank or line break after it,
        `words` what stands between blanks; `lengths` are tokens a sentence, `document_lengths`
        tokens a document; `one_sentence` counts documents that have only one.
        """
        lengths = self.sentence_lengths
        return {
            "sizes": self.document_lengths.total(),
            "sentences": lengths.total(),
            "tokens": sum(length * count for length, count in lengths.items()),
            "characters": text.characters,
            "bytes": text.bytes,
            "words": text.words,
            "unknown": self.unknown,
            "one_sentence": self.one_sentence,
            "lengths": _statistics(lengths),
            "document_lengths": _statistics(self.document_lengths),
            "checksums": text.checksum,
            "without_token": self.without_token,
        }


def _count(counts: Counter[int], values: np.ndarray) -> None:
    found, times = np.unique(values, return_counts=True)
    counts.update(dict(zip(found.tolist(), times.tolist(), strict=True)))


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
