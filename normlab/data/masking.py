"""Masked tokens for a masked language model (Devlin et al. 2019, section 3.1, appendix A.1).

Of n tokens, max(share n, 1) are predicted on average. Because at least one is predicted, short
sequences exceed the share (with a share of 0.15, a quarter of 4 tokens is predicted), and so do
sequences whose first chosen word is longer than the share. Each chosen token, even in whole-word
masking, is masked, replaced or kept independently of the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from normlab.data.encoded import offsets_of
from normlab.errors import UserError

NUMBERS_PER_TOKEN = 4
"""The random numbers per token, which decide its order, rounding, corruption and substitute."""


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


@dataclass(frozen=True)
class Corruption:
    """How the tokens to predict are corrupted.

    `split` holds the fractions of them that are replaced by `mask_id`, replaced by a random id from
    `ordinary`, and left unchanged. Raises UserError if the fractions do not sum to 1.
    """

    mask_id: int
    ordinary: range
    split: Sequence[float] = (0.8, 0.1, 0.1)

    def __post_init__(self) -> None:
        if abs(sum(self.split) - 1) > 1e-6:
            raise UserError(
                f"mask_split={list(self.split)} must be three parts that sum to 1: masked, random, "
                "unchanged"
            )


def mask_tokens(
    ids: np.ndarray,
    maskable: np.ndarray,
    begins: np.ndarray,
    numbers: np.ndarray,
    *,
    share: float,
    corruption: Corruption,
) -> Masked:
    """Choose about a fraction `share` of each sequence's `maskable` tokens, and corrupt them.

    A sequence with a maskable token gets at least one label. `numbers` [B, P, NUMBERS_PER_TOKEN]
    are random, uniform in [0, 1). Words are chosen whole. `begins` [B, P] is True at a word's first
    token; if it is True everywhere, tokens are chosen one by one. Column 0 must be a special token,
    because its numbers are used for the whole sequence.
    """
    split, ordinary = corruption.split, corruption.ordinary
    order, fit, kind, other = np.moveaxis(numbers, -1, 0)
    # Round a fractional count up with probability equal to its fraction, so that short sequences
    # keep the share.
    targets = np.maximum(np.floor(share * maskable.sum(axis=1) + fit[:, 0]), 1)
    picked = _whole_words(maskable, begins, targets, order, fit)
    labels = ids[picked].astype(np.int64)
    others = ordinary.start + (other[picked] * len(ordinary)).astype(np.int64)
    masked, fate = split[0], kind[picked]
    corrupted = ids.copy()
    unmasked = np.where(fate < masked + split[1], others, labels)
    corrupted[picked] = np.where(fate < masked, corruption.mask_id, unmasked)
    counts = picked.sum(axis=1)
    chosen = np.arange(int(counts.max(initial=0))) < counts[:, None]
    places = np.zeros(chosen.shape, dtype=np.int64)
    places[chosen] = np.nonzero(picked)[1]
    return Masked(ids=corrupted, places=places, chosen=chosen, labels=labels)


def _whole_words(
    maskable: np.ndarray,
    begins: np.ndarray,
    targets: np.ndarray,
    order: np.ndarray,
    fit: np.ndarray,
) -> np.ndarray:
    """Return the mask of the tokens chosen to be predicted, bool [B, P].

    Whole words of each row are chosen in ascending `order` [B, P], up to `targets` [B] tokens. A
    word that fits only in part is chosen with a probability equal to the fraction that fits, so
    that targets are met on average. The first word is always chosen, even if it is longer than the
    target.
    """
    # A special token ends a word, so the next token starts a word even if marked as a continuation.
    before = np.concatenate([np.zeros((len(begins), 1), bool), maskable[:, :-1]], axis=1)
    columns = maskable.shape[1]
    first = np.flatnonzero(begins | ~maskable | ~before)  # each word's first token, in all rows
    size = np.diff(first, append=maskable.size)
    row, real = first // columns, maskable.ravel()[first]
    # Word i of a row takes the random numbers of the row's column i.
    word = np.arange(len(row)) - np.searchsorted(row, row)
    number = row * columns + word
    # The words of each row in the order in which they are chosen; special tokens come last.
    drawn = np.lexsort((order.ravel()[number], ~real, row))
    ahead = np.empty_like(first)  # number of tokens in the words drawn earlier in the same row
    ahead[drawn] = offsets_of(size[drawn])[:-1] - row[drawn] * columns
    taken = (ahead == 0) | (fit.ravel()[number] < (targets[row] - ahead) / size)
    return np.repeat(taken & real, size).reshape(maskable.shape)
