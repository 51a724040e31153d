"""The corpus of the measurements has the statistics that it states."""

import numpy as np
import pytest

import tests.bench.small  # noqa: F401, which puts scripts/ on the path
from normlab.data.prepare import prepare_translation

from bench.corpus import SyntheticCorpus  # isort: skip


@pytest.fixture(scope="module")
def train():
    return SyntheticCorpus().splits["train"]


def lengths(lines):
    return np.array([len(line.split()) for line in lines])


def test_it_has_twenty_thousand_pairs_of_the_stated_lengths(train):
    assert len(train) == 20_000
    for side in (train.source, train.target):
        found = lengths(side)
        # the cut at 100 words takes little from the mean and some from the spread
        assert found.mean() == pytest.approx(22, abs=0.5)
        assert found.std() == pytest.approx(14, abs=0.7)
        assert found.min() >= 1
        assert found.max() == 100


def test_the_vocabulary_is_the_words_and_the_four_special_tokens(tmp_path):
    corpus = SyntheticCorpus(pairs=400, words=1_000)
    data = prepare_translation(corpus, vocab_size=5, joint=True, max_length=128, cache=tmp_path)
    assert len(data.target_tokenizer) == 1_000 + 4
    assert data.source_tokenizer is data.target_tokenizer
    words = sum(map(len, (line.split() for line in corpus.splits["train"].target)))
    assert len(data.pairs["train"].target.ids) == words
    assert data.description["unknown"]["train"] == {"xx": 0, "yy": 0}


def test_too_few_pairs_for_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match="2 pairs are too few for 8000 words"):
        SyntheticCorpus(pairs=2).read()
