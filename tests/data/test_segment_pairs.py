"""Segment pairs: their examples and labels, and lengths that do not reveal the labels."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normlab.data.encoded import EncodedDocuments, EncodedText
from normlab.data.segment_pairs import Pairs, Segment, segment_pairs
from normlab.data.vocabulary import DocumentTokenizer

PAD, UNK, CLS, SEP = range(4)
assert [DocumentTokenizer.sep_id, DocumentTokenizer.unk_id] == [SEP, UNK]

few = settings(max_examples=25)
texts = st.lists(
    st.lists(st.integers(1, 9), min_size=1, max_size=7), min_size=2, max_size=8
).filter(lambda documents: any(len(document) > 1 for document in documents))
choices = {
    "documents": texts,
    "max_length": st.integers(5, 40),
    "short_share": st.sampled_from([0.0, 0.1, 1.0]),
    "seed": st.integers(0, 99),
}
with_and_without = pytest.mark.parametrize("nsp", [True, False])


def bounds(documents):
    return np.cumsum([0, *map(len, documents)]).astype(np.int64)


def flat(documents):
    return np.array([length for document in documents for length in document], np.int64)


def made(documents, **changes):
    values = {"max_length": 24, "short_share": 0.1, "seed": 0, "epoch": 0, "nsp": True}
    return segment_pairs(bounds(documents), flat(documents), **{**values, **changes})


def encoded(documents):
    """Return a text whose tokens are numbered from 10; `documents` holds sentence lengths."""
    starts = np.cumsum([0, *flat(documents)])
    text = EncodedText.from_sentences([range(10 + a, 10 + b) for a, b in pairwise(starts)])
    begins = np.ones(len(text.ids), bool)
    return EncodedDocuments(text, bounds(documents), begins, np.ones(len(text), np.int32))


def segments_of(documents, pairs):
    """Return the text positions of the tokens in A and B of each example."""
    batch = pairs.batch(encoded(documents), np.arange(len(pairs)))
    rows = zip(batch.ids, batch.valid, batch.segments, strict=True)
    return [
        tuple([x - 10 for x in ids[valid & (kinds == kind)].tolist() if x >= 10] for kind in (0, 1))
        for ids, valid, kinds in rows
    ]


def documents_at(documents, places):
    """Return the document of each position in the text."""
    stops = np.cumsum([sum(document) for document in documents])
    return np.searchsorted(stops, places, side="right")


def arrays(pairs):
    segments = [array.tolist() for segment in pairs.segments for array in segment]
    return [*segments, pairs.is_next.tolist()]


def prose(seed=0, documents=500, lone=0):
    """Draw lengths of sentences and documents, short and long, as in real documentation."""
    rng = np.random.default_rng(seed)
    sizes = [*np.minimum(1 + rng.geometric(0.15, documents), 60), *[1] * lone]
    return [np.clip(rng.lognormal(2.6, 0.6, n), 2, 80).astype(int).tolist() for n in sizes]


@few
@given(**choices)
@with_and_without
def test_examples_have_at_most_max_length_tokens(nsp, documents, max_length, short_share, seed):
    pairs = made(documents, max_length=max_length, short_share=short_share, seed=seed, nsp=nsp)
    batch = pairs.batch(encoded(documents), np.arange(len(pairs)))
    assert batch.valid.sum(axis=1).tolist() == pairs.lengths.tolist()
    assert pairs.lengths.max() <= max_length
    assert min(segment.tokens.min() for segment in pairs.segments) >= 1
    assert pairs.is_next.any() <= nsp


@few
@given(**choices)
def test_a_true_pair_is_consecutive_in_one_document_and_a_random_pair_is_from_two(
    documents, max_length, short_share, seed
):
    pairs = made(documents, max_length=max_length, short_share=short_share, seed=seed)
    sentences = {0, *np.cumsum(flat(documents)).tolist()}
    assert abs(len(pairs) - 2 * int(pairs.is_next.sum())) <= 1  # both labels are equally frequent
    for (a, b), follows in zip(segments_of(documents, pairs), pairs.is_next, strict=True):
        assert a == list(range(a[0], a[0] + len(a))) and b == list(range(b[0], b[0] + len(b)))
        whole = {a[-1] + 1, b[-1] + 1} <= sentences
        assert {a[0], b[0]} <= sentences
        of_a, of_b = (set(documents_at(documents, part)) for part in (a, b))
        assert len(of_a) == len(of_b) == 1
        assert (of_a == of_b) == follows
        if follows and whole:
            assert b[0] == a[-1] + 1


@few
@given(**choices)
def test_without_nsp_every_token_is_in_one_example_unless_it_is_cut(
    documents, max_length, short_share, seed
):
    pairs = made(documents, max_length=max_length, short_share=short_share, seed=seed, nsp=False)
    held = [x for a, _ in segments_of(documents, pairs) for x in a]
    assert len(held) == len(set(held))
    assert len(pairs.segments) == 1
    if short_share == 0 and flat(documents).max() <= max_length - 2:
        assert len(held) == flat(documents).sum()  # nothing is cut


@with_and_without
def test_examples_depend_only_on_seed_and_epoch(nsp):
    documents = prose(documents=60)
    first = arrays(made(documents, seed=3, epoch=2, nsp=nsp))
    np.random.seed(9)
    assert arrays(made(documents, seed=3, epoch=2, nsp=nsp)) == first
    assert arrays(made(documents, seed=3, epoch=3, nsp=nsp)) != first
    assert arrays(made(documents, seed=4, epoch=2, nsp=nsp)) != first


def distance(x, y):
    """Return the largest distance between two distribution functions (Kolmogorov-Smirnov)."""
    values = np.unique(np.concatenate([x, y]))
    shares = [np.searchsorted(np.sort(z), values, side="right") / len(z) for z in (x, y)]
    return np.abs(shares[0] - shares[1]).max()


@pytest.mark.parametrize("lone", [0, 75])
@pytest.mark.parametrize("max_length", [40, 128])
def test_segment_lengths_barely_reveal_the_label(lone, max_length):
    epochs = [made(prose(lone=lone), max_length=max_length, epoch=epoch) for epoch in range(4)]
    true = np.concatenate([pairs.is_next for pairs in epochs])
    lengths = [(x.lengths, *(segment.tokens for segment in x.segments)) for x in epochs]
    for name, parts in zip(("whole", "A", "B"), zip(*lengths, strict=True), strict=True):
        values = np.concatenate(parts)
        assert values[true].mean() == pytest.approx(values[~true].mean(), rel=0.12), name
        assert distance(values[true], values[~true]) < 0.1, name  # guesses are right in under 55 %


def pairs_by_hand(nsp=True):
    a, b = (
        Segment(np.array([0, 6]), np.array([2, 1])),
        Segment(np.array([2, 2]), np.array([4, 1])),
    )
    return Pairs((a, b) if nsp else (a,), is_next=np.array([True, False]))


TEXT = EncodedText.from_sentences([[20, 21], [22], [23, UNK, 25], [26]])
BEGINS = np.array([True, False, True, True, True, False, True])
DATA = EncodedDocuments(TEXT, np.array([0, 3, 4]), BEGINS, np.ones(4, np.int32))


def test_a_batch_of_pairs_matches_a_worked_example():
    batch = pairs_by_hand().batch(DATA, np.array([0, 1]))
    assert batch.ids.tolist() == [
        [CLS, 20, 21, SEP, 22, 23, UNK, 25, SEP],
        [CLS, 26, SEP, 22, SEP, PAD, PAD, PAD, PAD],
    ]
    assert batch.segments.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0, 0]]
    assert batch.valid.sum(axis=1).tolist() == [9, 5] and batch.valid[1, :5].all()
    assert batch.maskable.astype(int).tolist() == [
        [0, 1, 1, 0, 1, 1, 0, 1, 0],
        [0, 1, 0, 1, 0, 0, 0, 0, 0],
    ]
    assert batch.begins.astype(int).tolist() == [
        [0, 1, 0, 0, 1, 1, 1, 0, 0],
        [0, 1, 0, 1, 0, 0, 0, 0, 0],
    ]
    assert [batch.ids.dtype, batch.segments.dtype] == [np.int64, np.int64]
    alone = pairs_by_hand().batch(DATA, np.array([1]))
    assert alone.ids.tolist() == [[CLS, 26, SEP, 22, SEP]]


@pytest.mark.parametrize("documents", [[[3, 4, 5]], [[3], [4], [5]]])
def test_text_without_sentence_pairs_is_refused_unless_nsp_is_false(documents):
    with pytest.raises(ValueError, match=r"two documents, one of them with two .*nsp=false"):
        made(documents)
    assert made(documents, nsp=False).segments[0].tokens.sum() == flat(documents).sum()


@pytest.mark.parametrize(("max_length", "nsp", "left"), [(4, True, 1), (3, False, 1)])
def test_a_max_length_with_room_for_too_few_tokens_is_refused(max_length, nsp, left):
    message = f"max_length={max_length} is too small: special tokens leave room for only {left}"
    with pytest.raises(ValueError, match=message):
        made([[3, 4], [5, 6]], max_length=max_length, nsp=nsp)
    assert len(made([[3, 4], [5, 6]], max_length=5, nsp=nsp)) > 0
