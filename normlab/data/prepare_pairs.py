"""Prepares a parallel corpus: builds and caches its vocabularies, token ids and description."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from normlab.data.corpus import (
    Corpus,
    Form,
    ParallelText,
    cached_preparation,
    check_splits,
    describe_corpus,
)
from normlab.data.encoded import EncodedPairs, EncodedText, length_statistics
from normlab.data.languages import Language, language_of
from normlab.data.vocabulary import Tokenizer, join_pieces, moses_text, moses_tokens
from normlab.errors import UserError

PAIRS_FORMAT = "normlab.prepared/8"
_PART = 10_000  # number of lines encoded at once
_SIDES = ("source", "target")


@dataclass(frozen=True)
class PreparedTranslation:
    """A parallel corpus ready to train on.

    `texts` holds the sentences that `pairs` encodes, with the pieces of `bpe` text joined; its
    targets are the references for scores. With a joint vocabulary, both tokenizers are the same
    object.
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
        """Rebuild the tokenizers from the files saved with a run, which include no text."""
        tokenizers = [Tokenizer.of_text(vocabulary[name]) for name in sorted(vocabulary)]
        form, languages = description["form"], description["languages"]
        return cls({}, {}, tokenizers[0], tokenizers[-1], form, languages, description)

    def vocabulary(self) -> dict[str, str]:
        """Return the vocabulary files as text, keyed by name: one if joint, otherwise two."""
        tokenizers = (self.source_tokenizer, self.target_tokenizer)
        sides = dict(zip(_SIDES, tokenizers, strict=True))
        if self.description["vocabulary"]["joint"]:
            del sides["target"]
        return {f"{side}.json": tokenizer.text() for side, tokenizer in sides.items()}

    @property
    def target(self) -> Language:
        return language_of(self.languages[1], "task.corpus.target_language")

    def plain(self, lines: list[str]) -> list[str]:
        """Convert decoded or reference target lines to the plain text that `bleu` scores."""
        return lines if self.form == "raw" else moses_text(lines, self.target)

    def words(self, lines: list[str]) -> list[str]:
        """Convert decoded or reference target lines to the Moses tokens that `bleu_tok` scores."""
        return moses_tokens(lines, self.target) if self.form == "raw" else lines

    def source_lines(self, lines: Sequence[str]) -> list[str]:
        """Tokenize and lowercase a user's sentences in the same way as the corpus's source text.

        Text of languages without spaces between words must already be split into words.
        """
        language = language_of(self.languages[0], "task.corpus.source_language")
        if self.form != "tokenized" or not language.spaced:
            return list(lines)
        tokens = moses_tokens(lines, language)
        return tokens if self.description["cased"] else [line.lower() for line in tokens]


def prepare_translation(
    corpus: Corpus, *, vocab_size: int, joint: bool, max_length: int
) -> PreparedTranslation:
    """Tokenize, encode and describe a corpus, or load it from the cache.

    Vocabularies are learned only from `train`: one of `vocab_size` entries if `joint`, otherwise
    one per side. Training pairs with a blank side, or with more than `max_length` tokens on a side
    (including the end mark), are left out and counted. Repeated pairs are only counted: in `train`
    the duplicates of an earlier pair, in other splits the pairs that also occur in `train`. Raises
    UserError if a pair in a split other than `train` exceeds `max_length`.
    """
    sizes = {"vocab_size": vocab_size, "joint": joint, "max_length": max_length}
    settings = {"format": PAIRS_FORMAT, **sizes}
    folder, description = cached_preparation(
        corpus, settings, partial(_build_pairs, corpus, **sizes)
    )
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
    check_splits(corpus.name, {split: len(text) for split, text in splits.items()})
    _check_filled(corpus.languages, splits)
    numbered = enumerate(zip(splits["train"].source, splits["train"].target, strict=True))
    filled = np.array([i for i, (a, b) in numbered if a.strip() and b.strip()], np.int64)
    train = splits["train"].pick(filled.tolist())
    texts = {**splits, "train": train}
    if not len(train):
        raise UserError("no line of train has text in both languages; check that the files match")
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
        short_enough = _within_max_length(split, pairs.lengths, numbers, max_length)
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
    return describe_corpus(corpus, by_split, languages=list(corpus.languages), **values)


def _check_filled(languages: Sequence[str], splits: Mapping[str, ParallelText]) -> None:
    """Raise UserError if a split lacks one side, as a blind test set lacks references."""
    for split, text in splits.items():
        for language, lines in zip(languages, (text.source, text.target), strict=True):
            if not any(line.strip() for line in lines):
                raise UserError(
                    f"{split}, {language}: all {len(lines)} lines are empty, but every split "
                    "needs both languages; use a test set with references, or normlab predict "
                    "for text without references"
                )


def _write_pairs(
    folder: Path, split: str, corpus: Corpus, pairs: EncodedPairs, text: ParallelText
) -> dict[str, Any]:
    """Write a split's pairs and their text (with pieces joined), and return their description."""
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


def _within_max_length(
    split: str, lengths: np.ndarray, lines: np.ndarray, max_length: int
) -> np.ndarray:
    """Return the indices of the pairs that have at most `max_length` tokens on each side.

    `lines` (int64 [pairs]) are the pairs' line numbers in their files. Raises UserError if a pair
    in a split other than `train` is longer, or if all training pairs are.
    """
    short_enough = lengths.max(axis=1) <= max_length
    if not short_enough.all() and (split != "train" or not short_enough.any()):
        first = int(np.argmin(short_enough))
        raise UserError(
            f"{split}, line {lines[first]} has {lengths[first].max()} tokens with its end mark; "
            f"{(~short_enough).sum()} of {len(lengths)} pairs exceed "
            f"task.max_length={max_length}; set {lengths.max()} or more"
        )
    return np.flatnonzero(short_enough)
