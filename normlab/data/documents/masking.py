"""Masked language modelling (Devlin et al. 2019, section 3.1, appendix A.1): which tokens, by what.

Decides that a share is met exactly on average, in each sequence as closely as whole tokens (or
words) allow, and that each chosen token, also inside a whole word, draws on its own whether it is
masked, replaced or left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DICE = 4  # uniform numbers a token: its place in the order, does it fit, its fate, its substitute


@dataclass(frozen=True)
class Masked:
    """A batch after masking.

    `ids` [B, P] are the corrupted tokens; `places` int64 [B, M] the columns that are to be
    predicted, ascending, filled up with 0 to the longest row; `chosen` bool [B, M] is True where
    they are real; `labels` int64 [N] are the true tokens there, row by row.
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
    whole_word: bool = False,
    begins: np.ndarray | None = None,
) -> Masked:
    """Choose about `share` of the `maskable` tokens of each sequence and corrupt them.

    A sequence with a maskable token has one label or more. `split` are the parts that become
    `mask_id`, a random one of `ordinary`, and stay. `dice` [B, P, DICE] are uniform in [0, 1). With
    `whole_word` all tokens of a word are chosen or none; `begins` [B, P] is True at the first token
    of each. Column 0 must be a mark: its dice are the sequence's own.

    Raises: ValueError: `share` is not in (0, 1], `split` is not three parts of one, or `begins` is
        missing.
    """
    if not 0 < share <= 1:
        raise ValueError(f"mask_share={share} must be above 0 and at most 1")
    if len(split) != 3 or min(split) < 0 or abs(sum(split) - 1) > 1e-6:
        raise ValueError(
            f"mask_split={list(split)} must be three parts that sum to 1: masked, random, unchanged"
        )
    counts = maskable.sum(axis=1)
    order, fit, kind, other = np.moveaxis(dice, -1, 0)
    # A fraction of a token is one token that often, so short sequences keep the share too.
    wanted = np.maximum(np.floor(share * counts + fit[:, 0]), 1)
    if whole_word:
        if begins is None:
            raise ValueError("whole-word masking needs to know where words begin")
        picked = _whole_words(maskable, begins, wanted, order, fit)
    else:
        ranks = _ranks(np.where(maskable, order, np.inf))
        picked = maskable & (ranks < wanted[:, None])
    others = ordinary.start + (other[picked] * len(ordinary)).astype(np.int64)
    return _corrupt(ids, picked, kind[picked], others, split=split, mask_id=mask_id)


def _ranks(keys: np.ndarray) -> np.ndarray:
    """Return the place of each entry of a row [B, P] among the entries of its row."""
    order = np.argsort(keys, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.broadcast_to(np.arange(keys.shape[1]), keys.shape), axis=1)
    return ranks


def _whole_words(
    maskable: np.ndarray,
    begins: np.ndarray,
    wanted: np.ndarray,
    order_dice: np.ndarray,
    fit_dice: np.ndarray,
) -> np.ndarray:
    """Take words of each row, in the order of their dice, while they fit into `wanted` [B] tokens.

    The word that would go over is taken as often as the part of it that fits, so the share holds on
    average. The first word is always taken, whatever its length.
    """
    # A mark ends a word: what follows it is another one, whether it begins a word or goes on.
    before = np.concatenate([np.zeros((len(begins), 1), bool), maskable[:, :-1]], axis=1)
    words = np.cumsum(begins | ~maskable | ~before, axis=1) - 1
    scores = np.take_along_axis(order_dice, words, axis=1)
    order = np.argsort(np.where(maskable, scores, np.inf), axis=1, kind="stable")
    word_here = np.take_along_axis(words, order, axis=1)
    real = np.take_along_axis(maskable, order, axis=1)
    width = np.arange(maskable.shape[1])
    new = np.concatenate([np.ones((len(words), 1), bool), np.diff(word_here, axis=1) != 0], axis=1)
    start = np.maximum.accumulate(np.where(new, width, 0), axis=1)
    rows = np.arange(len(words))[:, None] * words.shape[1]
    sizes = np.bincount((rows + words).ravel(), minlength=words.size).reshape(words.shape)
    size = np.take_along_axis(sizes, word_here, axis=1)
    fits = (wanted[:, None] - start) / size
    taken = real & ((start == 0) | (np.take_along_axis(fit_dice, word_here, axis=1) < fits))
    picked = np.zeros_like(maskable)
    np.put_along_axis(picked, order, taken, axis=1)
    return picked


def _corrupt(
    ids: np.ndarray,
    picked: np.ndarray,
    kind: np.ndarray,
    others: np.ndarray,
    *,
    split: Sequence[float],
    mask_id: int,
) -> Masked:
    """Corrupt the N `picked` tokens, by dice [N] and random tokens [N], and collect them by row."""
    labels = ids[picked].astype(np.int64)
    masked, replaced = split[0], split[0] + split[1]
    corrupted = ids.copy()
    corrupted[picked] = np.where(kind < masked, mask_id, np.where(kind < replaced, others, labels))
    counts = picked.sum(axis=1)
    chosen = np.arange(int(counts.max(initial=0))) < counts[:, None]
    places = np.zeros(chosen.shape, dtype=np.int64)
    places[chosen] = np.nonzero(picked)[1]
    return Masked(ids=corrupted, places=places, chosen=chosen, labels=labels)
