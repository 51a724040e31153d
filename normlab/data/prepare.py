"""Preparation of a corpus for a task: vocabularies, token ids and a description, all cached."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import tokenizers

from normlab.data.cache import cache_key, cached_folder, file_checksum
from normlab.data.corpus import REQUIRED, Corpus, Form, ParallelText, Source, iterate_lines
from normlab.data.documents import DocumentCorpus, blocks
from normlab.data.encoded import EncodedDocuments, EncodedPairs, EncodedText, ends
from normlab.data.languages import Language, language_of
from normlab.data.vocabulary import (
    DocumentTokenizer,
    Pieces,
    Tokenizer,
    join_pieces,
    moses_text,
    moses_tokens,
)
from normlab.errors import UserError

PAIRS_FORMAT = "normlab.prepared/8"
DOCUMENTS_FORMAT = "normlab.documents/8"
SAMPLE_CHARACTERS = 100_000_000  # at most this much text is used to learn a document vocabulary
_PART, _DOCUMENTS = 10_000, 1_000  # lines and documents encoded at once
_SIDES = ("source", "target")
_DESCRIPTION, _TOKENIZER = "description.json", "tokenizer.json"


@dataclass(frozen=True)
class PreparedTranslation:
    """A parallel corpus ready to train on.

    `texts` holds the sentences that `pairs` encodes, with the pieces of `bpe` text joined; scores
    use them as references. With a joint vocabulary, both tokenizers are the same object.
    """

    pairs: dict[str, EncodedPairs]
    texts: Mapping[str, ParallelText]
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    form: Form
    languages: Sequence[str]
    description: dict[str, Any]

    @classmethod
    def restored(
        cls, vocabulary: Mapping[str, str], description: dict[str, Any]
    ) -> "PreparedTranslation":
        """Return what a run keeps of its data: the vocabulary, and no text."""
        tokenizers = [Tokenizer.of_text(vocabulary[name]) for name in sorted(vocabulary)]
        form, languages = description["form"], description["languages"]
        return cls({}, {}, tokenizers[0], tokenizers[-1], form, languages, description)

    def vocabulary(self) -> dict[str, str]:
        """Return the content of the vocabulary's files by name: one, or one per side."""
        tokenizers = (self.source_tokenizer, self.target_tokenizer)
        sides = dict(zip(_SIDES, tokenizers, strict=True))
        if self.description["vocabulary"]["joint"]:
            del sides["target"]
        return {f"{side}.json": tokenizer.text() for side, tokenizer in sides.items()}

    @property
    def target(self) -> Language:
        return language_of(self.languages[1], "task.corpus.target_language")

    def plain(self, lines: list[str]) -> list[str]:
        """Turn decoded or reference target lines into the plain text that `bleu` scores."""
        return lines if self.form == "raw" else moses_text(lines, self.target)

    def words(self, lines: list[str]) -> list[str]:
        """Turn decoded or reference target lines into the Moses tokens that `bleu_tok` scores."""
        return moses_tokens(lines, self.target) if self.form == "raw" else lines

    def source_lines(self, lines: Sequence[str]) -> list[str]:
        """Tokenize and lowercase a user's sentences like the corpus's source text.

        Text without spaces between words must come split into words.
        """
        language = language_of(self.languages[0], "task.corpus.source_language")
        if self.form != "tokenized" or not language.spaced:
            return list(lines)
        tokens = moses_tokens(lines, language)
        return tokens if self.description["cased"] else [line.lower() for line in tokens]


@dataclass(frozen=True)
class PreparedDocuments:
    """Documents ready to train on: one vocabulary, the encoded splits, and their description."""

    splits: dict[str, EncodedDocuments]
    tokenizer: DocumentTokenizer
    description: dict[str, Any]

    @classmethod
    def restored(
        cls, vocabulary: Mapping[str, str], description: dict[str, Any]
    ) -> "PreparedDocuments":
        """Return what a run keeps of its data: the vocabulary, and no text."""
        return cls({}, DocumentTokenizer.of_text(vocabulary[_TOKENIZER]), description)

    def vocabulary(self) -> dict[str, str]:
        """Return the content of the vocabulary's file by its name."""
        return {_TOKENIZER: self.tokenizer.text()}


