"""The names of rows and of recipes."""

from normlab.reports.arrangement.recipes import recipes
from normlab.reports.arrangement.row_names import RowName, names
from tests.records.examples import config


def test_recipes_with_different_budget_limits_are_named_by_their_limit():
    budgets = [{"steps": None, "tokens": 12000}, {"steps": 6, "tokens": None}]
    configs = [config(norm=norm, budget=each) for each in budgets for norm in ("ln", "bn")]
    assert [each.text for each in recipes(configs)] == ["12,000 tokens", "6 steps"]
    configs = [config(budget=each) for each in budgets]
    assert [each.text for each in names(configs)] == ["ln, 12,000 tokens", "ln, 6 steps"]


def test_a_name_has_the_norms_of_each_stack_the_placement_and_what_differs():
    configs = [
        config(norm="ln"),
        config(norm="ln", choices={"placement": "post"}),
        config(norm="bn", choices={"decoder_norm": "ln"}, optim={"lr": 0.002}),
    ]
    first, post, mixed = names(configs)
    assert (first.norms, first.text) == (("ln",), "ln pre, learning rate 0.0005")
    assert post.where == " post" and post.keys == ("optim.lr",)
    assert mixed.norms == ("bn", "ln") and mixed.settings == ("learning rate 0.002",)
    assert mixed.text == "bn+ln pre, learning rate 0.002"
    assert mixed.in_sentence == "bn+ln pre (learning rate 0.002)"


def test_a_planned_row_has_norms_if_its_first_word_consists_of_options():
    counted, words = RowName.planned("bn+ln pre, padding counted"), RowName.planned("pictures, all")
    assert (counted.norms, counted.where) == (("bn", "ln"), " pre")
    assert counted.in_sentence == "bn+ln pre (padding counted)"
    assert (words.norms, words.text, words.in_sentence) == ((), "pictures, all", "pictures (all)")
