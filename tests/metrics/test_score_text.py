"""How scores are written: their names and digits."""

import pytest

from normlab.metrics.score_text import difference_text, heading, score_text
from tests.reports.handmade import BLEU

STEPS = "valid/steps_to/bleu_20"


@pytest.mark.parametrize(
    ("value", "score", "text"),
    [
        (31.416, BLEU, "31.42"),
        (3.14159, "valid/loss", "3.142"),
        (0.71549, "test/mlm_accuracy", "0.715"),
        (1234567.0, STEPS, "1,234,567"),
        (-1.65687e17, "stability/gradients/norm/decoder.0", "-1.66e+17"),
    ],
)
def test_the_number_of_digits_depends_on_the_kind_of_score(value, score, text):
    assert score_text(value, score) == text


def test_a_value_that_rounds_to_zero_has_no_minus():
    assert score_text(-0.0004, "valid/loss") == "0.000"
    assert score_text(-0.4, STEPS) == "0"
    assert [difference_text(x, BLEU) for x in (-0.004, 0.004)] == ["+0.00"] * 2


def test_scores_have_the_names_that_papers_use():
    names = {
        **{
            "test/bleu": "BLEU",
            "test_2017/chrf": "test 2017 chrF",
            "valid/loss": "validation loss",
        },
        **{
            "test/accuracy": "test accuracy",
            "stability/tid/mean": "distance from the running mean",
        },
        **{
            "valid/steps_to/bleu_20": "steps to BLEU 20",
            "test/batch_size_1/bleu": "BLEU, batch size 1",
        },
    }
    assert {score: heading(score) for score in names} == names
