"""Rates in a study file are written and removed, and nothing else changes."""

import pytest
import yaml

from normlab.studies.rates_file import with_rates

RATES = """\
scales:
  smoke:
    overrides: [task=toy]  # few
    seeds: [1, 2]
    tuning: one
  small:  # not tuned
    seeds: [1]
"""


def test_rates_are_written_into_a_study_file_and_nothing_else_changes():
    once = with_rates(RATES, "smoke", {"ln": ["optim.lr=1e-3"]})
    twice = with_rates(once, "smoke", {"bn, so @ a=1": ["optim.lr=1"]})
    assert yaml.safe_load(twice)["scales"]["smoke"]["rates"]["bn, so @ a=1"] == ["optim.lr=1"]
    changed = with_rates(twice, "smoke", {"ln": ["optim.lr=2"]})
    assert yaml.safe_load(changed)["scales"]["smoke"]["rates"]["ln"] == ["optim.lr=2"]
    axes = "axes:\n  smoke:\n    few: []\n"  # another part of the file has a key of this name
    assert with_rates(axes + RATES, "smoke", {"ln": ["optim.lr=1e-3"]}) == axes + once
    with pytest.raises(ValueError, match=r"scales.small: write one key per line"):
        with_rates("scales:\n  small: {seeds: [1]}\n", "small", {})


def test_rates_are_written_into_a_study_file_with_another_indentation():
    text = RATES.replace("  ", "    ")
    changed = with_rates(text, "smoke", {"ln": ["optim.lr=1e-3"]})
    assert yaml.safe_load(changed)["scales"]["smoke"]["rates"] == {"ln": ["optim.lr=1e-3"]}
    assert with_rates(changed, "smoke", {"ln": None}) == text


@pytest.mark.parametrize("rates", ["rates: {ln: [optim.lr=1]}", "rates:\n      ln: [optim.lr=1]"])
def test_one_rate_or_all_rates_can_be_removed(rates):
    there = RATES.replace("tuning:", f"{rates}\n    tuning:")
    assert with_rates(there, "smoke", {"ln": None}) == RATES
    assert with_rates(RATES, "smoke", {"ln": None}) == RATES
    other = with_rates(there, "smoke", {"ln": None, "bn": ["optim.lr=2"]})
    assert yaml.safe_load(other)["scales"]["smoke"]["rates"] == {"bn": ["optim.lr=2"]}


COMMENTED = """\
scales:
  smoke:
    seeds: [1]
    rates:  # by hand
      # from another study
      ln: [optim.lr=1e-3]  # at the edge
      bn:
        - optim.lr=2e-3  # long ago
        - schedule.warmup=5
      rms: [optim.lr=3e-3,
        schedule.warmup=5]
      # the last row
      none: [optim.lr=4e-3]
    tuning: one
"""


def test_comments_and_the_lines_of_other_rows_stay():
    same = {"ln": ["optim.lr=1e-3"], "rms": ["optim.lr=3e-3", "schedule.warmup=5"]}
    assert with_rates(COMMENTED, "smoke", same) == COMMENTED
    lines = COMMENTED.splitlines(keepends=True)
    expected = [*lines[:5], lines[5].replace("1e-3", "9"), *lines[9:12], *lines[13:]]
    expected.insert(9, "      dyt: [optim.lr=8]\n")
    changes = {"ln": ["optim.lr=9"], "bn": None, "none": None, "dyt": ["optim.lr=8"]}
    assert with_rates(COMMENTED, "smoke", changes) == "".join(expected)
    joined = with_rates(COMMENTED, "smoke", {"rms": ["optim.lr=1"]})
    assert joined == "".join([*lines[:9], "      rms: [optim.lr=1]\n", *lines[11:]])
    empty = RATES.replace("    tuning: one", "    rates:\n    tuning: one")
    assert with_rates(empty, "smoke", {"ln": ["optim.lr=1"]}).count("rates") == 1
