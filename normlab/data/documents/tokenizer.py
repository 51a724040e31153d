"""One subword vocabulary for masked and for causal language modelling.

Decides the seven special ids and two segmentations, both without loss of words at a sentence's
ends. `wordpiece`: BERT's (Devlin et al. 2019): words and punctuation apart, `##` before a piece
that goes on with a word, an unknown id for a word with a rare character. `bpe`: byte pairs over
bytes (Radford et al. 2019), which knows every text, so bits a character leave nothing out.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Literal, SupportsInt

from tokenizers import Tokenizer as Segmenter
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

Pieces = Literal["wordpiece", "bpe"]

# Punctuation stands alone in both segmentations, so no piece of a text reads like one of these.
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[BOS]", "[EOS]")
CONTINUES = "##"
MAX_ALPHABET = 1000  # characters that a WordPiece vocabulary may have, the most frequent


class DocumentTokenizer:
    """A vocabulary and its segmentation; the first ids are those of `SPECIALS`.

    Special ids never come out of `encode`, except `unk_id`: the word `[MASK]` in a text is text.
    """

    pad_id: ClassVar[int] = 0
    unk_id: ClassVar[int] = 1
    cls_id: ClassVar[int] = 2
    sep_id: ClassVar[int] = 3
    mask_id: ClassVar[int] = 4
    bos_id: ClassVar[int] = 5
    eos_id: ClassVar[int] = 6
    first_ordinary: ClassVar[int] = len(SPECIALS)

    def __init__(self, segmenter: Segmenter) -> None:
        self._segmenter = segmenter

    @classmethod
    def train(
        cls, sentences: Sequence[str], *, pieces: Pieces, vocab_size: int, lowercase: bool
    ) -> "DocumentTokenizer":
        """Learn at most `vocab_size` entries from training text; the same text gives the same ids.

        `lowercase` also takes accents off where `pieces` is `wordpiece`, as BERT does.

        Raises: ValueError: `vocab_size` leaves no room beyond special tokens and single characters.
        """
        train = _train_wordpiece if pieces == "wordpiece" else _train_bpe
        segmenter = train(sentences, vocab_size, lowercase)
        if segmenter.get_vocab_size() > vocab_size:
            raise ValueError(
                f"vocab_size={vocab_size} is too small: special tokens and the single characters "
                f"of the training text are {segmenter.get_vocab_size()} entries already"
            )
        # The trainer also registers the special tokens to be found in text; none should be.
        state = json.loads(segmenter.to_str())
        state["added_tokens"] = []
        return cls(Segmenter.from_str(json.dumps(state)))

    def __len__(self) -> int:
        return self._segmenter.get_vocab_size()

    @property
    def ordinary(self) -> range:
        """The ids that are not special: what a masked token may be replaced with."""
        return range(self.first_ordinary, len(self))

    def encode(self, sentences: Sequence[str]) -> list[tuple[list[int], list[bool]]]:
        """Return each sentence's ids, without marks, and whether each begins a word."""
        encodings = self._segmenter.encode_batch(list(sentences), add_special_tokens=False)
        return [(encoding.ids, _begins(encoding.word_ids)) for encoding in encodings]

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Return the text of ids, without padding and marks; `[UNK]` and `[MASK]` are shown."""
        hidden = {self.pad_id, self.cls_id, self.sep_id, self.bos_id, self.eos_id}
        kept = [i for i in map(int, ids) if i not in hidden]
        return self._segmenter.decode(kept, skip_special_tokens=False).removeprefix(" ")

    def tokens(self, ids: Iterable[SupportsInt]) -> list[str]:
        """Return the vocabulary's entries for ids."""
        return [str(self._segmenter.id_to_token(int(i))) for i in ids]

    def save(self, folder: Path, stem: str = "tokenizer") -> None:
        """Write `<stem>.json` in the format of the `tokenizers` library."""
        (folder / f"{stem}.json").write_text(self._segmenter.to_str(pretty=True), "utf-8")

    @classmethod
    def load(cls, folder: Path, stem: str = "tokenizer") -> "DocumentTokenizer":
        """Read what `save` wrote."""
        return cls(Segmenter.from_file(str(folder / f"{stem}.json")))


def _begins(words: Sequence[int | None]) -> list[bool]:
    return [i == 0 or words[i] != words[i - 1] for i in range(len(words))]


def _train_bpe(sentences: Sequence[str], vocab_size: int, lowercase: bool) -> Segmenter:
    segmenter = Segmenter(models.BPE())
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    segmenter.normalizer = normalizers.Sequence(
        [*steps, normalizers.Lowercase()] if lowercase else steps
    )
    segmenter.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    segmenter.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    segmenter.train_from_iterator(sentences, trainer=trainer)
    return segmenter


def _train_wordpiece(sentences: Sequence[str], vocab_size: int, lowercase: bool) -> Segmenter:
    segmenter = Segmenter(models.WordPiece(unk_token=SPECIALS[1]))
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    segmenter.normalizer = normalizer
    segmenter.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    segmenter.decoder = decoders.WordPiece(prefix=CONTINUES)
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(normalizer.normalize_str(sentence))
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    rare = {ord(character): " " for character in ranked[MAX_ALPHABET:]}
    # The library numbers the characters that go on with a word in the order of a hash map, and
    # breaks ties between merges by these numbers: another vocabulary in each process. Naming them
    # beforehand, in order, fixes both.
    going_on = [
        CONTINUES + character
        for character in sorted(ranked[:MAX_ALPHABET])
        if _stays_inside(segmenter, character)
    ]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[*SPECIALS, *going_on],
        limit_alphabet=MAX_ALPHABET,
        continuing_subword_prefix=CONTINUES,
        show_progress=False,
    )
    texts = (normalizer.normalize_str(s).translate(rare) for s in sentences) if rare else sentences
    segmenter.train_from_iterator(texts, trainer=trainer)
    return segmenter


def _stays_inside(segmenter: Segmenter, character: str) -> bool:
    """Tell whether a character can go on with a word, as blanks and punctuation cannot."""
    assert segmenter.normalizer is not None and segmenter.pre_tokenizer is not None
    text = segmenter.normalizer.normalize_str(f"a{character}")
    words = segmenter.pre_tokenizer.pre_tokenize_str(text)
    return [word for word, _ in words] == [f"a{character}"]
