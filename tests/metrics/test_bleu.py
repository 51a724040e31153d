"""BLEU by hand, by its definition, and with its signature."""

import math
import random

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

from normlab.data.toy import ToyCorpus
from normlab.metrics.bleu import bleu_scores, corpus_chrf, paired_bootstrap, tokenizer_of

REFERENCES = ["the cat sat on the mat .", "a dog runs in the park today ."]


def bleu(hypotheses, references, **options):
    return bleu_scores(hypotheses, references, **options)["bleu"]


def of_words(hypotheses, references):
    return bleu(hypotheses, references, lowercase=True, tokenize="none")


def test_one_wrong_token_by_hand():
    # Ten tokens, the last wrong: 9 of 10 unigrams match, 8 of 9, 7 of 8 and 6 of 7 n-grams.
    reference = "a b c d e f g h i j"
    hypothesis = "a b c d e f g h i x"
    expected = 100 * (9 / 10 * 8 / 9 * 7 / 8 * 6 / 7) ** 0.25
    assert of_words([hypothesis], [reference]).value == pytest.approx(expected)


def test_counts_are_pooled_over_the_corpus_not_averaged_over_sentences():
    references = ["a b c d e", "a b c d e f g h i j"]
    hypotheses = ["a b c d x", "a b c d e f g h i j"]
    matched, total = [4 + 10, 3 + 9, 2 + 8, 1 + 7], [5 + 10, 4 + 9, 3 + 8, 2 + 7]
    precision = math.prod(m / t for m, t in zip(matched, total, strict=True))
    expected = 100 * precision**0.25
    assert of_words(hypotheses, references).value == pytest.approx(expected)


def test_case_and_tokens_are_as_declared():
    hypotheses, references = ["The cat, sat on the mat."], ["the cat, sat on the mat."]
    assert bleu(hypotheses, references, lowercase=True).value == pytest.approx(100)
    assert bleu(hypotheses, references).value < 100
    # 13a splits the punctuation off, so that `mat` matches `mat.` there and not as plain tokens.
    detached = ["the cat , sat on the mat ."]
    assert bleu(detached, references).value == pytest.approx(100)
    assert bleu(detached, references, tokenize="none").value < 60


def test_signatures_name_case_and_tokenizer():
    def parts(score):
        return dict(part.split(":") for part in score.signature.split("|"))

    raw = parts(bleu(REFERENCES, REFERENCES))
    assert (raw["case"], raw["tok"], raw["nrefs"]) == ("mixed", "13a", "1")
    tokens = parts(of_words(REFERENCES, REFERENCES))
    assert (tokens["case"], tokens["tok"]) == ("lc", "none")
    assert "version" in tokens
    assert parts(corpus_chrf(REFERENCES, REFERENCES))["nw"] == "0"


@pytest.mark.parametrize("score", [bleu, corpus_chrf])
def test_bad_input_is_named(score):
    with pytest.raises(ValueError, match="1 hypotheses for 2 references"):
        score(["a"], REFERENCES)
    with pytest.raises(ValueError, match="no sentence to score"):
        score([], [])


@pytest.fixture(scope="module")
def sentences():
    """Return references and two outputs that lose words of them, the second more."""
    references = ToyCorpus(size=1, test_size=60).splits["test"].target
    rng = random.Random(1)

    def lossy(share):
        kept = ([w for w in line.split() if rng.random() > share] for line in references)
        return [" ".join(words) for words in kept]

    return references, lossy(0.15), lossy(0.17)


def test_the_bootstrap_of_single_outputs_is_sacrebleus(sentences):
    references, one, two = sentences
    found = paired_bootstrap([one], [two], references, lowercase=True)
    sides = [("baseline", one), ("other", two)]
    test = PairedTest(sides, {"BLEU": BLEU(lowercase=True)}, [references], test_type="bs")
    baseline, other = test()[1]["BLEU"]
    expected = (baseline.score, other.score, other.p_value)
    assert (found.baseline, found.other, found.p) == pytest.approx(expected, abs=1e-9)
    assert 0.002 < found.p < 0.9
    assert "bs:1000" in found.signature and "case:lc" in found.signature


def test_several_outputs_are_pooled_and_do_not_pass_for_more_sentences(sentences):
    references, one, two = sentences
    single = paired_bootstrap([one], [two], references, samples=200)
    twice = paired_bootstrap([one, one], [two, two], references, samples=200)
    assert (twice.baseline, twice.other, twice.p) == (single.baseline, single.other, single.p)
    mixed = paired_bootstrap([one, two], [two, two], references, samples=200)
    pooled = bleu([*one, *two], [*references, *references]).value
    assert mixed.baseline == pytest.approx(pooled) and mixed.other == single.other


def test_a_bootstrap_of_equal_sides_is_certain_and_of_sides_that_do_not_fit_refused(sentences):
    references, one, two = sentences
    assert paired_bootstrap([one], [list(one)], references, samples=50).p == 1
    with pytest.raises(ValueError, match="59 hypotheses for 60 references"):
        paired_bootstrap([one], [two[1:]], references)


def test_the_brevity_penalty_follows_from_the_length_ratio():
    half = [" ".join(line.split()[: len(line.split()) // 2]) for line in REFERENCES]
    found = bleu_scores(half, REFERENCES)
    ratio = found["length_ratio"].value
    assert 0.3 < ratio < 0.7
    assert found["brevity_penalty"].value == pytest.approx(math.exp(1 - 1 / ratio))
    short = of_words(["a b c d e f"], ["a b c d e f g h"]).value
    assert short == pytest.approx(100 * math.exp(1 - 8 / 6))
    longer = bleu_scores([f"{line} {line}" for line in REFERENCES], REFERENCES)
    assert longer["length_ratio"].value == pytest.approx(2)
    assert longer["brevity_penalty"].value == 1


def test_bleu_is_tokenized_for_the_target_language():
    assert (tokenizer_of("de"), tokenizer_of("zh-CN")) == ("13a", "zh")
    with pytest.raises(ValueError, match="target language th"):
        tokenizer_of("th")
