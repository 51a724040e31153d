"""Windows of a causal language model: worked examples and random texts."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from normlab.data.text_windows import text_windows
from normlab.data.vocabulary import DocumentTokenizer
from tests.data.test_segment_pairs import encoded

BOS, EOS, PAD = DocumentTokenizer.bos_id, DocumentTokenizer.eos_id, DocumentTokenizer.pad_id


def cut(documents, max_length):
    data = encoded(documents)
    windows = text_windows(data, max_length=max_length)
    return windows, windows.batch(data, np.arange(len(windows)))


def rows(batch, name):
    return [x[valid].tolist() for x, valid in zip(getattr(batch, name), batch.valid, strict=True)]


def test_windows_match_a_worked_example():
    # The second window of the first document holds one sentence: with the third it would be 7.
    windows, batch = cut([[2, 2, 3, 3], [1]], max_length=5)
    assert rows(batch, "ids") == [[BOS, 10, 11, 12], [BOS, 14, 15], [BOS, 17, 18, 19], [BOS, 20]]
    assert rows(batch, "next_ids") == [
        [10, 11, 12, 13],
        [14, 15, 16],
        [17, 18, 19, EOS],
        [20, EOS],
    ]
    assert windows.lengths.tolist() == [4, 3, 4, 2]
    assert len(windows) == 4


def test_a_long_sentence_continues_in_the_next_window():
    windows, batch = cut([[2, 7, 1], [3]], max_length=3)
    assert rows(batch, "next_ids") == [
        [10, 11],
        [12, 13, 14],
        [15, 16, 17],
        [18, 19, EOS],
        [20, 21, 22],
        [EOS],
    ]
    # The end mark of the sentence of 3 tokens is alone in its window.
    assert windows.tokens.tolist() == [2, 3, 3, 2, 3, 0]
    assert rows(batch, "ids")[-1] == [BOS]


texts = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=6), min_size=1, max_size=6)
sizes = st.integers(2, 40)


@given(documents=texts, max_length=sizes)
def test_every_token_is_predicted_once_and_only_long_sentences_are_cut(documents, max_length):
    windows, batch = cut(documents, max_length)
    predicted, data = rows(batch, "next_ids"), encoded(documents)
    offsets = data.text.offsets
    expected = []
    for begin, end in pairwise(offsets[data.documents]):
        expected += [*data.text.ids[begin:end].tolist(), EOS]
    assert [token for row in predicted for token in row] == expected
    assert windows.lengths.sum() == len(expected) == batch.valid.sum()
    assert windows.ends.sum() == len(documents)
    last = {int(end) - 1 for end in data.documents[1:]}
    predictions = [int(n) + (i in last) for i, n in enumerate(data.text.lengths)]
    begins = set((10 + offsets).tolist())
    for before, row, ended in zip(predicted, predicted[1:], windows.ends, strict=False):
        if row[0] not in begins or row[0] == EOS:
            assert len(before) == max_length < max(predictions)
        # As many as fit: the next sentence of the document would be too long.
        elif not ended and max(predictions) <= max_length:
            place = int(np.searchsorted(offsets, row[0] - 10))
            assert len(before) + predictions[place] > max_length
