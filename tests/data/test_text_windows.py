"""Windows of a causal language model: what is in them, by hand and for any text."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from normlab.data.encoded import EncodedDocuments, EncodedText
from normlab.data.targets import text_windows
from normlab.data.vocabulary import DocumentTokenizer

BOS, EOS, PAD = DocumentTokenizer.bos_id, DocumentTokenizer.eos_id, DocumentTokenizer.pad_id


def encoded(documents):
    """Number the tokens from 10 in the order of the text; `documents` holds sentence lengths."""
    lengths = [length for document in documents for length in document]
    starts = np.cumsum([0, *lengths])
    sentences = [list(range(10 + a, 10 + b)) for a, b in pairwise(starts)]
    text = EncodedText.from_sentences(sentences)
    return EncodedDocuments(
        text,
        documents=np.cumsum([0, *map(len, documents)]).astype(np.int64),
        begins=np.ones(len(text.ids), bool),
        characters=np.ones(len(text), np.int32),
    )


def cut(documents, max_length):
    data = encoded(documents)
    windows = text_windows(data.documents, data.text.lengths, max_length=max_length)
    return windows, windows.batch(data, np.arange(len(windows)))


def rows(batch, name):
    return [x[valid].tolist() for x, valid in zip(getattr(batch, name), batch.valid, strict=True)]


def test_windows_by_hand():
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


def test_a_long_sentence_goes_on_and_is_counted():
    windows, batch = cut([[2, 7, 1], [3]], max_length=3)
    assert rows(batch, "next_ids") == [
        [10, 11],
        [12, 13, 14],
        [15, 16, 17],
        [18, 19, EOS],
        [20, 21, 22],
        [EOS],
    ]
    # The end mark of the sentence of 3 has a window of its own.
    assert windows.tokens.tolist() == [2, 3, 3, 2, 3, 0]
    assert rows(batch, "ids")[-1] == [BOS]


texts = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=6), min_size=1, max_size=6)
sizes = st.integers(2, 40)


@given(documents=texts, max_length=sizes)
def test_every_token_and_end_mark_is_predicted_once(documents, max_length):
    windows, batch = cut(documents, max_length)
    predicted = [token for row in rows(batch, "next_ids") for token in row]
    data = encoded(documents)
    tokens = data.text.ids.tolist()
    bounds = data.text.offsets[data.documents]
    expected = []
    for begin, end in pairwise(bounds):
        expected += [*tokens[begin:end], EOS]
    assert predicted == expected
    assert windows.lengths.sum() == len(expected) == batch.valid.sum()
    assert windows.ends.sum() == len(documents)


@given(documents=texts, max_length=sizes)
def test_sentences_are_cut_only_where_they_are_too_long(documents, max_length):
    windows, batch = cut(documents, max_length)
    data = encoded(documents)
    begin_of_sentence = set((10 + data.text.offsets).tolist())
    following = rows(batch, "next_ids")
    last = {int(end) - 1 for end in data.documents[1:]}
    predictions = [int(n) + (i in last) for i, n in enumerate(data.text.lengths)]
    for before, row in pairwise(following):
        if row[0] not in begin_of_sentence or row[0] == EOS:
            assert len(before) == max_length
    if max(predictions) <= max_length:
        assert all(row[0] in begin_of_sentence for row in following)
        # As many as fit: the next sentence, where its document goes on, would be too much.
        for i, row in enumerate(following[1:], 1):
            if not windows.ends[i - 1]:
                place = int(np.searchsorted(data.text.offsets, row[0] - 10))
                assert len(following[i - 1]) + predictions[place] > max_length
