"""Words and subwords: Moses tokens, and vocabularies of translation and language models.

Translation. `raw` text gets byte-pair encoding (Sennrich et al. 2016); spaces become a visible
character and punctuation is split off, so that decoding restores the text (up to Unicode NFC).
`tokenized` text gets the same encoding within space-separated words. `bpe` text is already
segmented, so its vocabulary consists of the pieces in the training text, and decoding joins them at
`@@ `.

Language models. `wordpiece` is BERT's (Devlin et al. 2019): punctuation is split off, `##` marks a
piece that continues a word, and a word with a rare character becomes the unknown token. `bpe` is
byte-level byte-pair encoding (Radford et al. 2019), which can encode any text. `characters` has one
piece per character of the training text.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, SupportsInt

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Segmenter

from normlab.data.corpus import Form
from normlab.data.languages import Language
from normlab.errors import UserError

Pieces = Literal["wordpiece", "bpe", "characters"]

# No piece of a sentence contains a space, so "</s>" or "<unk>" in a text is never one of these.
PAIR_SPECIALS = ("< pad >", "< s >", "< /s >", "< unk >")
# WordPiece and byte-level BPE split off punctuation, so no piece of a text is one of these.
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[BOS]", "[EOS]")
CONTINUES = "##"
LINE_BREAK = "\u2424"  # stands for a line break, because prepared text has one sentence per line
# The stand-in is a noncharacter, a code point that Unicode reserves for use inside programs.
SPACE, STAND_IN = "\u2581", "\ufdd0"
# Characters of scripts without spaces between words: Thai to Burmese, Khmer, Tai, Balinese and
# Javanese; Chinese and Japanese with their punctuation.
_UNSPACED = (
    "\u0e00-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9df\uaa60-\uaadf"
    "\u2e80-\u312f\u31a0-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff"
)
_BETWEEN_UNSPACED = re.compile(f"(?<=[{_UNSPACED}]) (?=[{_UNSPACED}])")
# A word that contains a joiner, as in Persian and Sinhala, or an accent that is a separate
# character, as in Yoruba. Moses would split the word there.
_JOINED = "[^\\W\u0300-\u036f]*[\u0300-\u036f\u200c\u200d][\\w\u0300-\u036f\u200c\u200d]*"
MAX_ALPHABET = 1000  # distinct characters that WordPiece keeps, the most frequent first


class _Vocabulary:
    """Base class of vocabularies, which wraps a segmenter of the `tokenizers` library.

    Encoding a text never yields special ids except the unknown id: `</s>` or `[MASK]` in a text is
    read as ordinary text. Decoding skips the special ids in `hidden`.
    """

    hidden: ClassVar[frozenset[int]]

    def __init__(self, segmenter: Segmenter) -> None:
        self._segmenter = segmenter

    def __len__(self) -> int:
        return self._segmenter.get_vocab_size()

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Decode ids to text, skipping padding and marks but not unknown or masked tokens."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, sentences: Iterable[Iterable[SupportsInt]]) -> list[str]:
        """Decode each sentence."""
        shown = [[i for i in map(int, ids) if i not in self.hidden] for ids in sentences]
        return self._segmenter.decode_batch(shown, skip_special_tokens=False)

    def text(self) -> str:
        """Return the vocabulary as text, in the format of the `tokenizers` library."""
        return self._segmenter.to_str(pretty=True)

    @classmethod
    def of_text(cls, text: str) -> Any:
        """Rebuild a vocabulary from the output of `text`."""
        return cls(Segmenter.from_str(text))

    def save(self, path: Path) -> None:
        """Write the vocabulary to a file."""
        path.write_text(self.text(), "utf-8")

    @classmethod
    def load(cls, path: Path) -> Any:
        """Load a vocabulary written by `save`."""
        return cls(Segmenter.from_file(str(path)))


class Tokenizer(_Vocabulary):
    """A translation vocabulary, for one side or shared by both."""

    pad_id, bos_id, eos_id, unk_id = range(4)
    hidden = frozenset({pad_id, bos_id, eos_id})

    @classmethod
    def train(cls, lines: Iterable[str], *, form: Form, vocab_size: int) -> "Tokenizer":
        """Learn a vocabulary of at most `vocab_size` entries from training text.

        For `bpe` text the vocabulary is all pieces in `lines`, and `vocab_size` is ignored because
        the pieces were chosen when the text was segmented. For other text, raises UserError if
        `vocab_size` is too small for the special tokens and the single characters.
        """
        if form == "bpe":
            return cls(_pieces_of(lines))
        cuts: list[Any] = [pre_tokenizers.Metaspace(prepend_scheme="always")]
        if form == "raw":
            cuts.append(pre_tokenizers.Punctuation("isolated"))
        segmenter = Segmenter(models.BPE(unk_token=PAIR_SPECIALS[cls.unk_id], fuse_unk=True))
        # Metaspace writes a space as SPACE, so a SPACE of the text itself becomes STAND_IN.
        segmenter.normalizer = normalizers.Sequence(
            [normalizers.NFC(), normalizers.Replace(SPACE, STAND_IN)]
        )
        segmenter.pre_tokenizer = pre_tokenizers.Sequence(cuts)
        segmenter.decoder = decoders.Sequence(
            [decoders.Metaspace(prepend_scheme="always"), decoders.Replace(STAND_IN, SPACE)]
        )
        specials, kind = list(PAIR_SPECIALS), trainers.BpeTrainer
        segmenter = _learned(segmenter, lines, kind, vocab_size=vocab_size, special_tokens=specials)
        return cls(_checked(segmenter, vocab_size))

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, without begin and end marks."""
        encodings = self._segmenter.encode_batch_fast(list(lines), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode_batch(self, sentences: Iterable[Iterable[SupportsInt]]) -> list[str]:
        texts = super().decode_batch(sentences)
        segmented = isinstance(self._segmenter.model, models.WordLevel)  # `bpe` text
        return [join_pieces(text) for text in texts] if segmented else texts


class DocumentTokenizer(_Vocabulary):
    """The vocabulary of a language model, whose first ids are `SPECIALS`."""

    pad_id, unk_id, cls_id, sep_id, mask_id, bos_id, eos_id = range(7)
    first_ordinary = 7
    hidden = frozenset({pad_id, cls_id, sep_id, bos_id, eos_id})

    @classmethod
    def train(
        cls, sentences: Sequence[str], *, pieces: Pieces, vocab_size: int, lowercase: bool
    ) -> "DocumentTokenizer":
        """Learn a vocabulary of at most `vocab_size` entries. The same text yields the same ids.

        If `pieces` is `wordpiece`, `lowercase` also removes accents, as in BERT. Raises UserError
        if `vocab_size` is too small for the special tokens and the single characters.
        """
        train = _TRAIN[pieces]
        return cls(_checked(train(sentences, vocab_size, lowercase), vocab_size))

    @property
    def ordinary(self) -> range:
        """The ids that are not special, from which substitutes for masked tokens are drawn."""
        return range(self.first_ordinary, len(self))

    def encode(self, sentences: Sequence[str]) -> list[tuple[list[int], list[bool]]]:
        """Return each sentence's ids, without marks, and whether each token starts a word."""
        encodings = self._segmenter.encode_batch(list(sentences), add_special_tokens=False)
        return [(x.ids, [a != b for a, b in pairwise([-1, *x.word_ids])]) for x in encodings]

    def decode_batch(self, sentences: Iterable[Iterable[SupportsInt]]) -> list[str]:
        return [text.removeprefix(" ") for text in super().decode_batch(sentences)]


def _learned(segmenter: Segmenter, lines: Iterable[str], kind: Any, **options: Any) -> Segmenter:
    trainer = kind(min_frequency=2, show_progress=False, **options)
    segmenter.train_from_iterator(lines, trainer=trainer)
    # Unregister the special tokens, so that they are not matched inside a text.
    return Segmenter.from_str(json.dumps({**json.loads(segmenter.to_str()), "added_tokens": []}))


def check_vocab_size(vocab_size: int, specials: Sequence[str]) -> None:
    """Raise UserError, before any text is read, if only special tokens would fit."""
    if vocab_size <= len(specials):
        raise UserError(
            f"task.vocab_size={vocab_size} is too small: {len(specials)} entries are special tokens"
        )


def _checked(segmenter: Segmenter, vocab_size: int) -> Segmenter:
    """Return the segmenter, or raise UserError if it has more than `vocab_size` entries."""
    if (size := segmenter.get_vocab_size()) > vocab_size:
        raise UserError(
            f"task.vocab_size={vocab_size} is too small: special tokens and the single characters "
            f"of the training text already take {size} entries"
        )
    return segmenter


def _pieces_of(lines: Iterable[str]) -> Segmenter:
    """Build a vocabulary of all pieces in segmented text except `<unk>`, most frequent first."""
    normalizer = normalizers.NFC()
    words = (x for line in lines for x in normalizer.normalize_str(line).split(" "))
    counts = Counter(x for x in words if x not in ("", "<unk>"))
    pieces = sorted(counts, key=lambda piece: (-counts[piece], piece))
    vocabulary = {piece: number for number, piece in enumerate([*PAIR_SPECIALS, *pieces])}
    segmenter = Segmenter(models.WordLevel(vocabulary, unk_token=PAIR_SPECIALS[3]))
    segmenter.normalizer = normalizer
    segmenter.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    return segmenter


def _train_bytes(sentences: Sequence[str], vocab_size: int, lowercase: bool) -> Segmenter:
    segmenter = Segmenter(models.BPE())
    steps = [normalizers.NFC(), normalizers.Lowercase()][: 1 + lowercase]
    segmenter.normalizer = normalizers.Sequence(steps)
    segmenter.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    segmenter.decoder = decoders.ByteLevel()
    options = {"vocab_size": vocab_size, "special_tokens": list(SPECIALS)}
    options |= {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    return _learned(segmenter, sentences, trainers.BpeTrainer, **options)


def _train_wordpiece(sentences: Sequence[str], vocab_size: int, lowercase: bool) -> Segmenter:
    segmenter = Segmenter(models.WordPiece(unk_token=SPECIALS[1]))
    segmenter.normalizer = normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    segmenter.pre_tokenizer = words = pre_tokenizers.BertPreTokenizer()
    segmenter.decoder = decoders.WordPiece(prefix=CONTINUES)
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(normalizer.normalize_str(sentence))
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    rare = {ord(character): " " for character in ranked[MAX_ALPHABET:]}
    texts = (normalizer.normalize_str(s).translate(rare) for s in sentences) if rare else sentences
    # The library numbers continuation characters in hash-map order, so each process would learn a
    # different vocabulary. Listing them here in sorted order prevents that. Spaces and punctuation
    # cannot continue a word.
    continuing = [
        CONTINUES + x
        for x in sorted(ranked[:MAX_ALPHABET])
        for text in [normalizer.normalize_str(f"a{x}")]
        if [word for word, _ in words.pre_tokenize_str(text)] == [f"a{x}"]
    ]
    options = {"vocab_size": vocab_size, "special_tokens": [*SPECIALS, *continuing]}
    options |= {"limit_alphabet": MAX_ALPHABET, "continuing_subword_prefix": CONTINUES}
    return _learned(segmenter, texts, trainers.WordPieceTrainer, **options)


def _train_characters(sentences: Sequence[str], vocab_size: int, lowercase: bool) -> Segmenter:
    steps = [normalizers.NFC(), normalizers.Lowercase()][: 1 + lowercase]
    normalizer = normalizers.Sequence(steps)
    characters: set[str] = set()
    for sentence in sentences:
        characters.update(normalizer.normalize_str(sentence))
    names = [*SPECIALS, *sorted(characters)]
    vocabulary = {name: number for number, name in enumerate(names)}
    segmenter = Segmenter(models.WordLevel(vocabulary, unk_token=SPECIALS[1]))
    segmenter.normalizer = normalizer
    segmenter.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    segmenter.decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace(LINE_BREAK, "\n")])
    return segmenter


