"""What opens below a sentence: texts in both languages."""

from msgspec import to_builtins

from normlab.articles.explanation import FromCheck, NotTested, both_of, in_both


def test_a_text_that_is_the_same_in_both_languages_is_written_once():
    assert both_of("LN", "LN") == ("LN",) and both_of("层", "layer") == ("层", "layer")
    assert in_both(lambda language: language.number("-1")) == ("\u22121",)
    assert in_both(lambda language: language.verdicts["supported"]) == ("成立", "holds")


def test_explanations_are_tagged_with_their_kind_and_may_lack_a_claim_and_a_grade():
    untested = to_builtins(NotTested(statement=("是",), command="normlab study run x"))
    assert untested == {
        **{"type": "not measured", "statement": ("是",), "claim": None},
        "command": "normlab study run x",
    }
    check = FromCheck(statement=("是",), verdict="supported", check="modes.padding")
    assert (check.claim, check.grade, check.findings) == (None, None, ())
