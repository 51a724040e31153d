"""Prepared sentence pairs: their encoding, length limits, description and errors."""

import unicodedata

import pytest

from normlab.data.corpus import Corpus, Form, ParallelText
from normlab.data.prepare_pairs import prepare_translation
from normlab.data.vocabulary import Tokenizer


class Lines(Corpus):
    """A corpus of given lines."""

    name = label = "lines"
    licence = "none"

    def __init__(self, splits, form: Form = "raw", languages=("de", "en")):
        self.languages = languages
        self.form = form
        self._texts = {split: ParallelText(*sides) for split, sides in splits.items()}

    def read(self):
        return self._texts

    def key(self):
        return f"{self.name} {self.languages} {self.form} {self._texts}"


TRAIN = (["ein Haus .", "zwei H\u00e4user .", "lang " * 20 + "."], ["a house .", "two", "long ."])
VALID = (["ein Haus ."], ["a house ."])
SPLITS = {"train": TRAIN, "valid": VALID, "test": (["zwei ."], ["two houses ."])}


def prepare(corpus, **changes):
    settings = {"vocab_size": 60, "joint": True, "max_length": 60}
    return prepare_translation(corpus, **{**settings, **changes})


def test_prepared_pairs_decode_to_their_texts():
    data = prepare(Lines(SPLITS))
    for split, (source, target) in SPLITS.items():
        pairs, text = data.pairs[split], data.texts[split]
        assert (text.source, text.target) == (source, target)
        decoded = [data.source_tokenizer.decode(pairs.source[i]) for i in range(len(pairs))]
        assert decoded == source
        decoded = [data.target_tokenizer.decode(pairs.target[i]) for i in range(len(pairs))]
        assert decoded == target


def test_long_training_pairs_are_dropped_and_counted():
    data = prepare(Lines(SPLITS), max_length=20)
    assert data.texts["train"].source == TRAIN[0][:2]
    assert data.description["sizes"] == {"train": 2, "valid": 1, "test": 1}
    assert data.description["left_out"] == {"train": 1, "valid": 0, "test": 0}
    assert data.pairs["train"].lengths.max() <= 20
    decoded = [data.source_tokenizer.decode(data.pairs["train"].source[i]) for i in range(2)]
    assert decoded == TRAIN[0][:2]


def test_a_long_test_sentence_or_only_long_training_pairs_raise_an_error(cache):
    texts = (["kurz .", "lang " * 30], ["short .", "long ."])
    with pytest.raises(ValueError, match=r"test, line 2 has \d+ tokens .*task\.max_length=20"):
        prepare(Lines({**SPLITS, "test": texts}), max_length=20)
    with pytest.raises(ValueError, match=r"train, line 1 has .*3 of 3 pairs"):
        prepare(Lines(SPLITS), max_length=2)
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_the_line_number_of_a_long_sentence_counts_the_blank_lines_before_it():
    train = ([" ", "", "lang " * 20], ["a", "b", "long ."])
    with pytest.raises(ValueError, match=r"train, line 3 has \d+ tokens .*1 of 1 pairs"):
        prepare(Lines({**SPLITS, "train": train}), max_length=5)


def test_a_vocabulary_smaller_than_the_number_of_characters_is_refused():
    characters = "".join(map(chr, range(0x4E00, 0x4E00 + 90)))
    with pytest.raises(ValueError, match=r"task\.vocab_size=60 is too small: .* \d+ entries"):
        prepare(Lines({**SPLITS, "train": ([characters], ["a"])}))


def test_duplicate_training_pairs_and_test_pairs_seen_in_training_are_counted():
    splits = {"train": ([*TRAIN[0], TRAIN[0][0]], [*TRAIN[1], TRAIN[1][0]]), "valid": VALID}
    data = prepare(Lines({**splits, "test": (["ein Haus .", "zwei ."], ["a  house .", "two"])}))
    assert data.description["repeated"] == {"train": 1, "valid": 1, "test": 0}


def test_training_text_without_a_complete_pair_is_refused():
    with pytest.raises(ValueError, match="no line of train has text in both languages"):
        prepare(Lines({**SPLITS, "train": (["ein Haus .", ""], ["", "two"])}))


