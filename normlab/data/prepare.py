"""From a corpus to what a task trains on: vocabularies, ids and a description, in the cache."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from normlab.data.cache import cache_key, cached_folder
from normlab.data.corpus import Corpus, Form, ParallelText, paired
from normlab.data.documents import REQUIRED, Document, DocumentCorpus, in_order
from normlab.data.encoded import EncodedDocuments, EncodedPairs, EncodedText, ends
from normlab.data.vocabulary import (
    PIECE_JOIN,
    DocumentTokenizer,
    Pieces,
    Tokenizer,
    join_pieces,
    moses_text,
    moses_tokens,
)

PAIRS_FORMAT = "normlab.prepared/3"
DOCUMENTS_FORMAT = "normlab.documents/4"
SAMPLE_CHARACTERS = 100_000_000
"""Characters of training text that a vocabulary of documents is learned from, at most."""
_PART, _DOCUMENTS = 10_000, 1_000  # lines, and documents, encoded at a time


@dataclass(frozen=True)
class PreparedTranslation:
    """A corpus ready to train on.

    `texts` hold the sentences that `pairs` encode, in the same order, with the pieces of `bpe` text
    joined: the references of scoring. The two tokenizers are one object where the vocabulary is
    joint. `lowercased` tells whether the training text has no capital letter.
    """

    pairs: dict[str, EncodedPairs]
    texts: Mapping[str, ParallelText]
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    form: Form
    languages: tuple[str, str]
    lowercased: bool
    description: dict[str, Any]

    def plain(self, lines: list[str]) -> list[str]:
        """Turn decoded or reference target lines into plain text, which `bleu` scores."""
        return lines if self.form == "raw" else moses_text(lines, lang=self.languages[1])

    def words(self, lines: list[str]) -> list[str]:
        """Turn decoded or reference target lines into Moses tokens, which `bleu_tok` scores."""
        return moses_tokens(lines, lang=self.languages[1]) if self.form == "raw" else lines

    def source_line(self, line: str) -> str:
        """Turn a sentence of a user into the form of the source text, for `encode_batch`.

        `raw`: as it is. `tokenized`: Moses tokens. `bpe`: the same, and each word is cut into the
        longest known pieces from its start, as the merges themselves are not part of such text; a
        line that holds pieces already stays. Lowercased where the training text is.
        """
        if self.form == "raw" or PIECE_JOIN in line:
            return line
        (tokens,) = moses_tokens([line], lang=self.languages[0])
        tokens = tokens.lower() if self.lowercased else tokens
        return self.source_tokenizer.cut(tokens) if self.form == "bpe" else tokens


def prepare_translation(
    corpus: Corpus, *, vocab_size: int, joint: bool, max_length: int, cache: Path | None = None
) -> PreparedTranslation:
    """Segment, encode and describe a corpus, or take that from the cache (null: the user's).

    Vocabularies are learned from `train` alone: one of `vocab_size` entries where `joint`, else one
    per side. `max_length` bounds the tokens of a side with the end mark: a longer training pair is
    left out and counted; in valid and test it is an error, because a score of fewer or of cut
    sentences is another score. Raises ValueError naming file and line, or the missing split.
    """
    settings = {
        "format": PAIRS_FORMAT,
        "content": corpus.key(),
        "label": corpus.label,
        "vocab_size": vocab_size,
        "joint": joint,
        "max_length": max_length,
        "tokenizers": tokenizers.__version__,
    }

    def build(folder: Path) -> None:
        _build_pairs(folder, corpus, vocab_size=vocab_size, joint=joint, max_length=max_length)

    folder = cached_folder(f"{corpus.name}-{cache_key(settings)}", build, root=cache)
    meta = _read_json(folder / "meta.json")
    form: Form = meta["form"]
    pairs: dict[str, EncodedPairs] = {}
    texts: dict[str, ParallelText] = {}
    for split in meta["splits"]:
        names = [f"{split}.{side}" for side in ("source", "target")]
        pairs[split] = EncodedPairs(*(EncodedText.load(folder, name) for name in names))
        texts[split] = paired([_read_lines(folder / f"{name}.txt") for name in names], names)
    source = Tokenizer.load(folder / "source.json", form=form)
    return PreparedTranslation(
        pairs=pairs,
        texts=texts,
        source_tokenizer=source,
        target_tokenizer=source if joint else Tokenizer.load(folder / "target.json", form=form),
        form=form,
        languages=tuple(meta["languages"]),
        lowercased=meta["lowercased"],
        description=_read_json(folder / "description.json"),
    )


def _build_pairs(
    folder: Path, corpus: Corpus, *, vocab_size: int, joint: bool, max_length: int
) -> None:
    splits = {split: text.checked() for split, text in corpus.splits().items()}
    _check_splits(corpus.name, splits)
    train, form = splits["train"], corpus.form
    sides = [train.source + train.target] if joint else [train.source, train.target]
    found = [Tokenizer.train(side, form=form, vocab_size=vocab_size) for side in sides]
    source, target = found[0], found[-1]
    source.save(folder / "source.json")
    target.save(folder / "target.json")
    description: dict[str, Any] = {
        **corpus.describe(),
        "vocabulary": {"joint": joint, "source": len(source), "target": len(target)},
        "max_length": max_length,
    }
    names = ("sizes", "dropped_long", "tokens", "lengths", "unknown", "reference_length")
    description.update({name: {} for name in names})
    for split, text in splits.items():
        pairs = EncodedPairs(_encoded(source, text.source), _encoded(target, text.target))
        kept = _kept(split, pairs, text, max_length)
        if len(kept) < len(pairs):
            pairs = pairs.select(kept)
        text = text.pick(kept.tolist())
        lines = {"source": text.source, "target": text.target}
        if form == "bpe":
            lines = {side: [join_pieces(line) for line in x] for side, x in lines.items()}
        for side, encoded in (("source", pairs.source), ("target", pairs.target)):
            encoded.append(folder, f"{split}.{side}")
            data = "".join(line + "\n" for line in lines[side]).encode()
            (folder / f"{split}.{side}.txt").write_bytes(data)
        encoded = list(zip(corpus.languages, (pairs.source, pairs.target), strict=True))
        values = (
            len(pairs),
            len(splits[split]) - len(pairs),
            {lang: len(x.ids) for lang, x in encoded},
            {lang: length_statistics(x.lengths) for lang, x in encoded},
            {lang: int((x.ids == Tokenizer.unk_id).sum()) for lang, x in encoded},
            sum(len(line.split()) for line in lines["target"]),
        )
        for name, value in zip(names, values, strict=True):
            description[name][split] = value
    meta = {
        "form": form,
        "languages": list(corpus.languages),
        "lowercased": not any(line != line.lower() for line in train.source),
        "splits": list(splits),
    }
    _write_json(folder / "meta.json", meta)
    _write_json(folder / "description.json", description, sort_keys=True)


def _encoded(tokenizer: Tokenizer, lines: Sequence[str]) -> EncodedText:
    """Encode lines in parts, since lists of ids take many times the room of arrays."""
    parts = (lines[start : start + _PART] for start in range(0, len(lines), _PART))
    return EncodedText.from_sentences(ids for part in parts for ids in tokenizer.encode_batch(part))


def _read_lines(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1]


def _kept(split: str, pairs: EncodedPairs, text: ParallelText, max_length: int) -> np.ndarray:
    """Return the indices of pairs within the limit; ValueError where scored pairs exceed it."""
    lengths = pairs.lengths
    kept = lengths.max(axis=1) <= max_length
    if kept.all() or (split == "train" and kept.any()):
        return np.flatnonzero(kept)
    first = int(np.argmin(kept))
    side = int(lengths[first].argmax())
    where = f"{text.origins[side]}, line {first + 1}: {int(lengths[first, side])} tokens"
    raise ValueError(
        f"{where} with the end mark, over task.max_length={max_length}, and so are "
        f"{int((~kept).sum())} of {len(kept)} pairs of {split}; set task.max_length="
        f"{int(lengths.max())} or more (sentences that are scored are neither cut nor left out; "
        "long training pairs are left out, but some must remain)"
    )


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
        "format": DOCUMENTS_FORMAT,
        "content": corpus.key(),
        "label": corpus.label,
        "vocab_size": vocab_size,
        "pieces": pieces,
        "lowercase": lowercase,
        "tokenizers": tokenizers.__version__,
    }

    def build(folder: Path) -> None:
        described = _write_text(corpus, folder)
        every = math.ceil((folder / "train.txt").stat().st_size / SAMPLE_CHARACTERS)
        sample = [x for n, x in enumerate(_read_text(folder / "train.txt")) if n % every == 0]
        tokenizer = DocumentTokenizer.train(
            [sentence for document in sample for sentence in document],
            pieces=pieces,
            vocab_size=vocab_size,
            lowercase=lowercase,
        )
        tokenizer.save(folder / "tokenizer.json")
        vocabulary = {"pieces": pieces, "lowercase": lowercase, "size": len(tokenizer)}
        if every > 1:
            vocabulary["learnt_from_documents"] = len(sample)
        del sample
        description: dict[str, Any] = {**corpus.describe(), "vocabulary": vocabulary}
        for split, values in described.items():
            found = _encode_split(folder, split, tokenizer, corpus.name)
            for name, value in {**values, **found}.items():
                description.setdefault(name, {})[split] = value
        _write_json(folder / "description.json", description)

    folder = cached_folder(f"{corpus.name}-{cache_key(settings)}", build, root=cache)
    description = _read_json(folder / "description.json")
    splits = {split: EncodedDocuments.load(folder, split) for split in description["sizes"]}
    description["max_length"] = max_length
    description["long_sentences"] = {
        split: int((data.text.lengths > max_length).sum()) for split, data in splits.items()
    }
    tokenizer = DocumentTokenizer.load(folder / "tokenizer.json")
    return PreparedDocuments(splits, tokenizer, description)


def _write_text(corpus: DocumentCorpus, folder: Path) -> dict[str, dict[str, Any]]:
    """Write the documents of each split to `<split>.txt`, a blank line between two.

    Returns counts by split: `repeated_documents` that were left out, `characters` and `bytes`
    (UTF-8) with the blank or line break after each sentence, `words` between blanks; and the
    checksum of the text.
    """
    names = in_order(corpus.split_names())
    _check_splits(corpus.name, names)
    seen: set[bytes] = set()
    sizes = dict.fromkeys(names, 0)
    counts = {name: Counter[str]() for name in names}
    digests = {name: hashlib.sha256() for name in names}
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.txt").open("wb")) for name in names}
        for split, document in corpus.stream():
            _check(split, document)
            text = document.text.encode()
            mark = hashlib.sha256(text).digest()[:8]
            if mark in seen:
                counts[split]["repeated_documents"] += 1
                continue
            seen.add(mark)
            part = b"\n" + text if sizes[split] else text
            files[split].write(part)
            digests[split].update(part)
            sizes[split] += 1
            counts[split]["characters"] += len(document.text)
            counts[split]["bytes"] += len(text)
            counts[split]["words"] += len(document.text.split())
    for split, size in sizes.items():
        if not size:
            listed = ", ".join(f"{other}: {count}" for other, count in sizes.items())
            raise ValueError(
                f"corpus {corpus.name}: the split {split} has no document (documents by split: "
                f"{listed}); give more documents, files of your own for each split, or another "
                "valid_share and test_share"
            )
    counted = ("repeated_documents", "characters", "bytes", "words")
    return {
        name: {**{x: counts[name][x] for x in counted}, "checksums": digests[name].hexdigest()}
        for name in names
    }


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
    with path.open(encoding="utf-8", newline="\n") as file:
        for blank, lines in groupby(file, key="\n".__eq__):
            if not blank:
                yield [line[:-1] for line in lines]


def _encode_split(
    folder: Path, split: str, tokenizer: DocumentTokenizer, name: str
) -> dict[str, Any]:
    """Write the arrays of a split in place of its text; return what the record says of them.

    Sentences without a token, such as one of control characters, are left out and counted, and so
    are documents that have no other sentence. `lengths` are tokens per sentence, `document_lengths`
    tokens per document; `one_sentence` counts documents that have only one.
    """
    path, without_token = folder / f"{split}.txt", 0
    documents = _read_text(path)
    while part := list(islice(documents, _DOCUMENTS)):
        sentences = [sentence for document in part for sentence in document]
        encoded = tokenizer.encode(sentences)
        kept = np.array([len(ids) > 0 for ids, _ in encoded])
        owner = np.repeat(np.arange(len(part)), [len(document) for document in part])
        _, sizes = np.unique(owner[kept], return_counts=True)
        EncodedDocuments(
            EncodedText.from_sentences(ids for ids, _ in encoded if ids),
            documents=ends(sizes),
            begins=np.fromiter((b for _, begins in encoded for b in begins), bool),
            characters=np.fromiter(map(len, sentences), np.int32)[kept],
        ).append(folder, split)
        without_token += int((~kept).sum())
    path.unlink()
    if not (folder / f"{split}.ids").stat().st_size:
        raise ValueError(f"corpus {name}: no sentence of {split} has a token")
    data = EncodedDocuments.load(folder, split)
    return {
        "sizes": len(data),
        "sentences": len(data.text),
        "tokens": len(data.text.ids),
        "unknown": int((data.text.ids == DocumentTokenizer.unk_id).sum()),
        "one_sentence": int((np.diff(data.documents) == 1).sum()),
        "lengths": length_statistics(data.text.lengths),
        "document_lengths": length_statistics(np.diff(data.text.offsets[data.documents])),
        "without_token": without_token,
    }


def length_statistics(lengths: np.ndarray) -> dict[str, float]:
    """Return mean, median, 95th percentile and maximum of lengths [n] in tokens."""
    return {
        "mean": round(float(lengths.mean()), 2),
        "median": float(np.median(lengths)),
        "p95": round(float(np.percentile(lengths, 95)), 1),
        "max": int(lengths.max()),
    }


def _check_splits(name: str, splits: Iterable[str]) -> None:
    missing = [split for split in REQUIRED if split not in splits]
    if missing:
        raise ValueError(
            f"corpus {name} has no {' and no '.join(missing)} split (it has "
            f"{', '.join(splits) or 'none'}); give train, valid and test"
        )


def _write_json(path: Path, values: object, *, sort_keys: bool = False) -> None:
    path.write_text(json.dumps(values, indent=1, sort_keys=sort_keys), "utf-8")


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))
