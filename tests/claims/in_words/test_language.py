"""The texts of both languages."""

import re

import pytest
from msgspec import structs

from normlab.claims.in_words.language import CHINESE, ENGLISH, Words
from normlab.errors import UserError

CHOOSING = ("claims.to_measure", "claims.short_verdict", "claims.verdict", "claims.part_verdict")
CHOOSING += ("claims.finding", "phrasing.check", "phrasing.tested")
"""The texts that fill in what is in one language only, such as the cost of a measurement."""


def texts(node, key=""):
    """Yield the dotted keys and texts of a language, except verdicts and scores, which differ."""
    for name, value in structs.asdict(node).items():
        if isinstance(value, str):
            yield f"{key}{name}", value
        elif hasattr(value, "__struct_fields__"):
            yield from texts(value, f"{key}{name}.")


def test_both_languages_fill_in_the_same_names():
    english, chinese = dict(texts(ENGLISH)), dict(texts(CHINESE))
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        if text and chinese[key] and key not in CHOOSING:
            names = [sorted(re.findall(r"{\w*}", each)) for each in (text, chinese[key])]
            assert names[0] == names[1], key


def test_typographic_signs_are_used_only_on_pages_and_in_latex():
    assert ENGLISH.number("-0.5") == "-0.5" and ENGLISH.typeset.number("-0.5") == "\u22120.5"
    assert ENGLISH.typeset.number("0-1") == "0-1", "only a sign at the start"


def test_scores_have_names_in_both_languages_and_the_error_for_an_unknown_one_names_the_file():
    assert (str(ENGLISH.score_name("test/bleu")), str(CHINESE.score_name("valid/loss"))) == (
        ("BLEU", "损失")
    )
    with pytest.raises(UserError, match=r"score test/blau is unknown: .*glossary.py"):
        ENGLISH.score_name("test/blau")
    with pytest.raises(
        UserError, match=r"language.zh.yaml: scores.chrf: no text in Chinese yet; translate"
    ):
        CHINESE.score_name("test/chrf")


def test_a_text_that_is_the_same_in_english_is_written_once():
    assert Words("LN").text(ENGLISH) == Words("LN").text(CHINESE) == "LN"
    assert Words("层", "layer").text(ENGLISH) == "layer"
