"""The toy corpus: reproducible, disjoint, of the stated lengths, and right German.

Grammar is checked on the output by rules written here by hand, not by the tables that made it.
"""

import hashlib
import os
import re
import subprocess
import sys
from random import Random
from statistics import mean

import pytest

from normlab.data.corpus import ParallelText
from normlab.data.toy import ToyCorpus, english, german
from normlab.data.toy.dice import Dice
from normlab.data.toy.nouns import LEMMAS
from normlab.data.toy.sentences import sentence
from normlab.data.toy.verbs import VERBS, verb

# Nouns whose singular differs from the plural, so that a form tells its number.
GENDERS = {
    "m": "Hund Apfel Baum Ball Brief Tisch Stuhl Hut Mantel Zug Bus Sohn Bruder Vater Roman Plan",
    "f": "Sängerin Katze Lehrerin Schwester Tochter Zeitung Tasche Lampe Birne Tür Frage Jacke Kuh",
    "n": "Kind Buch Haus Auto Pferd Schaf Ei Bild Kleid Hemd Fahrrad Boot Gedicht Lied Huhn Schiff",
}
GENDER_OF = {noun: gender for gender, nouns in GENDERS.items() for noun in nouns.split()}
# article: {gender: ending of an adjective between it and a singular noun}
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
    "kein": {"m": "er", "n": "es"},
    "keine": {"f": "e"},
    "keinen": {"m": "en"},
    "diese": {"f": "e"},
    "dieser": {"m": "e", "f": "en"},
    "dieses": {"n": "e"},
    "diesen": {"m": "en"},
    "diesem": {"m": "en", "n": "en"},
    "mein": {"m": "er", "n": "es"},
    "meine": {"f": "e"},
    "meinen": {"m": "en"},
    "meiner": {"f": "en"},
}


@pytest.fixture(scope="module")
def splits() -> dict[str, ParallelText]:
    return ToyCorpus(size=4000, valid_size=300, test_size=300, seed=1).splits()


@pytest.fixture(scope="module")
def sources(splits) -> list[str]:
    return splits["train"].source


def _lines(seed: int) -> str:
    splits = ToyCorpus(size=200, valid_size=20, test_size=20, seed=seed).splits()
    return "\n".join(line for text in splits.values() for line in text.source + text.target)


