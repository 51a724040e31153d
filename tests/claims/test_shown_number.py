"""The number that is shown for a decision: the first side minus the second, whatever the claim."""

import json

import pytest

from normlab.claims.decision import Decision, Estimate
from normlab.claims.shown_number import more_or_less, shown_bounds, shown_estimate
from normlab.claims.texts import number_texts, side_values
from normlab.config.folders import RESULTS
from tests.claims.handmade_study import NOISE, contrast, primary, run


@pytest.mark.parametrize("score", ["test/bleu", "test/loss"])
@pytest.mark.parametrize("first", ["better", "worse"])
def test_a_difference_is_the_first_side_minus_the_second_for_every_score(tmp_path, score, first):
    """Layer norm has 30 and batch norm 28, which is better for BLEU and worse for a loss."""
    records = [
        run(k, norm, mean + noise, scores={"test/loss": mean + noise})
        for norm, mean, noises in (("ln", 30.0, NOISE), ("bn", 28.0, [0.0] * 5))
        for k, noise in enumerate(noises[:5], start=1)
    ]
    judged_part = primary(tmp_path, records, contrast(score=score, first=first))
    assert judged_part.verdict == ("supported" if score == "test/bleu" else "contradicted")
    one, other = (float(side.value) for side in side_values(judged_part))
    mean, low, high = map(float, number_texts(judged_part.decision))
    assert mean == pytest.approx(one - other, abs=0.011) and low < mean < high
    assert mean == pytest.approx(2.0 if first == "better" else -2.0, abs=0.5)


def test_the_ends_of_an_interval_and_the_margins_turn_with_the_number():
    estimate = Estimate(2.0, 1.0, 4.0, 0.95, smallest=0.7)
    as_it_is = Decision("supported", estimate=estimate, bounds=(0.5, 4.0))
    assert shown_estimate(as_it_is) == estimate and shown_bounds(as_it_is) == [0.5, 4.0]
    for form, expected in (("number", (-2.0, -4.0, -1.0)), ("factor", (0.5, 0.25, 1.0))):
        turned = Decision("supported", estimate=estimate, form=form, opposite=True, bounds=(4.0,))
        shown = shown_estimate(turned)
        assert shown == Estimate(*expected, 0.95, smallest=0.7)
        assert shown_bounds(turned) == [-4.0 if form == "number" else 0.25]


def test_saved_time_is_shown_relative_to_the_side_that_is_shown_second():
    """The faster side saves half of the time, so the slower one takes twice as long."""
    saved = Estimate(0.5, 0.2, 0.75, 0.95)
    for opposite, expected in ((True, (-0.5, -0.75, -0.2)), (False, (1.0, 0.25, 3.0))):
        decision = Decision("supported", estimate=saved, form="share", opposite=opposite)
        shown = shown_estimate(decision)
        assert (shown.mean, shown.low, shown.high) == pytest.approx(expected)
    assert number_texts(decision) == ("100.0 %", "25.0 %", "300.0 %")


def test_a_decrease_is_a_positive_size_with_its_interval_turned():
    assert more_or_less(("-2.0 %", "-3.1 %", "1.0 %")) == ("less", ("2.0 %", "-1.0 %", "3.1 %"))
    assert more_or_less(("-2.0 %", "-3.1 %", "0.0 %")) == ("less", ("2.0 %", "0.0 %", "3.1 %"))
    assert more_or_less(("0.5 %", "-0.3 %", "1.2 %")) == ("more", ("0.5 %", "-0.3 %", "1.2 %"))


def test_in_the_ledger_the_shown_values_give_the_shown_number():
    parts = [
        part
        for claim in json.loads((RESULTS / "claims.json").read_text("utf-8"))
        for part in claim["parts"] + claim["secondary"]
        if part.get("number") and part.get("sides")
    ]
    kinds = {
        "difference": lambda a, b: a - b,
        "interaction": lambda a, b, c, d: (a - b) - (c - d),
        "factor": lambda a, b: a / b,
    }
    checked = [part for part in parts if part["unit"] in kinds]
    assert len(checked) > 90
    for part in checked:
        values = [float(side["value"]) for side in part["sides"]]
        number, places = float(part["number"][0]), len(part["number"][0].partition(".")[2])
        last_digits = 2.1 * 10**-places if part["unit"] != "factor" else 0.01 * abs(number)
        made = kinds[part["unit"]](*values)
        assert made == pytest.approx(number, abs=last_digits), part["finding"]
        assert number == pytest.approx(part["value"], rel=0.01, abs=0.6 * 10**-places)
