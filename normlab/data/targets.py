"""Targets of language models: windows for a causal model, masked tokens for a masked one.

A causal model predicts every token of a document and then the end mark. A window starts with the
begin mark and holds as many whole sentences of one document as fit; a sentence longer than a window
continues in the next. The loss summed over all windows of a split is therefore the loss of its
text, and bits per character need no correction.

Masked language modelling (Devlin et al. 2019, section 3.1, appendix A.1) predicts a given share of
each sequence: as closely as whole tokens (or words) allow, and exactly on average. Each chosen
token, even in whole-word masking, is masked, replaced or kept independently of the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from normlab.data.encoded import EncodedDocuments, copy_runs, ends, runs, width_of
from normlab.data.vocabulary import DocumentTokenizer

DICE = 4  # random numbers per token: its rank, whether it fits, how it is corrupted, its substitute


class Text(NamedTuple):
    """A batch of windows [rows, columns]: `ids` and the token after each (`next_ids`), int64.

    `valid` (bool) is False for padding.
    """

    ids: np.ndarray
    next_ids: np.ndarray
    valid: np.ndarray


@dataclass(frozen=True)
class Windows:
    """The windows of a split, in the order of its text; all arrays are [windows].

    Window i has `tokens[i]` tokens from position `starts[i]`, then the end mark if `ends[i]`. It
    has `characters[i]` characters (float64), including the space or line break after a sentence. A
    sentence cut over windows counts in each by its share of tokens.
    """

    starts: np.ndarray
    tokens: np.ndarray
    ends: np.ndarray
    characters: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> np.ndarray:
        """Predictions per window, int64 [windows]; equal to the number of input tokens."""
        return self.tokens + self.ends

    def batch(self, data: EncodedDocuments, indices: np.ndarray, *, padding: float = 0.0) -> Text:
        """Return the windows `indices` of the split `data` as padded arrays (see `width_of`)."""
        counts, lengths = self.tokens[indices], self.lengths[indices]
        shape = (len(indices), width_of(lengths, padding) + 1)
        whole = np.full(shape, DocumentTokenizer.pad_id, dtype=np.int64)
        whole[:, 0] = DocumentTokenizer.bos_id
        copy_runs(whole, np.ones_like(counts), data.text.ids, self.starts[indices], counts)
        ending = np.flatnonzero(self.ends[indices])
        whole[ending, lengths[ending]] = DocumentTokenizer.eos_id
        next_ids = whole[:, 1:]
        valid = next_ids != DocumentTokenizer.pad_id
        return Text(np.where(valid, whole[:, :-1], DocumentTokenizer.pad_id), next_ids, valid)


def text_windows(data: EncodedDocuments, *, max_length: int) -> Windows:
    """Cut documents into windows of at most `max_length` predictions."""
    # The end mark counts as a token of the last sentence of its document.
    marked = data.text.lengths.astype(np.int64)
    marked[data.documents[1:] - 1] += 1
    pieces = -(-marked // max_length)  # a sentence longer than a window is cut
    sizes = np.full(pieces.sum(), max_length)
    sizes[np.cumsum(pieces) - 1] = marked - (pieces - 1) * max_length
    places = ends(sizes)
    rooms = np.full_like(sizes, max_length)
    document, first, end = runs(ends(pieces)[data.documents], places, rooms, least=1)
    last_of_document = np.diff(document, append=-1) != 0
    # Subtract one end mark per earlier document: positions in the text do not count end marks.
    starts, tokens = places[first] - document, places[end] - places[first] - last_of_document
    before = ends(data.characters + 1)  # characters before each sentence
    characters = np.diff(np.interp([starts, starts + tokens], data.text.offsets, before), axis=0)[0]
    return Windows(starts, tokens, last_of_document, characters)


class Masked(NamedTuple):
    """A batch after masking.

    `ids` [B, P] are the corrupted tokens; `places` int64 [B, M] are the columns to predict,
    ascending and padded with 0 to the longest row; `chosen` bool [B, M] is False for that padding;
    `labels` int64 [N] are the original tokens in those columns, row by row.
    """

    ids: np.ndarray
    places: np.ndarray
    chosen: np.ndarray
    labels: np.ndarray


def mask_tokens(
    ids: np.ndarray,
    maskable: np.ndarray,
    *,
    share: float,
    split: Sequence[float] = (0.8, 0.1, 0.1),
    ordinary: range,
    mask_id: int,
    dice: np.ndarray,
    begins: np.ndarray,
) -> Masked:
    """Choose about `share` of the `maskable` tokens of each sequence and corrupt them.

    A sequence with a maskable token gets at least one label. `split` gives the shares that become
    `mask_id`, become a random token of `ordinary`, and stay. `dice` [B, P, DICE] is uniform in [0,
    1). Words are chosen whole; `begins` [B, P] is True at a word's first token, so tokens are
    chosen one by one if it is True everywhere. Column 0 must be a special token: its dice are used
    for the whole sequence.
    """
    if abs(sum(split) - 1) > 1e-6:
        raise ValueError(
            f"mask_split={list(split)} must be three parts that sum to 1: masked, random, unchanged"
        )
    order, fit, kind, other = np.moveaxis(dice, -1, 0)
    # Round a fractional count up with that probability, so that short sequences keep the share.
    wanted = np.maximum(np.floor(share * maskable.sum(axis=1) + fit[:, 0]), 1)
    picked = _whole_words(maskable, begins, wanted, order, fit)
    labels = ids[picked].astype(np.int64)
    others = ordinary.start + (other[picked] * len(ordinary)).astype(np.int64)
    masked, fate = split[0], kind[picked]
    corrupted = ids.copy()
    kept = np.where(fate < masked + split[1], others, labels)
    corrupted[picked] = np.where(fate < masked, mask_id, kept)
    counts = picked.sum(axis=1)
    chosen = np.arange(int(counts.max(initial=0))) < counts[:, None]
    places = np.zeros(chosen.shape, dtype=np.int64)
    places[chosen] = np.nonzero(picked)[1]
    return Masked(ids=corrupted, places=places, chosen=chosen, labels=labels)


def _whole_words(
    maskable: np.ndarray, begins: np.ndarray, wanted: np.ndarray, order: np.ndarray, fit: np.ndarray
) -> np.ndarray:
    """Choose words of each row in the `order` of their dice, up to `wanted` [B] tokens.

    A word that fits only in part is chosen with probability equal to that part, so that the share
    holds on average. The first word is always chosen, whatever its length.
    """
    # A special token ends a word, so the next token starts one, even if marked as a continuation.
    before = np.concatenate([np.zeros((len(begins), 1), bool), maskable[:, :-1]], axis=1)
    columns = maskable.shape[1]
    first = np.flatnonzero(begins | ~maskable | ~before)  # token of each word, in all rows
    size = np.diff(first, append=maskable.size)
    row, real = first // columns, maskable.ravel()[first]
    own = row * columns + np.arange(len(row)) - np.searchsorted(row, row)  # word i has dice i
    drawn = np.lexsort((order.ravel()[own], ~real, row))  # special tokens come last in their row
    ahead = np.empty_like(first)  # tokens of the words drawn earlier in the same row
    ahead[drawn] = ends(size[drawn])[:-1] - row[drawn] * columns
    taken = (ahead == 0) | (fit.ravel()[own] < (wanted[row] - ahead) / size)
    return np.repeat(taken & real, size).reshape(maskable.shape)
