"""Subwords: decoding restores the text, and text never turns into special ids."""

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
def test_decoding_restores_raw_text(raw, line):
    (ids,) = raw.encode_batch([line])
    assert raw.decode(ids) == line


@pytest.mark.parametrize("form", ["raw", "tokenized"])
def test_a_space_mark_in_the_text_is_not_decoded_as_a_space(form):
    lines = ["\u2581", "a \u2581 b", "\u2581a\u2581\u2581b c"]
    tokenizer = Tokenizer.train(lines, form=form, vocab_size=30)
    assert [tokenizer.decode(ids) for ids in tokenizer.encode_batch(lines)] == lines


def test_markup_in_text_is_never_encoded_as_special_ids(raw):
    # Trained on enough markup that byte-pair merges form every mark.
    noisy = Tokenizer.train(["a </s> b <pad> <s> <unk>"] * 50, form="raw", vocab_size=200)
    wordwise = Tokenizer.train(["a </s> b <pad> <s> <unk>"] * 50, form="tokenized", vocab_size=200)
    for tokenizer in (raw, noisy, wordwise):
        (ids,) = tokenizer.encode_batch(["</s><pad> <s> <unk> x</s>"])
        assert not {0, 1, 2} & set(ids)
    assert wordwise.decode(wordwise.encode_batch(["a </s> b"])[0]) == "a </s> b"


def test_a_character_that_was_not_trained_on_is_encoded_as_unknown(raw):
    (ids,) = raw.encode_batch(["Ein \u6f22 Haus"])
    assert ids.count(raw.unk_id) == 1
    assert raw.decode(ids) == "Ein < unk > Haus"


def test_a_bpe_vocabulary_consists_of_the_pieces_in_the_training_text():
    lines = ["die pyra@@ mide .", "die &apos;s <unk> pyra@@ mi@@ de"]
    tokenizer = Tokenizer.train(lines, form="bpe", vocab_size=5)
    # die and pyra@@ occur twice, the rest follow in order of names; `<unk>` gets no entry.
    assert len(tokenizer) == 4 + 7
    ids, unknown = tokenizer.encode_batch([lines[1], "der pyra@@ <unk>"])
    assert ids == [4, 6, 3, 5, 9, 8]
    assert unknown == [3, 5, 3]
    assert tokenizer.decode(ids) == "die &apos;s < unk > pyramide"
