"""What was found on a part, as a sentence in either language."""

import pytest
from msgspec import structs

from normlab.claims.claim import load_all
from normlab.claims.in_words.finding_text import facts_text, finding_text
from normlab.claims.in_words.language import CHINESE, ENGLISH
from normlab.claims.side import SideValue
from normlab.claims.verdict import Reason
from normlab.config.folders import CONFIG_DIR
from normlab.errors import UserError
from tests.claims.ledgers import saved_part

NUMBERS = {"scores": ("test/bleu",), "value": -2.27, "low": -3.45, "high": -1.09, "n": 5}
NUMBERS |= {"limits": (-0.5, 0.5)}


def difference(verdict, *number, **values):
    """Return a part with a difference whose margin is 0.5, and its numbers as text."""
    part = saved_part("p", verdict, **{**NUMBERS, **values})
    return structs.replace(part, number=number)


def test_a_difference_has_its_interval_and_margin_in_both_languages():
    part = difference("contradicted", "-2.27", "-3.45", "-1.09")
    english = "difference in BLEU -2.27 [-3.45, -1.09]; margin \u00b10.5"
    assert finding_text(part, ENGLISH) == english
    assert "\u22122.27 [\u22123.45, \u22121.09]" in finding_text(part, ENGLISH.typeset)
    assert "BLEU" in finding_text(part, CHINESE) and "margin" not in finding_text(part, CHINESE)


@pytest.mark.parametrize(("language", "text"), [(ENGLISH, "equal to 1e-7"), (CHINESE, "")])
def test_a_check_finding_in_the_ledger_has_an_english_text_and_no_chinese_one(language, text):
    assert (
        finding_text(saved_part("p", "supported", finding="equal to 1e-7", n=1), language) == text
    )
    assert finding_text(saved_part("p", "not measured", finding="equal"), language) == ""


def test_facts_end_with_the_test_in_english_and_the_number_of_seeds_in_chinese():
    part = difference("contradicted", "-2.27", "-3.45", "-1.09", test="t test, n = 5.")
    assert facts_text(part, ENGLISH).endswith("; t test, n = 5")
    assert facts_text(part, CHINESE).endswith("；n = 5")


def test_a_time_says_which_side_takes_more_and_names_the_base():
    sides = (SideValue(("批归一化", "batch norm"), "5.87 ms"), SideValue(("DyT", "DyT"), "5.59 ms"))
    part = difference(
        "contradicted", "4.4 %", "3.2 %", "5.7 %", unit="time", scores=(), limits=(-0.02, 0.02)
    )
    part = structs.replace(part, sides=sides)
    assert finding_text(part, ENGLISH) == (
        "batch norm takes 4.4 % [3.2 %, 5.7 %] more time than DyT, averaged over rounds "
        "(medians: 5.87 ms and 5.59 ms); margin \u00b12 %"
    )
    assert finding_text(part, CHINESE).startswith("批归一化用时比 DyT 多 4.4% [3.2%, 5.7%]，")
    inner = SideValue(("DyT", "batch norm, also inside"), "5.9 ms")
    both = structs.replace(part, sides=(inner, sides[1]))
    assert finding_text(both, ENGLISH).startswith("batch norm, also inside, takes 4.4 % [")
    less = structs.replace(part, number=("-4.4 %", "-5.7 %", "0.3 %"))
    assert "takes 4.4 % [\u22120.3 %, 5.7 %] less time" in finding_text(less, ENGLISH.typeset)
    assert "用时比 DyT 少 4.4% [" in finding_text(less, CHINESE)


def test_a_score_minus_another_one_has_a_name_that_says_so():
    scores = {"scores": ("test/loss",), "minus": "test/seen/loss"}
    part = difference("no difference", "0.04", "0.03", "0.05", **scores)
    assert finding_text(part, ENGLISH).startswith(
        "difference in the gap between held-out and training loss (nats) 0.04 ["
    )
    assert finding_text(part, CHINESE).startswith("未见文本与训练文本的损失差之差（nat）0.04 [")
    unknown = structs.replace(part, minus="valid/loss")
    with pytest.raises(UserError, match=r"language.en.yaml: differences.test/loss - valid/loss"):
        finding_text(unknown, ENGLISH)


def test_every_score_that_decides_a_part_has_a_name_in_both_languages():
    endpoints = [part.endpoint for c in load_all(CONFIG_DIR / "claim") for part in c.parts]
    scored = [endpoint for endpoint in endpoints if endpoint.scores]
    assert sum(bool(each.subtracted) for each in scored) > 10
    for language in (ENGLISH, CHINESE):
        names = [str(language.score_name(each.scores[0], each.subtracted)) for each in scored]
        assert all(names) and len(names) > 80


def test_values_without_a_number_follow_the_name_of_their_score_after_a_colon():
    sides = (
        SideValue(("批归一化", "batch norm"), "0.1"),
        SideValue(("层归一化", "layer norm"), "0.1"),
    )
    part = structs.replace(
        difference("undecided", scores=("stability/spikes/count",), limits=()), sides=sides
    )
    assert finding_text(part, CHINESE) == "损失尖峰数：批归一化 0.1，层归一化 0.1"
    assert finding_text(part, ENGLISH) == "loss spikes: 0.1 with batch norm, 0.1 with layer norm"


def test_a_side_at_the_untrained_baseline_is_named_with_what_it_would_need():
    values = {"chinese": "实例归一化", "english": "instance norm", "score": "test/nsp_accuracy"}
    values |= {"score_in_english": "next-sentence accuracy"}
    values |= {"value": "0.4998", "baseline": "0.5003", "needed": "2"}
    reason = Reason("baseline_accuracy", values)
    part = difference("undecided", scores=("test/nsp_accuracy",), limits=(), reason=reason)
    assert finding_text(part, CHINESE) == (
        "实例归一化的句对准确率为 0.4998，并不明显好于未训练的基线（0.5003；须高 2 个百分点）"
    )
    assert "instance norm: next-sentence accuracy 0.4998 is not" in finding_text(part, ENGLISH)
    loss = {**values, "chinese": "DyT", "score": "test/bleu", "needed": "1"}
    part = structs.replace(part, reason=Reason("baseline_loss", loss))
    assert finding_text(part, CHINESE).startswith("DyT 的 BLEU 为 0.4998，")
