"""Readable names of settings, values and points."""

import pytest

from normlab.reports.setting_names import phrase, point_name, setting_with_values


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("budget.steps", 3000, "3,000 steps"),
        ("budget.steps", 1, "1 step"),
        ("batch_size", 32, "batch size 32"),
        ("optim.lr", 1e-3, "learning rate 0.001"),
        ("precision", "bf16", "bf16"),
        ("norm.padding", "exclude", "padding excluded"),
        ("norm.affine", False, "without gain"),
        ("model", "small", "model small"),
        ("task.size", 12000, "task.size=12000"),
        ("clip.norm", None, "clip.norm=null"),
    ],
)
def test_a_setting_is_named_with_its_value_and_other_keys_are_shown_as_typed(key, value, text):
    assert phrase(key, value) == text


def test_a_point_is_named_by_its_settings_or_by_the_users_names():
    assert point_name("batch_size=8 placement=pre") == "batch size 8, placement pre"
    assert point_name("batch_size=8", {"batch_size": "B"}) == "B 8"
    assert point_name("") == ""
    assert setting_with_values("budget.steps", "60 and 300") == "60 and 300 steps"
    assert setting_with_values("batch_size", "8 to 32") == "batch size 8 to 32"