_TRAIN: Mapping[Pieces, Callable[[Sequence[str], int, bool], Segmenter]] = {
    "wordpiece": _train_wordpiece,
    "bpe": _train_bytes,
    "characters": _train_characters,
}


def join_pieces(line: str) -> str:
    """Join the pieces of a segmented line into words, by removing each `@@ `."""
    return (line + " ").replace("@@ ", "").removesuffix(" ")


def moses_tokens(
    lines: Iterable[str], language: Language, *, whole_words: bool = True
) -> list[str]:
    """Return each line as space-separated Moses tokens, HTML-escaped (`&apos;`) and in NFC.

    Lines are converted to NFC first, because Moses splits words at accents that are separate
    characters. With `whole_words`, words are not split at joiners or remaining accents either.
    """
    from sacremoses import MosesTokenizer  # importing it takes a third of a second

    moses, normal = MosesTokenizer(lang=language.code), normalizers.NFC().normalize_str
    patterns = [_JOINED] if whole_words else None
    return [
        " ".join(moses.tokenize(normal(line), escape=True, protected_patterns=patterns))
        for line in lines
    ]


def moses_text(lines: Iterable[str], language: Language) -> list[str]:
    """Detokenize and unescape lines of space-separated Moses tokens.

    If the script has no spaces between words, spaces between its characters are removed.
    """
    from sacremoses import MosesDetokenizer

    moses = MosesDetokenizer(lang=language.code)
    texts = [moses.detokenize(line.split(), unescape=True) for line in lines]
    return texts if language.spaced else [_BETWEEN_UNSPACED.sub("", text) for text in texts]