def _prepared(
    corpus: Source, settings: Mapping[str, object], build: Callable[[Path], dict[str, Any]]
) -> tuple[Path, dict[str, Any]]:
    """Return the folder of prepared data and its description, calling `build` if not cached."""
    content = {"content": corpus.key(), "tokenizers": tokenizers.__version__}
    name = f"{corpus.name}-{cache_key({**content, **settings})}"

    def fill(folder: Path) -> None:
        description = json.dumps(build(folder), indent=1)
        (folder / _DESCRIPTION).write_text(description, "utf-8")

    folder = cached_folder(name, fill)
    return folder, json.loads((folder / _DESCRIPTION).read_text("utf-8"))


def prepare_translation(
    corpus: Corpus, *, vocab_size: int, joint: bool, max_length: int
) -> PreparedTranslation:
    """Tokenize, encode and describe a corpus, or load it from the cache.

    Vocabularies are learned from `train` alone: one of `vocab_size` entries if `joint`, else one
    per side. Training pairs with a blank side, or with more than `max_length` tokens on a side
    (end mark included), are left out and counted. Repeated pairs are counted: in `train` those that
    an earlier line has, elsewhere those that `train` has. Raises UserError if a scored pair is that
    long.
    """
    sizes = {"vocab_size": vocab_size, "joint": joint, "max_length": max_length}
    settings = {"format": PAIRS_FORMAT, **sizes}
    folder, description = _prepared(corpus, settings, partial(_build_pairs, corpus, **sizes))
    pairs: dict[str, EncodedPairs] = {}
    texts: dict[str, ParallelText] = {}
    for split in description["sizes"]:
        names = [f"{split}.{side}" for side in _SIDES]
        lines = [(folder / f"{name}.txt").read_bytes().decode().split("\n")[:-1] for name in names]
        pairs[split] = EncodedPairs(*(EncodedText.load(folder, name) for name in names))
        texts[split] = ParallelText(*lines)
    form, languages = description["form"], description["languages"]
    tokenizers = [Tokenizer.load(folder / f"{side}.json") for side in _SIDES[: 2 - joint]]
    return PreparedTranslation(
        pairs, texts, tokenizers[0], tokenizers[-1], form, languages, description
    )


def _build_pairs(
    corpus: Corpus, folder: Path, *, vocab_size: int, joint: bool, max_length: int
) -> dict[str, Any]:
    splits, form = corpus.splits, corpus.form
    _check_splits(corpus.name, {split: len(text) for split, text in splits.items()})
    _check_filled(corpus.languages, splits)
    numbered = enumerate(zip(splits["train"].source, splits["train"].target, strict=True))
    filled = np.array([i for i, (a, b) in numbered if a.strip() and b.strip()], np.int64)
    train = splits["train"].pick(filled.tolist())
    texts = {**splits, "train": train}
    if not len(train):
        raise UserError("train: no line has text in both languages; check that the files match")
    sides = [train.source + train.target] if joint else [train.source, train.target]
    vocabularies = [Tokenizer.train(side, form=form, vocab_size=vocab_size) for side in sides]
    for side, vocabulary in zip(_SIDES, vocabularies, strict=False):
        vocabulary.save(folder / f"{side}.json")
    source, target = vocabularies[0], vocabularies[-1]
    trained = set(zip(train.source, train.target, strict=True))
    by_split: dict[str, dict[str, Any]] = {}
    for split, text in texts.items():
        pairs = EncodedPairs(_encoded(source, text.source), _encoded(target, text.target))
        numbers = filled + 1 if split == "train" else np.arange(1, len(text) + 1)
        short_enough = _not_long(split, pairs.lengths, numbers, max_length)
        pairs = EncodedPairs(pairs.source.select(short_enough), pairs.target.select(short_enough))
        repeated = sum(pair in trained for pair in zip(text.source, text.target, strict=True))
        by_split[split] = {
            "sizes": len(pairs),
            "checksums": dict(zip(corpus.languages, splits[split].checksums(), strict=True)),
            "left_out": len(splits[split]) - len(pairs),
            "repeated": len(text) - len(trained) if split == "train" else repeated,
            **_write_pairs(folder, split, corpus, pairs, text.pick(short_enough.tolist())),
        }
    sizes = {"joint": joint, "source": len(source), "target": len(target)}
    cased = any(line != line.lower() for line in train.source)
    values = {"form": form, "cased": cased, "vocabulary": sizes, "max_length": max_length}
    return _description(corpus, by_split, languages=list(corpus.languages), **values)


