"""Which experiments share a table."""

from normlab.reports.arrangement.recipes import recipes
from normlab.reports.arrangement.row_names import row_names
from tests.reports.arrangement.test_row_names import settings


def test_recipes_with_different_budget_limits_are_named_by_their_limit():
    budgets = [{"steps": None, "tokens": 12000}, {"steps": 6, "tokens": None}]
    experiments = [settings(norm=norm, budget=each) for each in budgets for norm in ("ln", "bn")]
    assert [each.text for each in recipes(experiments)] == ["12,000 tokens", "6 steps"]
    names = row_names([settings(budget=each) for each in budgets])
    assert [each.text for each in names] == ["ln, 12,000 tokens", "ln, 6 steps"]


def test_a_task_is_a_recipe_of_its_own_and_a_grid_of_sizes_is_one_recipe():
    tasks = [settings(choices={"task": task}) for task in ("toy", "lm")]
    assert [each.members for each in recipes(tasks)] == [[0], [1]]
    grid = [settings(norm=norm, model={"depth": n}) for norm in ("ln", "bn") for n in (2, 4)]
    assert [each.text for each in recipes(grid)] == [""]


def test_a_setting_separates_recipes_only_if_each_has_several_experiments():
    budgets = [settings(budget={"steps": steps}) for steps in (6, 12)]
    assert [each.members for each in recipes(budgets)] == [[0, 1]]
