"""A row compared with the baseline: a paired difference, or the reason why there is none."""

import math
from typing import Any

import pytest

from normlab.records.pairs import UNPLANNED, Experiment
from normlab.reports.tables.comparison import Comparison
from tests.records.examples import record


def cell(*bleus, first=1, **changes):
    """Return a row with seeds 1, 2, ..."""
    return Experiment.of([record(seed=first + n, bleu=b, **changes) for n, b in enumerate(bleus)])


def compare(row, baseline):
    return Comparison.of(row, baseline, UNPLANNED).interval("test/bleu")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data": {"checksums": {"train": "other"}}}, "different data (checksums)"),
        ({"environment": {"world_size": 2}}, "different numbers of processes"),
        ({"environment": {"precision": "bf16"}}, "different arithmetic ("),
        ({"environment": {"precision": "bf16"}, "numerics": "b"}, "different code (seeds 1 2)"),
        ({"first": 3}, "no seed finished on both sides (3 4; 1 2)"),
        ({"status": "diverged"}, "seeds diverged: 2 of 2 of the row"),
        ({"budget": {"steps": 150}}, "budget.steps 150, the baseline's 200"),
        ({"validate": {"average": 5}}, "validate.average 5, the baseline's 0"),
        ({"signature": "tok:none"}, ""),
        ({"bleus": (math.inf, 25.0)}, ""),
    ],
)
def test_incomparable_rows_have_a_reason_instead_of_a_difference(changes, reason):
    usual = {"budget": {"steps": 200}, "validate": {"average": 0}}
    bleus = changes.get("bleus", (25.0, 26.0))
    others = {name: value for name, value in changes.items() if name != "bleus"}
    row, base = cell(*bleus, norm="bn", **{**usual, **others}), cell(30.0, 32.0, **usual)
    assert compare(row, base) is None
    said = Comparison.of(row, base, UNPLANNED).obstacle
    assert said.startswith(reason) if reason else said == ""


def test_only_seeds_with_the_same_code_and_arithmetic_are_paired():
    other: dict[str, Any] = {"numerics": "b"}
    elsewhere: dict[str, Any] = {"environment": {"device_type": "cuda"}}
    scores = [(25.0, {}), (90.0, other), (26.0, {}), (90.0, other), (90.0, elsewhere)]
    row = Experiment.of(
        record(seed=seed, bleu=bleu, norm="bn", **changes)
        for seed, (bleu, changes) in enumerate(scores, 1)
    )
    base = cell(30.0, 31.0, 32.0, 33.0, 34.0)
    compared = Comparison.of(row, base, UNPLANNED)
    assert (compared.seeds, compared.obstacle) == ([1, 3], "")
    found = compare(row, base)
    assert found is not None and (found.mean, found.n) == (-5.5, 2)


def test_rows_that_differ_only_in_steps_are_compared():
    base = cell(1.0, 2.0, budget={"steps": 200})
    shorter = cell(1.5, 1.5, budget={"steps": 150})
    found = compare(shorter, base)
    assert found is not None and found.mean == 0.0
