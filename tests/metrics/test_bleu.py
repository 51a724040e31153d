"""BLEU, chrF and the paired bootstrap, compared with definitions and with sacreBLEU."""

import math
import random
import unicodedata

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

from normlab.data.toy import ToyCorpus
from normlab.metrics.bleu import bleu_scores, corpus_chrf, paired_bootstrap

REFERENCES = ["the cat sat on the mat .", "a dog runs in the park today ."]


def bleu(hypotheses, references, **options):
    return bleu_scores(hypotheses, references, **options)["bleu"]


def test_case_and_tokenizer_follow_the_options_and_appear_in_the_signature():
    def parts(score):
        return dict(part.split(":") for part in score.signature.split("|"))

    hypotheses, references = ["The cat, sat on the mat."], ["the cat, sat on the mat."]
    assert bleu(hypotheses, references, lowercase=True).value == pytest.approx(100)
    raw = bleu(hypotheses, references)
    assert raw.value < 100 and parts(raw).items() >= {"case": "mixed", "tok": "13a"}.items()
    # 13a splits the punctuation off, so that `mat` matches `mat.` there and not as plain tokens.
    detached = ["the cat , sat on the mat ."]
    assert bleu(detached, references).value == pytest.approx(100)
    plain = bleu(detached, references, lowercase=True, tokenize="none")
    assert plain.value < 60 and parts(plain).items() >= {"case": "lc", "tok": "none"}.items()
    assert parts(corpus_chrf(REFERENCES, REFERENCES))["nw"] == "0"


@pytest.mark.parametrize("score", [bleu, corpus_chrf])
def test_empty_inputs_and_unequal_lengths_raise_an_error(score):
    with pytest.raises(ValueError, match="1 hypotheses for 2 references"):
        score(["a"], REFERENCES)
    with pytest.raises(ValueError, match="0 hypotheses for 0 references"):
        score([], [])


@pytest.fixture(scope="module")
def sentences():
    """Return references and two outputs that drop some of their words, the second one more."""
    references = ToyCorpus(size=1, test_size=60).splits["test"].target
    rng = random.Random(1)

    def lossy(share):
        kept = ([w for w in line.split() if rng.random() > share] for line in references)
        return [" ".join(words) for words in kept]

    return references, lossy(0.15), lossy(0.17)


def test_the_bootstrap_of_one_output_per_side_matches_sacrebleu(sentences):
    references, one, two = sentences
    found = paired_bootstrap([one], [two], references, lowercase=True)
    sides = [("baseline", one), ("other", two)]
    test = PairedTest(sides, {"BLEU": BLEU(lowercase=True)}, [references], test_type="bs")
    baseline, other = test()[1]["BLEU"]
    expected = (baseline.score, other.score, other.p_value)
    assert (found.baseline, found.other, found.p) == pytest.approx(expected, abs=1e-9)
    assert 0.002 < found.p < 0.9
    assert "bs:1000" in found.signature and "case:lc" in found.signature


def test_the_bootstrap_pools_outputs_without_counting_them_as_more_sentences(sentences):
    references, one, two = sentences
    single = paired_bootstrap([one], [two], references, samples=200)
    twice = paired_bootstrap([one, one], [two, two], references, samples=200)
    assert (twice.baseline, twice.other, twice.p) == (single.baseline, single.other, single.p)
    mixed = paired_bootstrap([one, two], [two, two], references, samples=200)
    pooled = bleu([*one, *two], [*references, *references]).value
    assert mixed.baseline == pytest.approx(pooled) and mixed.other == single.other


def test_the_bootstrap_gives_identical_sides_p_1_and_refuses_sides_of_different_length(sentences):
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
    longer = bleu_scores([f"{line} {line}" for line in REFERENCES], REFERENCES)
    assert longer["length_ratio"].value == pytest.approx(2)
    assert longer["brevity_penalty"].value == 1


NFC = [
    "Die M\u00fche l\u00f6st \u00dcbel sch\u00f6n .",
    "\ud55c\uad6d\uc5b4 \u0646\u0622 caf\u00e9 na\u00efve .",
]


def test_the_unicode_normal_form_of_a_text_does_not_change_its_scores():
    nfd = [unicodedata.normalize("NFD", line) for line in NFC]
    assert nfd != NFC
    assert bleu(NFC, nfd) == bleu(nfd, NFC) == bleu(NFC, NFC) and bleu(NFC, nfd).value > 99
    assert corpus_chrf(nfd, NFC) == corpus_chrf(NFC, NFC)
    found = paired_bootstrap([NFC], [nfd], nfd, samples=20)
    assert found.baseline == found.other > 99 and found.p == 1


def test_the_bootstrap_uses_the_requested_tokenizer():
    chinese = ["\u6211\u7231\u4f60\u4eec\u3002", "\u4f60\u4eec\u597d\u5417\uff1f"]
    other = ["\u6211\u7231\u4f60\u4eec\uff01", "\u4f60\u4eec\u597d\uff1f"]
    found = paired_bootstrap([chinese], [other], chinese, tokenize="zh", samples=20)
    assert found.other == bleu(other, chinese, tokenize="zh").value > 20
    assert "tok:zh" in found.signature
