"""The built-in corpus: reproducible, without repeats, and correct German by independent rules."""

import re
from collections import Counter

import pytest

from normlab.data.toy import VERSION, ToyCorpus, lexicon, version_of

GENDER = {
    **dict.fromkeys(("Koch", "Bruder", "Hut", "Apfel", "Wolf"), "m"),
    **dict.fromkeys(("Königin", "Maus", "Lampe", "Uhr"), "f"),
    **dict.fromkeys(("Mädchen", "Huhn", "Bild", "Messer"), "n"),
}
# article: {gender: ending of the adjectives between it and a noun}
ENDINGS = {
    "der": {"m": "e", "f": "en"},
    "die": {"f": "e"},
    "das": {"n": "e"},
    "den": {"m": "en"},
    "dem": {"m": "en", "n": "en"},
    "ein": {"m": "er", "n": "es"},
    "eine": {"f": "e"},
    "einen": {"m": "en"},
    "einem": {"m": "en", "n": "en"},
    "einer": {"f": "en"},
}
PHRASE = re.compile(rf"\b(?i:({'|'.join(ENDINGS)}))((?: [a-zäöüß]+)*) ({'|'.join(GENDER)})\b")


@pytest.fixture(scope="module")
def splits():
    return ToyCorpus(size=3000, valid_size=200, test_size=200).splits


def test_the_text_depends_only_on_the_seed():
    first, other = (
        ToyCorpus(size=1, valid_size=1, seed=seed).splits["test"].checksums() for seed in (1, 2)
    )
    # If the grammar or its words change the text, change this checksum and raise VERSION.
    assert first[0] == "da59634eb116fd980908bb0bc84121fc42002b83b6850e42eb867f2232584ae2"
    assert first != other


def test_no_sentence_is_repeated_and_other_splits_do_not_depend_on_the_size_of_train(splits):
    sources = [line for text in splits.values() for line in text.source]
    assert len(set(sources)) == len(sources) == 3400
    small = ToyCorpus(size=50, valid_size=200, test_size=200).splits
    assert (small["valid"], small["test"]) == (splits["valid"], splits["test"])
    assert small["train"].source == splits["train"].source[:50]


def test_articles_and_adjectives_agree_with_gender_and_case(splits):
    seen, stems = Counter(), {adjective.german for adjective in lexicon()["adjectives"]}
    for line in splits["train"].source:
        for article, adjectives, noun in PHRASE.findall(line):
            ending = ENDINGS[article.lower()].get(GENDER[noun])
            assert ending is not None, f"{article} {noun}: {line}"
            for adjective in adjectives.split():
                assert adjective.endswith(ending), line
                assert adjective.removesuffix(ending) in stems, line
            seen[article.lower()] += 1
    assert set(seen) == set(ENDINGS)


def test_the_verb_is_second_in_a_main_clause_and_last_in_a_subordinate_one(splits):
    verbs = {verb.german for verb in lexicon()["verbs"]}
    times = {time.german.lower() for time in lexicon()["times"]}
    inverted = last = 0
    for line in splits["train"].source:
        clauses = re.split(r" (und|weil|wenn|obwohl|bevor) ", f"und {line.rstrip('.')}"[4:])
        kinds = ["und", *clauses[1::2]]
        for kind, clause in zip(kinds, clauses[::2], strict=True):
            words = clause.rstrip(",").split()
            assert sum(word in verbs for word in words) == 1
            place = next(i for i, word in enumerate(words) if word in verbs)
            before = " ".join(words[:place]).lower()  # what comes before a verb in second position
            if kind != "und":
                assert place == len(words) - 1, line
                last += 1
            elif before in times:
                inverted += 1
            else:
                assert words[0].lower() in ENDINGS and words[place - 1][0].isupper(), line
    assert inverted > 300 and last > 300


@pytest.mark.parametrize(
    ("source", "label", "version"),
    [
        ("toy", ToyCorpus.label, VERSION),
        ("toy", "toy (generated German-English)", 1),
        ("toy", "toy", None),
        ("translation", "toy (my own text)", None),
    ],
)
def test_the_version_of_the_corpus_is_read_from_a_record(source, label, version):
    assert version_of({"source": source, "label": label}) == version