def _check_filled(languages: Sequence[str], splits: Mapping[str, ParallelText]) -> None:
    """Raise UserError for a side of a split without text, such as a blind test's references."""
    for split, text in splits.items():
        for language, lines in zip(languages, (text.source, text.target), strict=True):
            if not any(line.strip() for line in lines):
                raise UserError(
                    f"{split}, {language}: all {len(lines)} lines are empty, and every split needs "
                    "both languages: give a test set with its references; to translate one without "
                    "them, use normlab predict"
                )


def _write_pairs(
    folder: Path, split: str, corpus: Corpus, pairs: EncodedPairs, text: ParallelText
) -> dict[str, Any]:
    """Write a split's pairs and their text, with pieces joined; return what they hold."""
    sides = [text.source, text.target]
    if corpus.form == "bpe":
        sides = [[join_pieces(line) for line in side] for side in sides]
    encoded = dict(zip(corpus.languages, (pairs.source, pairs.target), strict=True))
    for name, ids, lines in zip(_SIDES, encoded.values(), sides, strict=True):
        ids.append(folder, f"{split}.{name}")
        content = "".join(f"{line}\n" for line in lines).encode()
        (folder / f"{split}.{name}.txt").write_bytes(content)
    return {
        "tokens": {lang: len(x.ids) for lang, x in encoded.items()},
        "lengths": {lang: length_statistics(x.lengths) for lang, x in encoded.items()},
        "unknown": {k: int((x.ids == Tokenizer.unk_id).sum()) for k, x in encoded.items()},
        "reference_length": sum(len(line.split()) for line in sides[1]),
    }


def _encoded(tokenizer: Tokenizer, lines: Sequence[str]) -> EncodedText:
    """Encode lines in chunks, because lists of ids take many times the memory of arrays."""
    parts = (lines[start : start + _PART] for start in range(0, len(lines), _PART))
    return EncodedText.from_sentences(ids for part in parts for ids in tokenizer.encode_batch(part))


def _not_long(split: str, lengths: np.ndarray, lines: np.ndarray, max_length: int) -> np.ndarray:
    """Return the indices of pairs within `max_length`; UserError if a scored pair exceeds it.

    `lines` (int64 [pairs]) are the pairs' line numbers in their files.
    """
    short_enough = lengths.max(axis=1) <= max_length
    if not short_enough.all() and (split != "train" or not short_enough.any()):
        first = int(np.argmin(short_enough))
        raise UserError(
            f"{split}, line {lines[first]}: {lengths[first].max()} tokens with its end mark; "
            f"{(~short_enough).sum()} of {len(lengths)} pairs exceed task.max_length={max_length}: "
            f"set {lengths.max()} or more"
        )
    return np.flatnonzero(short_enough)


