"""Subword vocabularies: how a sentence becomes ids and ids become a sentence again.

Decides the four special ids and one segmentation per form of text. `raw`: joint byte-pair encoding
(Sennrich et al. 2016) of text whose spaces are kept as a visible mark and whose punctuation stands
alone, so that decoding gives the text back (up to Unicode NFC). `tokenized`: the same over
space-separated words, punctuation not split again. `bpe`: the text is segmented already, so the
vocabulary is its training pieces, and decoding joins `@@ `.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import ClassVar, SupportsInt

from tokenizers import Tokenizer as Segmenter
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from normlab.data.corpus import Form

# The space inside keeps them apart from text: no piece of a sentence contains one, whatever markup
# such as "</s>" or "<unk>" the text is full of.
SPECIALS = ("< pad >", "< s >", "< /s >", "< unk >")
PIECE_JOIN = "@@ "


class Tokenizer:
    """A vocabulary and its segmentation. Ids 0 to 3 are padding, begin, end and unknown.

    Special ids never come out of `encode_batch`, except `unk_id`: the words `<pad>` or `</s>` in a
    text are text.
    """

    pad_id: ClassVar[int] = 0
    bos_id: ClassVar[int] = 1
    eos_id: ClassVar[int] = 2
    unk_id: ClassVar[int] = 3

    def __init__(self, segmenter: Segmenter, *, form: Form) -> None:
        self._segmenter = segmenter
        self.form: Form = form

    @classmethod
    def train(cls, lines: Iterable[str], *, form: Form, vocab_size: int) -> "Tokenizer":
        """Learn a vocabulary of at most `vocab_size` entries from training text.

        For `bpe` text the vocabulary is every piece of `lines`, whatever `vocab_size` says: the
        pieces were chosen when the text was segmented.
        """
        if form == "bpe":
            return cls(_piece_segmenter(lines), form=form)
        if vocab_size <= len(SPECIALS):
            raise ValueError(
                f"vocab_size={vocab_size} must be above {len(SPECIALS)}, the special tokens"
            )
        return cls(_subword_segmenter(lines, form, vocab_size), form=form)

    def __len__(self) -> int:
        return self._segmenter.get_vocab_size()

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, without begin and end marks."""
        encodings = self._segmenter.encode_batch_fast(list(lines), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Return the text of ids, without padding and marks; an unknown id reads `< unk >`."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, sentences: Iterable[Iterable[SupportsInt]]) -> list[str]:
        """Return `decode` of each sentence."""
        hidden = {self.pad_id, self.bos_id, self.eos_id}
        kept = [[i for i in map(int, ids) if i not in hidden] for ids in sentences]
        texts = self._segmenter.decode_batch(kept, skip_special_tokens=False)
        return [join_pieces(text) for text in texts] if self.form == "bpe" else texts

    def cut(self, line: str) -> str:
        """Cut the words of a line of `bpe` text into the longest known pieces, from their start."""
        return " ".join(" ".join(self._pieces(word)) for word in line.split(" ") if word)

    def _pieces(self, word: str) -> list[str]:
        pieces: list[str] = []
        while len(word) > 1 and not self._known(word):
            ends = (n for n in range(len(word) - 1, 0, -1) if self._known(word[:n] + "@@"))
            end = next(ends, 1)
            pieces.append(word[:end] + "@@")
            word = word[end:]
        return [*pieces, word]

    def _known(self, piece: str) -> bool:
        return self._segmenter.token_to_id(piece) is not None

    def save(self, folder: Path, stem: str = "tokenizer") -> None:
        """Write `<stem>.json` in the format of the `tokenizers` library."""
        (folder / f"{stem}.json").write_text(self._segmenter.to_str(pretty=True), "utf-8")

    @classmethod
    def load(cls, folder: Path, stem: str = "tokenizer", *, form: Form) -> "Tokenizer":
        """Read what `save` wrote."""
        return cls(Segmenter.from_file(str(folder / f"{stem}.json")), form=form)


def join_pieces(line: str) -> str:
    """Join the pieces of already segmented text into words."""
    return (line + " ").replace(PIECE_JOIN, "").removesuffix(" ")


def _subword_segmenter(lines: Iterable[str], form: Form, vocab_size: int) -> Segmenter:
    """Train byte-pair encoding over space-marked words."""
    space = pre_tokenizers.Metaspace(prepend_scheme="always")
    segmenter = Segmenter(models.BPE(unk_token=SPECIALS[3], fuse_unk=True))
    segmenter.normalizer = normalizers.NFC()
    segmenter.pre_tokenizer = (
        pre_tokenizers.Sequence([space, pre_tokenizers.Punctuation("isolated")])
        if form == "raw"
        else space
    )
    segmenter.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(SPECIALS),
        show_progress=False,
    )
    segmenter.train_from_iterator(lines, trainer=trainer)
    # The trainer also registers the special tokens to be found in text; none should be.
    state = json.loads(segmenter.to_str())
    state["added_tokens"] = []
    return Segmenter.from_str(json.dumps(state))


def _piece_segmenter(lines: Iterable[str]) -> Segmenter:
    """Build the vocabulary of pieces, the most frequent first; the published `<unk>` is unknown."""
    counts = Counter(chain.from_iterable(line.split(" ") for line in lines))
    for word in ("<unk>", ""):
        counts.pop(word, None)
    pieces = sorted(counts, key=lambda piece: (-counts[piece], piece))
    vocabulary = {piece: number for number, piece in enumerate([*SPECIALS, *pieces])}
    segmenter = Segmenter(models.WordLevel(vocabulary, unk_token=SPECIALS[3]))
    segmenter.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    return segmenter
