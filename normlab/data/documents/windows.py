"""Windows of a causal language model: consecutive sentences of one document, every token once.

Decides what a model predicts: all tokens of a document and, after its last, the end mark. A window
holds as many whole sentences as fit and begins anew with the begin mark: no window reaches into
another document or sees the one before. What is left at a document's end is a short window. A
sentence longer than a window goes on in the next, and is counted. So the sum over all windows of a
split is that of its text, and bits a character come without correction.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from normlab.data.documents.encoded import EncodedDocuments, columns_in, copy_runs
from normlab.data.documents.tokenizer import DocumentTokenizer


@dataclass(frozen=True)
class Text:
    """A batch of windows [rows, columns]: `ids` and what follows each (`next_ids`), int64.

    `valid` (bool) is True where they are real.
    """

    ids: np.ndarray
    next_ids: np.ndarray
    valid: np.ndarray


@dataclass(frozen=True)
class Windows:
    """The windows of a split, in the order of its text; all arrays are [windows].

    A window is the `tokens` tokens from place `starts` of the split, of document `document`, and
    the end mark where `ends`. `long_sentences` counts the sentences that are in several windows.
    """

    document: np.ndarray
    starts: np.ndarray
    tokens: np.ndarray
    ends: np.ndarray
    long_sentences: int

    def __len__(self) -> int:
        return len(self.document)

    @property
    def lengths(self) -> np.ndarray:
        """Predictions of every window, int64 [windows]; as many tokens go in."""
        return self.tokens + self.ends

    def describe(self) -> dict[str, int]:
        """Return counts for the record: windows, and sentences that are in several."""
        return {"windows": len(self), "long_sentences": self.long_sentences}

    def characters(self, data: EncodedDocuments, indices: np.ndarray) -> np.ndarray:
        """Return the characters of windows, each sentence with the blank or line break after it.

        Of a sentence that is in several windows each has its share by tokens; float64 [indices].
        """
        before = np.concatenate([np.zeros(1), np.cumsum(data.characters + 1.0)])
        ends = self.starts[indices] + self.tokens[indices]
        at_end, at_start = (
            np.interp(places, data.text.offsets, before) for places in (ends, self.starts[indices])
        )
        return at_end - at_start

    def batch(self, data: EncodedDocuments, indices: np.ndarray) -> Text:
        """Return the windows `indices` as padded arrays; `data` is the split they are of."""
        counts, lengths = self.tokens[indices], self.lengths[indices]
        shape = (len(indices), int(lengths.max(initial=0)) + 1)
        # The whole windows, one column wider than what goes in and what comes out.
        whole = np.full(shape, DocumentTokenizer.pad_id, dtype=np.int64)
        whole[:, 0] = DocumentTokenizer.bos_id
        copy_runs(whole, np.ones_like(counts), data.text.ids, self.starts[indices], counts)
        ending = np.flatnonzero(self.ends[indices])
        whole[ending, lengths[ending]] = DocumentTokenizer.eos_id
        valid = columns_in((shape[0], shape[1] - 1), 0 * lengths, lengths)
        pad = DocumentTokenizer.pad_id
        return Text(np.where(valid, whole[:, :-1], pad), whole[:, 1:], valid)


def text_windows(documents: np.ndarray, lengths: np.ndarray, *, max_length: int) -> Windows:
    """Cut documents into windows of at most `max_length` predictions.

    `documents` int64 [documents + 1] says where each begins among the sentences, `lengths` int64
    [sentences] how many tokens each has. For an order of windows with a seed give the `lengths` of
    the result to `BatchStream`. Raises ValueError for a `max_length` below 2.
    """
    if max_length < 2:
        raise ValueError(f"max_length={max_length} must be 2 or more")
    # The end mark counts as a token of the last sentence of its document.
    marked = lengths.astype(np.int64)
    marked[documents[1:] - 1] += 1
    places = np.concatenate([np.zeros(1, np.int64), np.cumsum(marked)]).tolist()
    owner: list[int] = []
    starts: list[int] = []
    stops: list[int] = []
    bounds = documents.tolist()
    for document, (begin, end) in enumerate(pairwise(bounds)):
        place, sentence = places[begin], begin
        while place < places[end]:
            # The last sentence that ends within the window, unless none does.
            fits = bisect_right(places, place + max_length, lo=sentence, hi=end + 1) - 1
            stop = places[fits] if places[fits] > place else place + max_length
            owner.append(document)
            starts.append(place)
            stops.append(stop)
            place, sentence = stop, max(fits, sentence)
    document = np.array(owner, np.int64)
    ends = np.diff(document, append=-1) != 0
    first, last = np.array(starts, np.int64), np.array(stops, np.int64)
    # One end mark for each document before: places of the text have none.
    return Windows(
        document=document,
        starts=first - document,
        tokens=last - first - ends,
        ends=ends,
        long_sentences=int((marked > max_length).sum()),
    )