def prepare_documents(
    corpus: DocumentCorpus, *, vocab_size: int, pieces: Pieces, lowercase: bool
) -> PreparedDocuments:
    """Tokenize, encode and describe a corpus, or load it from the cache.

    The text may be larger than memory. The vocabulary is learned from `train` alone. A document
    that repeats an earlier one, from any split, is left out and counted. Raises UserError for a
    missing or empty split.
    """
    how = {"pieces": pieces, "lowercase": lowercase}

    def build(folder: Path) -> dict[str, Any]:
        repeated = _write_text(corpus, folder)
        every = math.ceil((folder / "train.txt").stat().st_size / SAMPLE_CHARACTERS)
        sample = islice(blocks(iterate_lines(folder / "train.txt")), 0, None, every)
        sentences = [sentence for document in sample for sentence in document]
        tokenizer = DocumentTokenizer.train(sentences, vocab_size=vocab_size, **how)
        tokenizer.save(folder / _TOKENIZER)
        by_split = {
            split: {"repeated_documents": count, **_encode_split(folder, split, tokenizer)}
            for split, count in repeated.items()
        }
        vocabulary = {**how, "size": len(tokenizer)}
        return _description(corpus, by_split, language=corpus.language, vocabulary=vocabulary)

    settings = {"format": DOCUMENTS_FORMAT, "vocab_size": vocab_size, **how}
    folder, description = _prepared(corpus, settings, build)
    splits = {split: EncodedDocuments.load(folder, split) for split in description["sizes"]}
    return PreparedDocuments(splits, DocumentTokenizer.load(folder / _TOKENIZER), description)


def _write_text(corpus: DocumentCorpus, folder: Path) -> dict[str, int]:
    """Write the documents of each split to `<split>.txt`, separated by blank lines.

    Returns the number of repeated documents left out of train, valid, test and further splits.
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
    _check_splits(corpus.name, sizes)
    return {split: repeated[split] for split in dict.fromkeys([*REQUIRED, *sorted(sizes)])}


def _encode_split(folder: Path, split: str, tokenizer: DocumentTokenizer) -> dict[str, Any]:
    """Replace the text file of a split with its encoded arrays; return their description.

    Sentences that give no tokens, such as control characters, and documents with only such
    sentences are left out. `lengths` counts tokens per sentence.
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
            documents=ends(np.unique(owner[has_tokens], return_counts=True)[1]),
            begins=np.fromiter((b for _, begins in encoded for b in begins), bool),
            characters=np.fromiter((len(normalize("NFC", x)) for x in sentences), np.int32)[
                has_tokens
            ],
        ).append(folder, split)
    checksum = file_checksum(path)
    path.unlink()
    if not (folder / f"{split}.ids").stat().st_size:
        raise UserError(f"no sentence of {split} gives any tokens; check that it is text")
    data = EncodedDocuments.load(folder, split)
    return {
        "checksums": checksum,
        "sizes": len(data),
        "sentences": len(data.text),
        "tokens": len(data.text.ids),
        "unknown": int((data.text.ids == DocumentTokenizer.unk_id).sum()),
        "lengths": length_statistics(data.text.lengths),
    }


def _description(
    corpus: Source, by_split: Mapping[str, Mapping[str, Any]], **values: Any
) -> dict[str, Any]:
    """Return the record's description of the data: overall values, then each value by split."""
    label = corpus.label.encode(errors="replace").decode()  # a folder's name may not be UTF-8
    origin = {"source": corpus.name, "label": label, "licence": corpus.licence}
    names = by_split["train"]
    tables = {name: {split: x[name] for split, x in by_split.items()} for name in names}
    return {**origin, **values, **tables}


def length_statistics(lengths: np.ndarray) -> dict[str, float]:
    """Return the mean, median, 95th percentile and maximum of lengths [n] in tokens."""
    median, p95, most = np.percentile(lengths, [50, 95, 100]).round(2).tolist()
    return {"mean": round(float(lengths.mean()), 2), "median": median, "p95": p95, "max": int(most)}


def _check_splits(name: str, sizes: Mapping[str, int]) -> None:
    missing = [split for split in REQUIRED if not sizes.get(split)]
    if missing:
        counts = ", ".join(f"{split}: {size}" for split, size in sizes.items())
        raise UserError(
            f"corpus {name} has no examples in {' and '.join(missing)} "
            f"(sizes: {counts or 'none'}); give train, valid and test, or put a blank line between "
            "documents"
        )