def test_the_seed_decides_the_text():
    assert _lines(3) == _lines(3)
    assert _lines(3) != _lines(4)


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_other_processes_generate_the_same_text(hash_seed):
    program = (
        "import hashlib\n"
        "from normlab.data.toy import ToyCorpus\n"
        "splits = ToyCorpus(size=200, valid_size=20, test_size=20, seed=3).splits()\n"
        "lines = [line for text in splits.values() for line in text.source + text.target]\n"
        "print(hashlib.sha256('\\n'.join(lines).encode()).hexdigest())"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == hashlib.sha256(_lines(3).encode()).hexdigest()


def test_sizes_and_defaults(splits):
    assert {name: len(text) for name, text in splits.items()} == {
        "train": 4000,
        "valid": 300,
        "test": 300,
    }
    assert dict(ToyCorpus().sizes) == {"train": 20_000, "valid": 500, "test": 500}


def test_no_source_sentence_is_in_two_splits(splits):
    train, valid, test = (set(splits[name].source) for name in ("train", "valid", "test"))
    assert not train & valid
    assert not train & test
    assert not valid & test


def test_valid_and_test_do_not_depend_on_the_size_of_train(splits):
    small = ToyCorpus(size=50, valid_size=300, test_size=300, seed=1).splits()
    assert small["valid"] == splits["valid"]
    assert small["test"] == splits["test"]
    assert small["train"].source == splits["train"].source[:50]


def test_key_and_description():
    corpus = ToyCorpus(size=30, valid_size=5, test_size=5, seed=1)
    assert corpus.key() == ToyCorpus(size=30, valid_size=5, test_size=5, seed=1).key()
    others = (
        ToyCorpus(size=31, valid_size=5, test_size=5, seed=1),
        ToyCorpus(size=30, valid_size=5, test_size=5, seed=2),
    )
    assert len({corpus.key(), *(other.key() for other in others)}) == 3
    description = corpus.describe()
    assert description["sizes"] == {"train": 30, "valid": 5, "test": 5}
    assert description["languages"] == ["de", "en"]
    for text in corpus.splits().values():
        assert text.checked() is text


@pytest.mark.parametrize("key", ["size", "valid_size", "test_size"])
def test_an_empty_split_is_refused(key):
    with pytest.raises(ValueError, match=rf"{key}=0"):
        ToyCorpus(**{key: 0})


def test_lengths_are_skewed_between_3_and_60(splits):
    for side in (splits["train"].source, splits["train"].target):
        lengths = [len(line.split()) for line in side]
        assert min(lengths) == 3
        assert 50 < max(lengths) <= 60
        assert 12 <= mean(lengths) <= 15
        assert sorted(lengths)[len(lengths) // 2] < mean(lengths)
        assert 0.02 < sum(length > 30 for length in lengths) / len(lengths) < 0.1


def test_lines_are_cased_and_punctuated(splits):
    for text in splits.values():
        for line in text.source + text.target:
            assert re.fullmatch(r"[A-ZÄÖÜ].*[^ ,;][.?!]", line), line
            assert not re.search(r"  | [,.;?!]|,[,.;?!]|[,;]\w|[{}_~*|+/=-]{2}", line), line


def test_one_german_sentence_has_several_translations():
    pairs = []
    for wording in ("one", "two"):
        dice = Dice(Random("meaning"), Random(wording))
        pairs.append([sentence(dice) for _ in range(500)])
    first, second = pairs
    assert [source for source, _ in first] == [source for source, _ in second]
    differing = sum(a != b for (_, a), (_, b) in zip(first, second, strict=True))
    assert differing > 350


def test_even_the_likeliest_wording_does_not_reach_bleu_100():
    from sacrebleu import corpus_bleu

    class Likeliest(Random):
        def random(self) -> float:
            return 0.49  # the first reading, and every option of wording that is likelier than not

    drawn = Dice(Random("meaning"), Random("wording"))
    likeliest = Dice(Random("meaning"), Likeliest())
    references = [sentence(drawn)[1] for _ in range(500)]
    hypotheses = [sentence(likeliest)[1] for _ in range(500)]
    assert 50 < corpus_bleu(hypotheses, [references]).score < 80


def test_vocabulary_is_some_hundred_lemmas(sources):
    assert len(LEMMAS) > 200
    assert len(VERBS) > 150
    assert len({word.strip(",.;?!") for line in sources for word in line.split()}) > 2000


def test_article_and_adjective_agree_with_the_noun(sources):
    # not after a comma or a preposition after one: there der, die, das may be relative pronouns
    pattern = re.compile(
        rf"(?<!,)(?<!, auf)(?<!, an)(?<!, von)(?<!, mit)(?<!, über)(?<!, für)(?<!, um)(?<!, in)"
        rf"(?:^| )((?i:{'|'.join(ENDINGS)}))((?: (?!sehr)[a-zäöüß]+)*) ({'|'.join(GENDER_OF)})\b",
    )
    checked = with_adjective = 0
    for line in sources:
        for article, between, noun in pattern.findall(line):
            words = between.split()
            # a pronoun of the same form may stand before another phrase: ich sehe die alte Uhren
            adjectives = all(re.search(r"(e|en|er|es)$", word) for word in words)
            if (
                not adjectives
                or (NOT_ADJECTIVES | ENDINGS.keys()) & set(words)
                or noun not in GENDER_OF
            ):
                continue
            endings = ENDINGS[article.lower()]
            assert GENDER_OF[noun] in endings, line
            assert all(word.endswith(endings[GENDER_OF[noun]]) for word in words), line
            checked += 1
            with_adjective += bool(words)
    assert checked > 500
    assert with_adjective > 150


# Words in -e, -en, -er, -es, -em that may stand between a relative pronoun or a numeral and a noun.
NOT_ADJECTIVES = {
    "ihre",
    "seine",
    "meine",
    "deine",
    "unsere",
    "eure",
    "ihren",
    "seinen",
    "meinen",
    "deinen",
    "unseren",
    "ihrer",
    "seiner",
    "meiner",
    "deiner",
    "unserer",
    "ihres",
    "seines",
    "alle",
    "viele",
    "einige",
    "mehrere",
    "jede",
    "jeden",
    "jeder",
    "jedes",
    "Ihre",
    "Ihren",
    "Ihrer",
    "keine",
    "keinen",
    "gestern",
    "heute",
    "morgen",
    "gerade",
    "unser",
    "euer",
    "aber",
    "aller",
    "diese",
}


def test_prepositions_govern_their_case(sources):
    dative = re.compile(r"\b(mit|von|aus|bei|zu|seit|vor) (das|die|ein|eine|einen|mein|meine)\b")
    accusative = re.compile(r"\b(für) (dem|der|einem|einer|ihm|ihr|mir)\b")
    whole = re.compile(r"(?<!,) (?:in|an|zu|von) dem [^,;.]*(.{0,25})")
    for line in sources:
        assert not dative.search(line), line
        assert not accusative.search(line), line
        for following in whole.findall(line):
            # only before a relative clause does the article stay apart (im Haus, in dem Haus, das)
            assert re.match(r", (\w+ )?(der|das|den|dem|dessen)\b", following), line


def test_a_relative_pronoun_agrees_with_its_noun(sources):
    pronouns = {
        "m": {"der", "den", "dem", "dessen"},
        "f": {"die", "der", "deren"},
        "n": {"das", "dem", "dessen"},
    }
    # no datives: such a phrase may belong to the noun that the clause is about
    pattern = re.compile(
        rf"\b(?:ein|eine|einen|das|den|die|diese|dieses|diesen)(?: \w+en?)? "
        rf"({'|'.join(GENDER_OF)}), "
        r"(?:auf |an |von |mit |über |für |um |in )?(der|die|das|den|dem|denen|dessen|deren)\b"
    )
    found = [match for line in sources for match in pattern.findall(line)]
    assert len(found) > 15
    for noun, pronoun in found:
        assert pronoun in pronouns[GENDER_OF[noun]], (noun, pronoun)


WITH_HABEN = "gesehen gekauft gelesen gegessen getroffen aufgemacht gearbeitet geholfen angerufen"
WITH_SEIN = "gegangen gefahren angekommen aufgewacht eingeschlafen geschwommen geblieben umgezogen"
HABEN = ("habe", "hast", "hat", "haben", "habt", "hatte", "hattest", "hatten", "hattet")
SEIN = ("bin", "bist", "ist", "sind", "seid", "war", "warst", "waren", "wart")


def _clauses(line: str) -> list[str]:
    """Return the clauses of a sentence that commas and conjunctions do not break up."""
    return [part.strip(" .?!") for part in re.split(r"[,;]", line)]


@pytest.mark.parametrize(("participles", "auxiliaries"), [(WITH_HABEN, HABEN), (WITH_SEIN, SEIN)])
def test_the_participle_takes_its_auxiliary_and_its_place(sources, participles, auxiliaries):
    final = second = 0
    for line in sources:
        for clause in _clauses(line):
            words = clause.split()
            found = [word for word in words if word in participles.split()]
            if len(found) != 1 or " und " in f" {clause} " or " oder " in clause:
                continue
            if {"wird", "werden", "wurde", "wurden", "wirst", "werde"} & set(words):
                continue
            if words[0] in ("dass", "weil", "ob", "obwohl", "nachdem", "als", "während"):
                assert words[-2] == found[0] and words[-1] in auxiliaries, line
                final += 1
            elif clause == line.strip(" .?!"):
                assert words[-1] == found[0], line
                assert sum(word.lower() in auxiliaries for word in words) == 1, line
                second += 1
    assert final > 2
    assert second > 5


SUBORDINATORS = ("dass", "weil", "ob", "obwohl", "wenn", "bevor", "sobald", "während", "nachdem")
PREFIXES = ("auf", "an", "zu", "ab", "aus", "ein", "mit", "vor", "weg", "zurück", "statt", "fern")


@pytest.fixture(scope="module")
def finite_verbs() -> set[str]:
    others = (
        "sagen",
        "glauben",
        "meinen",
        "hoffen",
        "behaupten",
        "versuchen",
        "planen",
        "kosten",
        "weigern",
        "denken denkt dachte gedacht",
        "wissen weiß wusste gewusst",
        "beginnen beginnt begann begonnen",
        "versprechen verspricht versprach versprochen",
        "beschließen beschließt beschloss beschlossen",
        "sein ist war *gewesen",
        "werden wird wurde *geworden",
    )
    persons = ("1s", "2s", "3s", "1p", "2p", "3p")
    modals = ("können", "müssen", "wollen", "sollen", "dürfen", "möchten")
    tenses = ("present", "preterite")
    forms = {german.modal(word, tense, p) for word in modals for tense in tenses for p in persons}
    for word in (*VERBS, *map(verb, others)):
        for tense in tenses:
            for person in persons:
                form = german.finite(word, tense, person)
                forms |= {form, word.prefix + form}
    return forms


def test_subordinate_clauses_end_in_their_verb(sources, finite_verbs):
    checked = joined = 0
    for line in sources:
        for clause in _clauses(line):
            words = clause.split()
            if not words or words[0] not in SUBORDINATORS or {"und", "oder"} & set(words):
                continue
            goes_on = re.search(rf"{re.escape(clause)}, (?!und|oder|aber|denn)", line)
            if goes_on:
                # a relative clause may interrupt it
                continue
            assert words[-1] in finite_verbs, line
            checked += 1
            joined += words[-1].startswith(PREFIXES) and words[-1].endswith(("macht", "machte"))
    assert checked > 500
    assert joined > 3


def test_a_fronted_adverb_puts_the_verb_second(sources, finite_verbs):
    checked = 0
    for line in sources:
        first, second = line.split()[:2]
        if first in ("Gestern", "Heute", "Morgen", "Jetzt", "Damals", "Meistens", "Bald"):
            if second in ("um", "Abend", "Morgen", "früh"):
                continue
            assert second in finite_verbs, line
            checked += 1
    assert checked > 40


def test_separable_verbs_leave_their_prefix_at_the_end(sources):
    split = [
        line
        for line in sources
        if re.fullmatch(r"(?!.*[,;])(?!.* und )(?!.* oder ).* (macht|mache|machen|machte) .*", line)
        and "gemacht" not in line
    ]
    assert len(split) > 5
    for line in split:
        assert line.rstrip(".?!").split()[-1] in ("auf", "zu", "an", "aus"), line


def test_negation_and_modals_are_translated(splits):
    for source, target in zip(splits["train"].source, splits["train"].target, strict=True):
        if re.search(r"\b(nicht|nie|niemand\w*|kein\w*)\b", source, re.IGNORECASE):
            assert re.search(r"\b(not|no|never|nobody|cannot)\b|n't\b", target, re.IGNORECASE), (
                source,
                target,
            )
        elif not re.search(r"\b(refus|not|no)\w*", target, re.IGNORECASE):
            assert "n't" not in target, (source, target)


def test_english_articles_and_verbs_agree(splits):
    for line in splits["train"].target:
        for article, word in re.findall(r"\b([Aa]n?) (\w+)", line):
            vowel = word[0] in "aeiouAEIOU" and not word.startswith(("univ", "Euro", "one", "use"))
            vowel = vowel or word.startswith(("hon", "hour"))
            assert (article.lower() == "an") == vowel, line
        assert not re.match(r"(He|She|It) (have|are|do|were)\b", line), line
        assert not re.match(r"(They|We|You) (is|has|was|does)\b", line), line


@pytest.mark.parametrize(
    ("value", "spelled", "translated"),
    [
        (7, "sieben", "seven"),
        (16, "sechzehn", "sixteen"),
        (21, "einundzwanzig", "twenty-one"),
        (30, "dreißig", "thirty"),
        (77, "siebenundsiebzig", "seventy-seven"),
        (342, "dreihundertzweiundvierzig", "three hundred forty-two"),
        (2016, "zweitausendsechzehn", "two thousand sixteen"),
    ],
)
def test_numbers(value, spelled, translated):
    assert german.number(value) == spelled
    assert english.number(value) == translated


@pytest.mark.parametrize(
    ("parts", "forms"),
    [
        ("lesen liest las gelesen", "lese liest liest lesen lest lesen"),
        ("arbeiten", "arbeite arbeitest arbeitet arbeiten arbeitet arbeiten"),
        ("fahren fährt fuhr *gefahren", "fahre fährst fährt fahren fahrt fahren"),
        ("zeichnen", "zeichne zeichnest zeichnet zeichnen zeichnet zeichnen"),
        ("lächeln", "lächle lächelst lächelt lächeln lächelt lächeln"),
        ("ein+laden lädt lud geladen", "lade lädst lädt laden ladet laden"),
        ("nehmen nimmt nahm genommen", "nehme nimmst nimmt nehmen nehmt nehmen"),
        ("tanzen", "tanze tanzt tanzt tanzen tanzt tanzen"),
        ("haben hat hatte gehabt", "habe hast hat haben habt haben"),
    ],
)
def test_present_tense(parts, forms):
    persons = ("1s", "2s", "3s", "1p", "2p", "3p")
    word = verb(parts)
    assert [german.finite(word, "present", person) for person in persons] == forms.split()


@pytest.mark.parametrize(
    ("parts", "participle", "with_zu"),
    [
        ("auf+machen", "aufgemacht", "aufzumachen"),
        ("an+kommen kommt kam *gekommen", "angekommen", "anzukommen"),
        ("reparieren", "repariert", "zu reparieren"),
        ("verkaufen", "verkauft", "zu verkaufen"),
        ("vor+bereiten - - bereitet", "vorbereitet", "vorzubereiten"),
        ("arbeiten", "gearbeitet", "zu arbeiten"),
    ],
)
def test_participles_and_infinitives(parts, participle, with_zu):
    assert verb(parts).participle == participle
    assert verb(parts).zu_infinitive == with_zu


@pytest.mark.parametrize(
    ("lemma", "cases", "dative_plural"),
    [
        ("Mann", "Mann Mann Mann Mannes", "Männern"),
        ("Junge", "Junge Jungen Jungen Jungen", "Jungen"),
        ("Frau", "Frau Frau Frau Frau", "Frauen"),
        ("Kind", "Kind Kind Kind Kindes", "Kindern"),
        ("Auto", "Auto Auto Auto Autos", "Autos"),
        ("Bus", "Bus Bus Bus Busses", "Bussen"),
        ("Lehrer", "Lehrer Lehrer Lehrer Lehrers", "Lehrern"),
        ("Geheimnis", "Geheimnis Geheimnis Geheimnis Geheimnisses", "Geheimnissen"),
    ],
)
def test_noun_declension(lemma, cases, dative_plural):
    assert list(german.decline(LEMMAS[lemma], plural=False)) == cases.split()
    assert german.decline(LEMMAS[lemma], plural=True)[german.DAT] == dative_plural
