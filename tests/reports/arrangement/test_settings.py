"""The settings of experiments, and those in which they differ."""

from normlab.reports.arrangement.settings import differing_settings
from tests.reports.arrangement.test_row_names import settings


def test_labels_name_norms_placement_task_and_batch_and_a_dash_for_what_is_missing():
    label = settings(norm="bn", choices={"decoder_norm": "ln"}, batch_size=8).label
    assert (label.norms, label.batch) == (("bn", "ln"), "batch size 8")
    assert settings(batch_size=None, max_tokens=4096).label.batch == "4,096 tokens per batch"
    assert settings(batch_size=None, max_tokens=None).label.batch == "-"


def test_keys_that_repeat_others_and_keys_below_a_differing_option_are_left_out():
    rates = [settings(optim={"lr": rate}, schedule={"lr": rate}) for rate in (1e-3, 2e-3)]
    assert differing_settings(rates) == {"optim.lr": [1e-3, 2e-3]}
    sizes = [
        settings(choices={"model": name}, model={"dim": dim})
        for name, dim in (("tiny", 4), ("small", 8))
    ]
    assert differing_settings(sizes) == {"model": ["tiny", "small"]}
    assert differing_settings([settings(seed=1), settings(seed=2)]) == {}
