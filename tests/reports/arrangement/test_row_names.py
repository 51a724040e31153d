"""Recipes: the experiments of one table, and their names."""

from normlab.reports.arrangement.recipes import recipes
from normlab.reports.arrangement.row_names import names
from tests.records.examples import config


def test_recipes_with_different_budget_limits_are_named_by_their_limit():
    budgets = [{"steps": None, "tokens": 12000}, {"steps": 6, "tokens": None}]
    configs = [config(norm=norm, budget=each) for each in budgets for norm in ("ln", "bn")]
    assert [each.text for each in recipes(configs)] == ["12,000 tokens", "6 steps"]
    configs = [config(budget=each) for each in budgets]
    assert [each.text for each in names(configs)] == ["ln, 12,000 tokens", "ln, 6 steps"]
