"""Article 3's words after layer norm, computed by hand."""

import numpy as np
import pytest

from normlab.inspection.examples.articles import WORDS_WITH_999
from tests.claim_checks.by_hand import layer_norm, numbers, text_of


def test_the_normalized_words_of_article_3_match_hand_calculations():
    ln = layer_norm(np.array(WORDS_WITH_999))
    assert ln[0, 2] == pytest.approx(ln[1, 1], abs=0.01) and not ln[2].any()
    assert "becomes \u22120.57 \u22120.55 1.73 \u22120.61" in text_of("outlier.words")
    assert "becomes \u22120.58 1.73 \u22120.58 \u22120.58" in text_of("outlier.words")
    assert "0.00 0.00 0.00 0.00: the word disappears (without eps it is not a number)" in text_of(
        "outlier.words"
    )
    values, holds = numbers("outlier.range")
    assert holds == [True, False]
    assert [values["of_4"], values["of_768"]] == pytest.approx([3**0.5, 767**0.5], rel=0.01)
