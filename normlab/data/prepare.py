"""From a corpus to what a translation task trains on: ids, vocabularies, references, description.

Decides what happens to sentences over the limit (a training pair is left out and counted; in valid
and test it is an error, because a score on fewer or on cut sentences is another score), what the
cache key depends on, and what a record says about its data.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from normlab.data import moses
from normlab.data.cache import cache_key, cached_folder
from normlab.data.corpus import Corpus, Form, ParallelText
from normlab.data.encoded import EncodedPairs, EncodedText
from normlab.data.tokenizer import PIECE_JOIN, Tokenizer, join_pieces

FORMAT = "normlab.prepared/2"
REQUIRED = ("train", "valid", "test")
_PART = 10_000  # lines that are encoded at a time


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
        """Turn decoded or reference target lines into plain text, as `bleu` is scored on."""
        return lines if self.form == "raw" else moses.detokenize(lines, lang=self.languages[1])

    def words(self, lines: list[str]) -> list[str]:
        """Turn decoded or reference target lines into Moses tokens, as `bleu_tok` is scored on."""
        return moses.tokenize(lines, lang=self.languages[1]) if self.form == "raw" else lines

    def source_line(self, line: str) -> str:
        """Turn a sentence of a user into the form of the source text, for `encode_batch`.

        `raw`: as it is. `tokenized`: Moses tokens. `bpe`: likewise, and each word is cut into the
        longest known pieces from its start, as the merges themselves are not part of such text; a
        line that holds pieces already stays. Lowercased where the training text is.
        """
        if self.form == "raw" or PIECE_JOIN in line:
            return line
        (tokens,) = moses.tokenize([line], lang=self.languages[0])
        tokens = tokens.lower() if self.lowercased else tokens
        return self.source_tokenizer.cut(tokens) if self.form == "bpe" else tokens


def prepare_translation(
    corpus: Corpus,
    *,
    vocab_size: int,
    joint: bool,
    max_length: int,
    cache: Path | None = None,
) -> PreparedTranslation:
    """Segment, encode and describe a corpus, or take that from the cache (null: the user's).

    Vocabularies are learnt from `train` alone: one of `vocab_size` entries where `joint`, else one
    a side. `max_length` bounds the tokens of a side with the end mark. Raises ValueError naming
    file and line, or the split that is missing.
    """
    settings = {
        "format": FORMAT,
        "content": corpus.key(),
        "label": corpus.label,
        "vocab_size": vocab_size,
        "joint": joint,
        "max_length": max_length,
        "tokenizers": tokenizers.__version__,
    }

    def build(folder: Path) -> None:
        _build(folder, corpus, vocab_size=vocab_size, joint=joint, max_length=max_length)

    return _load(cached_folder(f"{corpus.name}-{cache_key(settings)}", build, root=cache))


def _build(folder: Path, corpus: Corpus, *, vocab_size: int, joint: bool, max_length: int) -> None:
    """Write everything that `_load` reads."""
    splits = {split: text.checked() for split, text in corpus.splits().items()}
    missing = [split for split in REQUIRED if split not in splits]
    if missing:
        raise ValueError(
            f"corpus {corpus.name} has no {' and no '.join(missing)} split (it has "
            f"{', '.join(splits) or 'none'}); give train, valid and test"
        )
    source, target = _vocabularies(splits["train"], corpus.form, vocab_size=vocab_size, joint=joint)
    source.save(folder, "source")
    target.save(folder, "target")
    description: dict[str, Any] = {
        **corpus.describe(),
        "vocabulary": {"joint": joint, "source": len(source), "target": len(target)},
        "max_length": max_length,
    }
    for name in ("sizes", "dropped_long", "tokens", "lengths", "unknown", "reference_length"):
        description[name] = {}
    for split, text in splits.items():
        pairs = EncodedPairs(
            _encoded(source, text.source),
            _encoded(target, text.target),
        )
        kept = _kept(split, pairs, text, max_length)
        if len(kept) < len(pairs):
            pairs = EncodedPairs(pairs.source.select(kept), pairs.target.select(kept))
        for side, encoded in (("source", pairs.source), ("target", pairs.target)):
            encoded.save(folder, f"{split}.{side}")
            lines = getattr(text, side)
            _write_lines(folder / f"{split}.{side}.txt", (lines[i] for i in kept), corpus.form)
        description["sizes"][split] = len(pairs)
        description["dropped_long"][split] = len(text) - len(pairs)
        for name, values in _statistics(pairs, corpus.languages).items():
            description[name][split] = values
        description["reference_length"][split] = sum(
            len(line.split()) for line in _read_lines(folder / f"{split}.target.txt")
        )
    meta = {
        "form": corpus.form,
        "languages": list(corpus.languages),
        "lowercased": not any(line != line.lower() for line in splits["train"].source),
        "splits": list(splits),
        "joint": joint,
    }
    for name, values in (("meta", meta), ("description", description)):
        text = json.dumps(values, indent=1, sort_keys=name == "description")
        (folder / f"{name}.json").write_text(text, "utf-8")


def _vocabularies(
    train: ParallelText, form: Form, *, vocab_size: int, joint: bool
) -> tuple[Tokenizer, Tokenizer]:
    if joint:
        both = Tokenizer.train(train.source + train.target, form=form, vocab_size=vocab_size)
        return both, both
    source, target = (
        Tokenizer.train(lines, form=form, vocab_size=vocab_size)
        for lines in (train.source, train.target)
    )
    return source, target


def _encoded(tokenizer: Tokenizer, lines: Sequence[str]) -> EncodedText:
    """Encode lines a part at a time, since lists of ids take many times the room of arrays."""
    return EncodedText.joined(
        [
            EncodedText.from_sentences(tokenizer.encode_batch(lines[start : start + _PART]))
            for start in range(0, len(lines), _PART)
        ]
    )


def _kept(split: str, pairs: EncodedPairs, text: ParallelText, max_length: int) -> np.ndarray:
    """Return the indices of pairs within the limit; ValueError where scored pairs are over it."""
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


def _statistics(pairs: EncodedPairs, languages: tuple[str, str]) -> dict[str, dict[str, Any]]:
    """Return tokens, length statistics and unknown tokens, each by language; no end marks."""
    sides = list(zip(languages, (pairs.source, pairs.target), strict=True))
    return {
        "tokens": {lang: len(text.ids) for lang, text in sides},
        "lengths": {lang: length_statistics(text.lengths) for lang, text in sides},
        "unknown": {lang: int((text.ids == Tokenizer.unk_id).sum()) for lang, text in sides},
    }


def length_statistics(lengths: np.ndarray) -> dict[str, float]:
    """Return mean, median, 95th percentile and maximum of sentence lengths [n] in tokens."""
    return {
        "mean": round(float(lengths.mean()), 2),
        "median": float(np.median(lengths)),
        "p95": round(float(np.percentile(lengths, 95)), 1),
        "max": int(lengths.max()),
    }


def _load(folder: Path) -> PreparedTranslation:
    """Open a folder that `_build` wrote."""
    meta = json.loads((folder / "meta.json").read_text("utf-8"))
    form: Form = meta["form"]
    source = Tokenizer.load(folder, "source", form=form)
    return PreparedTranslation(
        pairs={
            split: EncodedPairs(
                *(EncodedText.load(folder, f"{split}.{side}") for side in ("source", "target"))
            )
            for split in meta["splits"]
        },
        texts=_Texts(folder, meta["splits"]),
        source_tokenizer=source,
        target_tokenizer=source if meta["joint"] else Tokenizer.load(folder, "target", form=form),
        form=form,
        languages=tuple(meta["languages"]),
        lowercased=meta["lowercased"],
        description=json.loads((folder / "description.json").read_text("utf-8")),
    )


class _Texts(Mapping[str, ParallelText]):
    """The text of each split, read when it is asked for: training does without that of `train`."""

    def __init__(self, folder: Path, splits: Sequence[str]):
        self._folder, self._splits = folder, splits
        self._read: dict[str, ParallelText] = {}

    def __getitem__(self, split: str) -> ParallelText:
        if split not in self._splits:
            raise KeyError(split)
        if split not in self._read:
            stems = (f"{split}.source", f"{split}.target")
            lines = (_read_lines(self._folder / f"{stem}.txt") for stem in stems)
            self._read[split] = ParallelText(*lines, origins=stems)
        return self._read[split]

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)


def _write_lines(path: Path, lines: Iterable[str], form: Form) -> None:
    whole = (join_pieces(line) for line in lines) if form == "bpe" else lines
    path.write_bytes("".join(line + "\n" for line in whole).encode())


def _read_lines(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1]