def test_a_missing_split_raises_an_error_with_the_sizes_of_the_others():
    splits = {name: text for name, text in SPLITS.items() if name != "valid"}
    with pytest.raises(ValueError, match=r"has no examples in valid \(sizes: train: 3, test: 1\)"):
        prepare(Lines(splits))


def test_a_test_set_without_references_is_refused():
    blind = {**SPLITS, "test": (["ein Hund", "eine Katze"], ["", " "])}
    with pytest.raises(ValueError, match=r"test, en: all 2 lines are empty.*normlab predict"):
        prepare(Lines(blind))


def test_vocabularies_are_learned_only_from_training_text():
    data = prepare(Lines({**SPLITS, "test": (["\u6f22 ."], ["a ."])}))
    assert data.description["unknown"]["test"] == {"de": 1, "en": 0}
    assert data.source_tokenizer is data.target_tokenizer
    apart = prepare(Lines(SPLITS), joint=False)
    assert apart.target_tokenizer.encode_batch(["\u00e4"])[0][-1] == apart.target_tokenizer.unk_id
    assert apart.source_tokenizer.unk_id not in apart.source_tokenizer.encode_batch(["\u00e4"])[0]


def test_separators_inside_a_sentence_are_kept_and_blank_training_pairs_are_dropped():
    odd = (["ein\u2028Haus .", "zwei\x0c\r.", " ", "c"], ["a", "b", "d", ""])
    data = prepare(Lines({**SPLITS, "train": odd}))
    assert data.texts["train"].source == odd[0][:2]
    assert data.description["left_out"] == {"train": 2, "valid": 0, "test": 0}


def test_bpe_pieces_are_joined_in_references():
    splits = {
        "train": (["ein h@@ aus .", "h@@ au@@ s"], ["a ho@@ use .", "it &apos;s ."]),
        "valid": (["ein h@@ aus ."], ["a ho@@ use ."]),
        "test": (["ein h@@ aus ."], ["it &apos;s a ho@@ use ."]),
    }
    data = prepare(Lines(splits, form="bpe"))
    assert data.texts["test"].target == ["it &apos;s a house ."]
    assert data.description["tokens"]["test"] == {"de": 4, "en": 6}
    assert data.description["reference_length"]["test"] == 5
    assert data.plain(data.texts["test"].target) == ["it's a house."]
    assert data.words(data.texts["test"].target) == ["it &apos;s a house ."]
    assert data.source_lines(["h@@ aus ."]) == ["h@@ aus ."]


def test_lines_to_translate_get_the_form_and_case_of_the_training_text():
    data = prepare(Lines(SPLITS))
    assert data.plain(["It's a house."]) == ["It's a house."]
    assert data.words(["It's a house."]) == ["It &apos;s a house ."]
    assert data.source_lines(["Ein Haus."]) == ["Ein Haus."]
    for lower in (False, True):
        splits = {x: ([a.lower() if lower else a for a in y[0]], y[1]) for x, y in SPLITS.items()}
        data = prepare(Lines(splits, form="tokenized"))
        assert data.source_lines(["Ein Haus."]) == ["ein haus ." if lower else "Ein Haus ."]


def test_lines_split_into_words_in_a_language_without_spaces_stay_split():
    splits = {name: (["\u6211 \u7231 \u4f60"], ["i love you"]) for name in SPLITS}
    data = prepare(Lines(splits, form="tokenized", languages=("cmn", "en")))
    assert data.source_lines(["\u6211 \u7231"]) == ["\u6211 \u7231"]


def test_the_unicode_normal_form_does_not_change_bpe_pieces():
    line = "caf\u00e9 na\u00ef@@ ve"
    lines = [[line, unicodedata.normalize("NFD", line)]] * 2
    data = prepare(Lines({name: lines for name in SPLITS}, form="bpe"))
    ids = [data.pairs["test"].source[i].tolist() for i in (0, 1)]
    assert ids[0] == ids[1] and Tokenizer.unk_id not in ids[0]
