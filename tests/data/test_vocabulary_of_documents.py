"""The vocabulary of documents: ids, word beginnings, decoding, and errors."""

import multiprocessing
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normlab.data.vocabulary import CONTINUES, DocumentTokenizer

TEXT = [
    "The cat sat on the mat, and the mats were flat.",
    "A na\u00efve dog \u2014 an old one \u2014 barked at the cats!",
    "Nobody's dog is sitting on Caf\u00e9 mats; sitters sat.",
    "\u6f22\u5b57 and 12 or 3.5 [MASK] words.",
] * 5
PIECES = ["wordpiece", "bpe"]
SIZES = {"wordpiece": 120, "bpe": 320}


def trained(pieces, *, lowercase=False, text=TEXT, vocab_size=None):
    return DocumentTokenizer.train(
        text, pieces=pieces, vocab_size=vocab_size or SIZES[pieces], lowercase=lowercase
    )


TOKENIZERS = {
    (pieces, lowercase): trained(pieces, lowercase=lowercase)
    for pieces in PIECES
    for lowercase in (False, True)
}
every_kind = pytest.mark.parametrize("kind", list(TOKENIZERS), ids=str)


def tokens(tokenizer, ids):
    return [tokenizer._segmenter.id_to_token(i) for i in ids]


def ids_of(tokenizer, text):
    [(ids, _)] = tokenizer.encode([text])
    return ids


@given(text=st.text() | st.text("[MASKUNPD]# "))
@every_kind
def test_text_is_never_encoded_as_special_ids_except_unknown(kind, text):
    tokenizer = TOKENIZERS[kind]
    [(ids, begins)] = tokenizer.encode([text])
    allowed = {tokenizer.unk_id} if kind[0] == "wordpiece" else set()
    assert {i for i in ids if i < tokenizer.first_ordinary} <= allowed
    assert len(begins) == len(ids)
    assert begins[:1] in ([], [True])


# Only assigned characters: Unicode versions disagree on how others compose.
assigned = st.text(st.characters(exclude_categories=("Cs", "Cn")))


@given(text=assigned.map(lambda x: unicodedata.normalize("NFC", x).strip()))
def test_bpe_decodes_every_text_to_itself(text):
    tokenizer = TOKENIZERS["bpe", False]
    assert tokenizer.decode(ids_of(tokenizer, text)) == text


def test_wordpiece_words_begin_at_pieces_without_the_continuation_mark():
    tokenizer = TOKENIZERS["wordpiece", False]
    [(ids, begins)] = tokenizer.encode(["Nobody's sitters sat, cats barked."])
    pieces = tokens(tokenizer, ids)
    assert begins == [not piece.startswith(CONTINUES) for piece in pieces]
    assert 0 < sum(begins) < len(begins)


@every_kind
def test_decode_shows_masks_and_hides_padding_and_end_marks(kind):
    tokenizer = TOKENIZERS[kind]
    word = ids_of(tokenizer, "the")
    marks = [tokenizer.pad_id, tokenizer.cls_id, tokenizer.bos_id]
    ends = [tokenizer.sep_id, tokenizer.eos_id, tokenizer.pad_id]
    assert tokenizer.decode([*marks, *word, *ends]) == "the"
    shown = tokenizer.decode([*word, tokenizer.mask_id, tokenizer.unk_id])
    assert shown.replace(" ", "") == "the[MASK][UNK]"


def learned(pieces):
    tokenizer = trained(pieces)
    return tokens(tokenizer, range(len(tokenizer))), tokenizer.encode(TEXT)


def test_the_same_text_gives_the_same_ids_in_another_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(learned, PIECES) == [learned(pieces) for pieces in PIECES]


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("vocab_size", [7, 30])
def test_a_vocabulary_that_is_too_small_is_refused(pieces, vocab_size):
    with pytest.raises(ValueError, match=rf"vocab_size={vocab_size} is too small: .* \d+ entries"):
        DocumentTokenizer.train(TEXT, pieces=pieces, vocab_size=vocab_size, lowercase=False)
