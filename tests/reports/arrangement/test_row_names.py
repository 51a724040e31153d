"""The names of rows."""

from normlab.records.record import parts
from normlab.reports.arrangement.row_names import RowName, row_names, rows_called
from normlab.reports.arrangement.settings import Settings
from tests.records.examples import config


def settings(**changes):
    """Return the settings of an example config."""
    node = config(**changes)
    return Settings(node, parts(node))


def test_a_setting_in_which_all_differ_is_in_every_name_and_an_unset_limit_in_none():
    budgets = [{"steps": None, "tokens": 12000}, {"steps": 6, "tokens": None}]
    names = row_names([settings(budget=each) for each in budgets])
    assert [each.text for each in names] == ["ln, 12,000 tokens", "ln, 6 steps"]


def test_a_name_has_the_norms_of_each_stack_the_placement_and_what_differs():
    experiments = [
        settings(norm="ln"),
        settings(norm="ln", choices={"placement": "post"}),
        settings(norm="bn", choices={"decoder_norm": "ln"}, optim={"lr": 0.002}),
    ]
    first, post, mixed = row_names(experiments)
    assert (first.norms, first.text) == (("ln",), "ln pre, learning rate 0.0005")
    assert post.where == " post" and post.keys == ("optim.lr",)
    assert mixed.norms == ("bn", "ln") and mixed.settings == ("learning rate 0.002",)
    assert mixed.text == "bn+ln pre, learning rate 0.002"
    assert mixed.in_sentence == "bn+ln pre (learning rate 0.002)"


def test_a_word_refers_to_the_row_with_this_name_or_to_all_rows_with_this_norm():
    plain, wide = RowName(("bn",)), RowName(("bn",), settings=("width 8",))
    mixed = RowName(("bn", "ln"))
    assert rows_called("bn", [wide, mixed, plain]) == [plain], "a name comes before norms"
    assert rows_called("bn", [wide, mixed]) == [wide]
    assert rows_called("bn+ln", [wide, mixed]) == [mixed]
    assert rows_called("ln", [wide, mixed]) == []
