"""The decision on passes that should agree, from the measured changes alone."""

import math

import pytest
import torch

from normlab.any_model.questions.examination import OutputChange
from normlab.any_model.questions.leak import HARM, Rounding, decide

ROUNDING = Rounding(1e-9, 1e-3, torch.float32)


def change(in_float64: float, in_model_dtype: float = 0.0) -> OutputChange:
    return OutputChange(in_float64, in_model_dtype, 0.0, "logits")


@pytest.mark.parametrize(
    ("in_float64", "verdict", "threshold"),
    [(2 * HARM, "broken", HARM), (HARM / 2, "look", 1e-9), (math.inf, "broken", HARM)],
)
def test_a_change_in_float64_is_a_leak_and_is_broken_above_the_limit_of_harm(
    in_float64, verdict, threshold
):
    decision = decide({"first": change(1e-12), "second": change(in_float64)}, ROUNDING)
    assert (decision.kind, decision.verdict, decision.comparison) == ("leak", verdict, "second")
    assert (decision.value, decision.threshold) == (in_float64, threshold)


def test_a_change_only_in_the_dtype_is_rounding_unless_it_is_too_large_for_that():
    small, large = (decide({"": change(1e-12, x)}, ROUNDING) for x in (1e-4, 1e-2))
    assert (small.kind, small.verdict, small.value) == ("rounding", "fine", 1e-12)
    assert (large.kind, large.verdict, large.value) == ("dtype", "broken", 1e-2)
    coarse = Rounding(1e-9, 1e-3, torch.bfloat16)
    assert decide({"": change(1e-12, 1e-2)}, coarse).verdict == "look"


@pytest.mark.parametrize(
    ("usual", "has_padding", "verdict", "only_unusual"),
    [
        ({"usual": change(1e-12)}, True, "look", True),
        ({"usual": change(2 * HARM)}, False, "broken", False),
        ({}, True, "broken", True),
        ({}, False, "look", True),
    ],
)
def test_unusual_padding_values_are_broken_only_if_usual_ones_leak_or_cannot_be_tried(
    usual, has_padding, verdict, only_unusual
):
    changes = {**usual, "other": change(1.0)}
    decision = decide(changes, ROUNDING, unusual="other", has_padding=has_padding)
    assert (decision.verdict, decision.only_unusual) == (verdict, only_unusual)
