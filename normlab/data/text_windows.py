"""Windows of text for a causal language model.

A causal model predicts every token of a document and then the end mark. A window starts with the
begin mark and holds as many whole sentences of one document as fit; a sentence longer than a window
continues in the next. The loss summed over all windows of a split is therefore the loss of its
text, and bits per character need no correction.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from normlab.data.encoded import EncodedDocuments, copy_spans, offsets_of, sentence_spans, width_of
from normlab.data.vocabulary import DocumentTokenizer


class TextBatch(NamedTuple):
    """A batch of windows as arrays [rows, columns].

    `ids` (int64) holds the tokens, and `next_ids` (int64) the token that follows each of them.
    `valid` (bool) is False for padding.
    """

    ids: np.ndarray
    next_ids: np.ndarray
    valid: np.ndarray


@dataclass(frozen=True)
class Windows:
    """The windows of a split, in the order of its text; all arrays are [windows].

    Window i has `tokens[i]` tokens from position `starts[i]`, then the end mark if `ends[i]`. It
    has `characters[i]` characters (float64), including the space or line break after a sentence.
    The characters of a sentence that spans windows are divided in proportion to its tokens.
    """

    starts: np.ndarray
    tokens: np.ndarray
    ends: np.ndarray
    characters: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> np.ndarray:
        """The number of predictions, and of input tokens, of each window, int64 [windows]."""
        return self.tokens + self.ends

    def batch(
        self, data: EncodedDocuments, indices: np.ndarray, *, padding: float = 0.0
    ) -> TextBatch:
        """Return the windows at `indices` as padded arrays, given their split and `padding`.

        Padding makes up at least a fraction `padding` of the positions.
        """
        counts, lengths = self.tokens[indices], self.lengths[indices]
        shape = (len(indices), width_of(lengths, padding) + 1)
        whole = np.full(shape, DocumentTokenizer.pad_id, dtype=np.int64)
        whole[:, 0] = DocumentTokenizer.bos_id
        copy_spans(whole, np.ones_like(counts), data.text.ids, self.starts[indices], counts)
        ending = np.flatnonzero(self.ends[indices])
        whole[ending, lengths[ending]] = DocumentTokenizer.eos_id
        next_ids = whole[:, 1:]
        valid = next_ids != DocumentTokenizer.pad_id
        return TextBatch(np.where(valid, whole[:, :-1], DocumentTokenizer.pad_id), next_ids, valid)


def text_windows(data: EncodedDocuments, *, max_length: int) -> Windows:
    """Cut documents into windows of at most `max_length` predictions."""
    # The end mark counts as a token of the last sentence of its document.
    marked = data.text.lengths.astype(np.int64)
    marked[data.documents[1:] - 1] += 1
    pieces = -(-marked // max_length)  # a sentence longer than a window is cut
    sizes = np.full(pieces.sum(), max_length)
    sizes[np.cumsum(pieces) - 1] = marked - (pieces - 1) * max_length
    places = offsets_of(sizes)
    rooms = np.full_like(sizes, max_length)
    document, first, end = sentence_spans(
        offsets_of(pieces)[data.documents], places, rooms, least=1
    )
    last_of_document = np.diff(document, append=-1) != 0
    # Subtract one end mark per earlier document: positions in the text do not count end marks.
    starts, tokens = places[first] - document, places[end] - places[first] - last_of_document
    before = offsets_of(data.characters + 1)  # number of characters before each sentence
    characters = np.diff(np.interp([starts, starts + tokens], data.text.offsets, before), axis=0)[0]
    return Windows(starts, tokens, last_of_document, characters)
