"""From a corpus to what a translation task trains on: ids, vocabularies, references, and their description.

Decides what happens to sentences over the limit (a training pair is left out and counted; in valid and test it is an
error, because a score on fewer or cut sentences is another score), what the cache key depends on, and what a record
says about its data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from normlab.data import moses
from normlab.data.cache import cache_key, cached_folder
from normlab.data.corpus import Corpus, Form, ParallelText
from normlab.data.encoded import EncodedPairs, EncodedText
from normlab.data.tokenizer import Tokenizer, join_pieces

FORMAT = "normlab.prepared/1"


@dataclass(frozen=True)
class PreparedTranslation:
    """A corpus ready to train on.

    `texts` hold the sentences that `pairs` encode, in the same order, with the pieces of `bpe` text joined: the
    references of scoring. `source_tokenizer` and `target_tokenizer` are one object where the vocabulary is joint.
    """

    pairs: dict[str, EncodedPairs]
    texts: dict[str, ParallelText]
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    form: Form
    languages: tuple[str, str]
    description: dict[str, Any]

    def plain(self, lines: list[str]) -> list[str]:
        """Turn decoded or reference target lines into plain text, as `bleu` is scored on."""
        return lines if self.form == "raw" else moses.detokenize(lines, lang=self.languages[1])

    def words(self, lines: list[str]) -> list[str]:
        """Turn decoded or reference target lines into Moses tokens, as `bleu_tok` is scored on."""
        return moses.tokenize(lines, lang=self.languages[1]) if self.form == "raw" else lines


def prepare_translation(
    corpus: Corpus,
    *,
    vocab_size: int,
    joint: bool,
    max_length: int,
    cache: Path | None = None,
) -> PreparedTranslation:
    """Segment, encode and describe a corpus, or take that from the cache (`cache`, else the user's).

    Vocabularies are learnt from `train` alone: one of `vocab_size` entries where `joint`, else one a side.
    `max_length` bounds the tokens of a side with the end mark. Raises ValueError naming file and line.
    """
    settings = {
        "format": FORMAT,
        "content": corpus.key(),
        "vocab_size": vocab_size,
        "joint": joint,
        "max_length": max_length,
        "tokenizers": tokenizers.__version__,
    }
    name = f"{corpus.name}-{cache_key(settings)}"

    def build(folder: Path) -> None:
        _build(folder, corpus, vocab_size=vocab_size, joint=joint, max_length=max_length)

    return _load(cached_folder(name, build, root=cache))


def _build(folder: Path, corpus: Corpus, *, vocab_size: int, joint: bool, max_length: int) -> None:
    """Write everything that `_load` reads."""
    splits = {split: text.checked() for split, text in corpus.splits().items()}
    _require_splits(corpus, splits)
    train = splits["train"]
    sides = (train.source + train.target,) * 2 if joint else (train.source, train.target)
    source = Tokenizer.train(sides[0], form=corpus.form, vocab_size=vocab_size)
    target = source if joint else Tokenizer.train(sides[1], form=corpus.form, vocab_size=vocab_size)
    source.save(folder, "source")
    target.save(folder, "target")
    description = {
        **corpus.describe(),
        "vocabulary": {"joint": joint, "source": len(source), "target": len(target)},
        "max_length": max_length,
        "dropped_long": 0,
        "tokens": {},
        "lengths": {},
        "unknown": {},
        "reference_words": {},
    }
    for split, text in splits.items():
        pairs = EncodedPairs(
            EncodedText.from_sentences(source.encode_batch(text.source)),
            EncodedText.from_sentences(target.encode_batch(text.target)),
        )
        kept = pairs.lengths.max(axis=1) <= max_length
        if not kept.all():
            pairs, text = _without_long(split, pairs, text, kept, max_length)
            description["dropped_long"] = int((~kept).sum())
        for side, lang, encoded in _sides(corpus, pairs):
            encoded.save(folder, f"{split}.{side}")
            description["tokens"].setdefault(split, {})[lang] = len(encoded.ids)
            description["lengths"].setdefault(split, {})[lang] = length_statistics(encoded.lengths)
            unknown = int((encoded.ids == Tokenizer.unk_id).sum())
            description["unknown"].setdefault(split, {})[lang] = unknown
        source_lines, target_lines = text.source, text.target
        if corpus.form == "bpe":
            source_lines = [join_pieces(line) for line in source_lines]
            target_lines = [join_pieces(line) for line in target_lines]
        if split != "train":
            description["reference_words"][split] = sum(len(line.split()) for line in target_lines)
        for side, lines in (("source", source_lines), ("target", target_lines)):
            (folder / f"{split}.{side}.txt").write_text("".join(f"{x}\n" for x in lines), "utf-8", newline="\n")
    description["kept"] = len((folder / "train.source.txt").read_text("utf-8").split("\n")) - 1
    meta = {"form": corpus.form, "languages": list(corpus.languages), "splits": list(splits), "joint": joint}
    (folder / "meta.json").write_text(json.dumps(meta))
    (folder / "description.json").write_text(json.dumps(description, indent=1, sort_keys=True))


def _load(folder: Path) -> PreparedTranslation:
    """Open a folder that `_build` wrote."""
    meta = json.loads((folder / "meta.json").read_text("utf-8"))
    form: Form = meta["form"]
    source = Tokenizer.load(folder, "source", form=form)
    target = source if meta["joint"] else Tokenizer.load(folder, "target", form=form)
    pairs: dict[str, EncodedPairs] = {}
    texts: dict[str, ParallelText] = {}
    for split in meta["splits"]:
        pairs[split] = EncodedPairs(
            EncodedText.load(folder, f"{split}.source"), EncodedText.load(folder, f"{split}.target")
        )
        texts[split] = ParallelText(*(_read_side(folder, split, side) for side in ("source", "target")))
    description = json.loads((folder / "description.json").read_text("utf-8"))
    return PreparedTranslation(pairs, texts, source, target, form, tuple(meta["languages"]), description)


def _read_side(folder: Path, split: str, side: str) -> list[str]:
    return (folder / f"{split}.{side}.txt").read_bytes().decode().split("\n")[:-1]


def _sides(corpus: Corpus, pairs: EncodedPairs) -> list[tuple[str, str, EncodedText]]:
    source_lang, target_lang = corpus.languages
    return [("source", source_lang, pairs.source), ("target", target_lang, pairs.target)]


def _require_splits(corpus: Corpus, splits: dict[str, ParallelText]) -> None:
    for split in ("train", "valid", "test"):
        if split not in splits:
            raise ValueError(
                f"corpus {corpus.name} has no {split} split (it has {', '.join(splits) or 'none'}); "
                "training needs train, valid and test"
            )


def _without_long(
    split: str, pairs: EncodedPairs, text: ParallelText, kept: np.ndarray, max_length: int
) -> tuple[EncodedPairs, ParallelText]:
    """Leave long training pairs out; raise ValueError for a long sentence elsewhere or where none is left."""
    longest = int(pairs.lengths.max())
    first = int(np.flatnonzero(~kept)[0])
    side = int(pairs.lengths[first].argmax())
    if split != "train":
        raise ValueError(
            f"{text.origins[side]}, line {first + 1}: {int(pairs.lengths[first, side])} tokens with the end mark, "
            f"over task.max_length={max_length}; {int((~kept).sum())} pairs of {split} are too long. Set "
            f"task.max_length={longest} or more (sentences that are scored are neither cut nor left out)"
        )
    if not kept.any():
        raise ValueError(
            f"{text.origins[side]}: every training pair is over task.max_length={max_length} tokens; raise it "
            f"(the longest sentence has {longest})"
        )
    indices = np.flatnonzero(kept)
    shorter = EncodedPairs(
        EncodedText.from_sentences([pairs.source[i].tolist() for i in indices]),
        EncodedText.from_sentences([pairs.target[i].tolist() for i in indices]),
    )
    lines = ParallelText(
        [text.source[i] for i in indices], [text.target[i] for i in indices], origins=text.origins
    )
    return shorter, lines


def length_statistics(lengths: np.ndarray) -> dict[str, float]:
    """Return mean, median, 95th percentile and maximum of sentence lengths in tokens."""
    return {
        "mean": round(float(lengths.mean()), 2),
        "median": float(np.median(lengths)),
        "p95": float(np.percentile(lengths, 95)),
        "max": int(lengths.max()),
    }
