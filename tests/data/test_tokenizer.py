"""Subwords: nothing is lost, special ids stay special, the vocabulary is the training text's."""

import pytest

from normlab.data.vocabulary import Tokenizer

LINES = [
    "Ein Haus (gro\u00df) steht da.",
    "Ja, so-so!  Zwei Leerzeichen \u2026",
    "Das </s> ist <unk> kein <pad> Ende.",
    "\u201eAnf\u00fchrung\u201c: 3,5 % & mehr",
]


@pytest.fixture(scope="module")
def raw():
    return Tokenizer.train(LINES * 3, form="raw", vocab_size=120)


@pytest.mark.parametrize("line", LINES)
def test_raw_text_comes_back(raw, line):
    (ids,) = raw.encode_batch([line])
    assert raw.decode(ids) == line


def test_markup_in_text_is_text(raw):
    # Trained on so much of it that byte-pair merges spell out every mark.
    noisy = Tokenizer.train(["a </s> b <pad> <s> <unk>"] * 50, form="raw", vocab_size=200)
    wordwise = Tokenizer.train(["a </s> b <pad> <s> <unk>"] * 50, form="tokenized", vocab_size=200)
    for tokenizer in (raw, noisy, wordwise):
        (ids,) = tokenizer.encode_batch(["</s><pad> <s> <unk> x</s>"])
        assert not {0, 1, 2} & set(ids)
    assert wordwise.decode(wordwise.encode_batch(["a </s> b"])[0]) == "a </s> b"


def test_unknown_characters_are_unknown(raw):
    (ids,) = raw.encode_batch(["Ein \u6f22 Haus"])
    assert ids.count(raw.unk_id) == 1
    assert raw.decode(ids) == "Ein < unk > Haus"


def test_pieces_are_the_training_pieces():
    lines = ["die pyra@@ mide .", "die &apos;s <unk> pyra@@ mi@@ de"]
    tokenizer = Tokenizer.train(lines, form="bpe", vocab_size=5)
    # die, pyra@@ twice, then the rest by name; `<unk>` is no entry of its own.
    assert len(tokenizer) == 4 + 7
    ids, unknown = tokenizer.encode_batch([lines[1], "der pyra@@ <unk>"])
    assert ids == [4, 6, 3, 5, 9, 8]
    assert unknown == [3, 5, 3]
    assert tokenizer.decode(ids) == "die &apos;s < unk > pyramide"
