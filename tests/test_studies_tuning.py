"""What tuning chose goes into the text of a study, and nothing else of it changes."""

import pytest
import yaml

from normlab.studies.tuning import with_rates

TEXT = """\
scales:
  smoke:
    overrides: [task=toy]  # few
    seeds: [1, 2]
    tuning: one
  cpu:  # not tuned
    seeds: [1]
"""


def test_rates_that_are_there_are_changed_in_place():
    once = with_rates(TEXT, "smoke", {"ln": ["optim.lr=1e-3"]})
    noted = once.replace("[optim.lr=1e-3]\n", "[optim.lr=1e-3]  # why\n")
    twice = with_rates(noted, "smoke", {"ln": ["optim.lr=2e-3"], "bn, so @ a=1": ["optim.lr=1"]})
    assert "      ln: [optim.lr=2e-3]  # why\n" in twice
    assert yaml.safe_load(twice)["scales"]["smoke"]["rates"] == {
        "ln": ["optim.lr=2e-3"],
        "bn, so @ a=1": ["optim.lr=1"],
    }


def test_a_scale_within_braces_has_no_place_for_rates():
    with pytest.raises(ValueError, match="within braces"):
        with_rates("scales:\n  cpu: {seeds: [1]}\n", "cpu", {"ln": ["optim.lr=1"]})


@pytest.mark.parametrize("rates", ["rates: {ln: [optim.lr=1]}", "rates:\n      ln: [optim.lr=1]"])
def test_rates_are_taken_away_alone_and_all_together(rates):
    there = TEXT.replace("tuning:", f"{rates}\n    tuning:")
    assert with_rates(there, "smoke", {"ln": None}) == TEXT
    assert with_rates(TEXT, "smoke", {"ln": None}) == TEXT
    other = with_rates(there, "smoke", {"ln": None, "bn": ["optim.lr=2"]})
    assert yaml.safe_load(other)["scales"]["smoke"]["rates"] == {"bn": ["optim.lr=2"]}
