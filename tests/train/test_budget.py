from typing import Any

import pytest

from normlab.train.stopping import Budget

FAR = {"steps": 0, "epochs": 0.0, "tokens": 0, "seconds": 0.0}


@pytest.mark.parametrize(
    ("limit", "before", "at"),
    [
        ({"steps": 10}, {"steps": 9}, {"steps": 10}),
        ({"epochs": 1.5}, {"epochs": 1.49}, {"epochs": 1.5}),
        ({"tokens": 1000}, {"tokens": 999}, {"tokens": 1003}),
        ({"minutes": 2.0}, {"seconds": 119.9}, {"seconds": 120.0}),
    ],
)
def test_each_limit_is_reached_at_its_figure_and_named(limit: dict, before: dict, at: dict):
    budget = Budget(**limit)
    assert budget.spent(**{**FAR, **before}) is None
    assert budget.spent(**{**FAR, **at}) == next(iter(limit))


def test_the_first_limit_that_is_reached_ends_a_run():
    budget = Budget(steps=100, tokens=50)
    assert budget.spent(**{**FAR, "steps": 99, "tokens": 50}) == "tokens"
    assert budget.spent(**{**FAR, "steps": 100, "tokens": 49}) == "steps"


def test_a_budget_needs_a_limit():
    with pytest.raises(ValueError, match=r"budget\.steps, epochs, tokens, minutes"):
        Budget()


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 0), ("steps", -3), ("epochs", 0.0), ("tokens", -1), ("minutes", -0.5)],
)
def test_a_limit_is_above_zero(name: str, value: Any):
    with pytest.raises(ValueError, match=rf"budget\.{name}={value}"):
        Budget(**{name: value})
