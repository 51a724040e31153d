"""Masking: which tokens are chosen, how often, and what replaces them; examples' random numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normlab.data.example_random import random_numbers
from normlab.data.masking import NUMBERS_PER_TOKEN, Corruption, mask_tokens
from normlab.data.vocabulary import DocumentTokenizer

PAD, UNK, CLS, SEP, MASK = range(5)
ORDINARY = range(DocumentTokenizer.first_ordinary, 107)
few = settings(max_examples=60)


def masked(ids, *, seed=0, share=0.15, maskable=None, begins=None, **split):
    ids = np.asarray(ids, dtype=np.int64)
    return mask_tokens(
        ids,
        ids >= ORDINARY.start if maskable is None else maskable,
        np.ones(ids.shape, bool) if begins is None else begins,
        np.random.default_rng(seed).random((*ids.shape, NUMBERS_PER_TOKEN)),
        share=share,
        corruption=Corruption(MASK, ORDINARY, **split),
    )


def text(rows, tokens, *, seed=0):
    """Return rows of [CLS] and `tokens` ordinary tokens."""
    ids = np.random.default_rng(seed).integers(ORDINARY.start, ORDINARY.stop, (rows, tokens + 1))
    ids[:, 0] = CLS
    return ids


def picked(found, ids):
    """Return the tokens to predict as bool [B, P]."""
    out = np.zeros(np.shape(ids), bool)
    rows = np.nonzero(found.chosen)[0]
    out[rows, found.places[found.chosen]] = True
    return out


rows = st.lists(
    st.lists(st.sampled_from([UNK, SEP, 7, 8, 50, 106]), max_size=12), min_size=1, max_size=5
)


def padded(lists):
    width = max(map(len, lists)) + 2
    return np.array([[CLS, *x, SEP, *[PAD] * (width - 2 - len(x))] for x in lists])


@few
@given(lists=rows, seed=st.integers(0, 99), share=st.floats(0.01, 1), whole_words=st.booleans())
def test_labels_are_the_original_tokens_and_only_chosen_tokens_change(
    lists, seed, share, whole_words
):
    ids = padded(lists)
    begins = np.random.default_rng(seed).random(ids.shape) < (0.5 if whole_words else 1)
    before = ids.copy()
    found = masked(ids, seed=seed, share=share, begins=begins)
    mask = picked(found, ids)
    assert (ids == before).all()
    assert found.labels.tolist() == ids[mask].tolist()
    assert (found.ids[~mask] == ids[~mask]).all()
    assert (ids[mask] >= ORDINARY.start).all()
    assert np.isin(found.ids[mask], [MASK, *ORDINARY]).all()


@few
@given(lists=rows, seed=st.integers(0, 99), share=st.floats(0.01, 1))
def test_the_chosen_positions_of_a_row_are_in_order_and_followed_by_padding(lists, seed, share):
    ids = padded(lists)
    found = masked(ids, seed=seed, share=share)
    assert found.chosen.sum() == picked(found, ids).sum() == len(found.labels)
    for places, chosen, row in zip(found.places, found.chosen, ids, strict=True):
        count = int(chosen.sum())
        assert chosen[:count].all() and not places[count:].any()
        assert (np.diff(places[:count]) > 0).all()
        assert (count >= 1) == (row >= ORDINARY.start).any()
    assert found.chosen.shape[1] == found.chosen.sum(axis=1).max()


@pytest.mark.parametrize("share", [0.15, 0.4, 0.037])
def test_the_masked_share_is_met_in_every_sequence_and_on_average(share):
    ids = text(3000, 33)
    found = masked(ids, share=share)
    counts = found.chosen.sum(axis=1)
    wanted = share * 33
    part = wanted % 1
    assert set(counts) == {int(wanted), int(wanted) + 1}
    assert abs(counts.mean() - wanted) < 4 * np.sqrt(part * (1 - part) / 3000)
    by_column = picked(found, ids).sum(axis=0)[1:]
    spread = np.sqrt(3000 * share * (1 - share))
    assert np.abs(by_column - 3000 * share).max() < 4.5 * spread


@pytest.mark.parametrize(
    "split", [(0.8, 0.1, 0.1), (0.5, 0.2, 0.3), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)]
)
@pytest.mark.parametrize("word", [1, 3])
def test_masked_replaced_and_kept_tokens_have_the_requested_shares(split, word):
    ids = text(3000, 40)
    begins = np.arange(41) % word == 1 % word  # words of `word` tokens
    found = masked(ids, split=split, begins=np.broadcast_to(begins, ids.shape))
    now = found.ids[picked(found, ids)]
    same = split[1] / len(ORDINARY)  # a random token may be the true one
    expected = [split[0], split[1] - same, split[2] + same]
    parts = [now == MASK, (now != MASK) & (now != found.labels), now == found.labels]
    for part, share in zip(parts, expected, strict=True):
        assert abs(part.mean() - share) <= 4 * np.sqrt(share * (1 - share) / len(now))


def words(ids, begins):
    """Return the columns of each word in a row."""
    found = []
    for column, token in enumerate(ids):
        if token < ORDINARY.start:
            continue
        if begins[column] or ids[column - 1] < ORDINARY.start:
            found.append([])
        found[-1].append(column)
    return found


def test_whole_word_masking_keeps_the_masked_share_on_average():
    rng = np.random.default_rng(2)
    ids = text(3000, 61)
    begins = rng.random(ids.shape) < 0.4
    begins[:, 1::4] = True  # words of one to four tokens
    found = masked(ids, begins=begins)
    counts = found.chosen.sum(axis=1)
    assert abs(counts.mean() - 0.15 * 61) < 4 * counts.std() / np.sqrt(3000)
    assert counts.std() < 1.5
    there = picked(found, ids)
    by_column = there.sum(axis=0)[1:]
    assert np.abs(by_column - 3000 * 0.15).max() < 5 * np.sqrt(3000 * 0.15 * 0.85)
    for row in range(100):
        assert all(len(set(there[row, word])) == 1 for word in words(ids[row], begins[row]))


KEY = {"seed": 3, "epoch": 1, "count": NUMBERS_PER_TOKEN}


def test_random_numbers_depend_only_on_example_epoch_seed_and_purpose():
    examples = np.array([5, 0, 1000, 7])
    together = random_numbers("masks", examples=examples, width=9, **KEY)
    assert together.shape == (4, 9, NUMBERS_PER_TOKEN)
    for place, example in enumerate(examples):
        alone = random_numbers("masks", examples=np.array([example]), width=4, **KEY)
        assert (alone[0] == together[place, :4]).all()
    assert len(np.unique(together)) == together.size
    for other in ({"seed": 4}, {"epoch": 2}, {"purpose": "pairs"}):
        values = {"purpose": "masks", **KEY, **other}
        assert not np.isclose(random_numbers(examples=examples, width=9, **values), together).any()


def test_shares_that_do_not_sum_to_one_are_refused():
    with pytest.raises(ValueError, match=r"mask_split=\[.*\] must be three parts that sum to 1"):
        masked(text(1, 5), split=[0.8, 0.1, 0.2])
