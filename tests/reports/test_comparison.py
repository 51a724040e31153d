"""A row compared with the baseline: a paired difference, or the reason why there is none."""

import math
import re
from typing import Any

import pytest
from msgspec.structs import replace

from normlab.commands._comparison import Row, best_first, choose_baseline
from normlab.records.aggregate import Cell
from normlab.records.record import Score
from normlab.reports.comparison import COMPARE, beyond_names, difference, obstacles
from tests.records.examples import record

SCORE = "test/bleu"


def cell(*bleus, first=1, **changes):
    """Return a row with seeds from the first on."""
    return Cell.of([record(seed=first + n, bleu=b, **changes) for n, b in enumerate(bleus)])


def compare(row, baseline):
    return difference(row, baseline, SCORE, rules=COMPARE)


def with_score(row, name, value):
    score = {name: Score(value, name != "valid/loss", 1)}
    return Cell.of([replace(each, scores={**each.scores, **score}) for each in row.records])


def test_the_difference_is_paired_by_seed_with_its_t_interval():
    found = compare(cell(25.0, 26.0, norm="bn"), cell(30.0, 32.0, 40.0, norm="ln"))
    # Gaps -5 and -6: sd 0.7071, t of one degree 12.7062, half of the interval 6.3531.
    assert found.mean == -5.5 and found.pairs == (1, 2) and found.reason is None
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((-11.8531, 0.8531), abs=1e-4)


def test_one_pair_has_a_difference_and_no_interval():
    found = compare(cell(25.0, norm="bn"), cell(30.0, norm="ln"))
    assert (found.mean, found.interval, found.pairs) == (-5.0, None, (1,))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data": {"checksums": {"train": "other"}}}, r"different data \(checksums\)"),
        ({"environment": {"world_size": 2}}, "^different numbers of processes"),
        ({"numerics": "b"}, "different code"),
        ({"environment": {"precision": "bf16"}}, r"^different arithmetic \(.*\) \(seeds 1 2\)$"),
        (
            {"environment": {"precision": "bf16"}, "numerics": "b"},
            r"^different code \(seeds 1 2\)$",
        ),
        ({"first": 3}, r"no seed in common that finished \(3 4; 1 2\)"),
        ({"status": "diverged"}, "seeds diverged: 2 of 2 of the row"),
        ({"signature": "tok:none"}, "test/bleu was scored in different ways"),
        ({"bleus": (math.inf, 25.0)}, "test/bleu is not finite"),
    ],
)
def test_runs_that_are_not_alike_are_not_paired_and_the_reason_is_said(changes, reason):
    usual = {"budget": {"steps": 200}, "validate": {"average": 0}}
    bleus = changes.get("bleus", (25.0, 26.0))
    others = {name: value for name, value in changes.items() if name != "bleus"}
    row = cell(*bleus, norm="bn", **{**usual, **others})
    found = compare(row, cell(30.0, 32.0, **usual))
    assert (found.mean, found.interval) == (None, None)
    assert re.search(reason, found.reason)


def test_seeds_of_unlike_code_or_arithmetic_are_left_out_and_the_others_pair():
    other: dict[str, Any] = {"numerics": "b"}
    elsewhere: dict[str, Any] = {"environment": {"device_type": "cuda"}}
    scores = [(25.0, {}), (90.0, other), (26.0, {}), (90.0, other), (90.0, elsewhere)]
    row = Cell.of(
        record(seed=seed, bleu=bleu, norm="bn", **changes)
        for seed, (bleu, changes) in enumerate(scores, 1)
    )
    found = compare(row, cell(30.0, 31.0, 32.0, 33.0, 34.0))
    assert (found.mean, found.pairs, found.reason) == (-5.5, (1, 3), None)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((-11.8531, 0.8531), abs=1e-4)
    assert found.left_out.pop("different code") == [2, 4]
    assert list(found.left_out.values()) == [[5]]


def test_other_settings_are_named_once():
    changes = {"optim": {"lr": 1e-3}, "schedule": {"lr": 1e-3}, "norm": "bn"}
    usual = {"optim": {"lr": 5e-4}, "schedule": {"lr": 5e-4}}
    found = beyond_names(cell(25.0, 26.0, **changes), cell(30.0, 32.0, **usual))
    assert found == {"optim.lr": (1e-3, 5e-4)} and not obstacles(found)
    other = cell(1.0, choices={"model": "small"}, model={"dim": 8, "heads": 2}, norm="bn")
    assert beyond_names(other, cell(1.0, model={"dim": 4, "heads": 1})) == {
        "model": ("small", "tiny")
    }


def test_rows_of_different_lengths_or_tests_have_no_difference():
    usual = {"budget": {"steps": 200}, "validate": {"average": 0}}
    base = cell(1.0, **usual)
    shorter = cell(1.0, norm="bn", **{**usual, "budget": {"steps": 150}})
    averaged = cell(1.0, norm="bn", **{**usual, "validate": {"average": 5}})
    assert obstacles(beyond_names(shorter, base)) == ["budget.steps 150, the baseline's 200"]
    assert obstacles(beyond_names(averaged, base)) == ["validate.average 5, the baseline's 0"]
    same_name = cell(1.0, **{**usual, "budget": {"steps": 150}})
    assert beyond_names(same_name, base) == {}, "what sets the rows apart is what is compared"


def row(cell, label=""):
    return Row(cell, (), "", label)


def test_rows_are_sorted_best_first_in_the_direction_of_the_score():
    low, high, none = (
        cell(bleu, norm=name) for bleu, name in ((1.0, "a"), (2.0, "b"), (None, "c"))
    )
    found = best_first([row(none), row(low), row(high)], SCORE)
    assert [each.cell for each in found] == [high, low, none]
    losses = [with_score(each, "valid/loss", loss) for each, loss in ((high, 4.0), (low, 3.0))]
    assert [each.cell.norm for each in best_first(list(map(row, losses)), "valid/loss")] == [
        "a",
        "b",
    ]


def test_the_baseline_is_layer_norm_else_the_best_or_the_one_asked_for():
    best, ln, other = (
        row(cell(9.0, norm="rms"), "rms 32"),
        row(cell(8.0, norm="ln"), "ln 32"),
        row(cell(7.0, norm="ln", batch_size=8), "ln 8"),
    )
    rows = [other, best, ln]
    assert choose_baseline(rows, SCORE, None) is ln
    assert choose_baseline([best], SCORE, None) is best
    assert choose_baseline(rows, SCORE, "rms") is best
    assert choose_baseline(rows, SCORE, "8 ln") is other
    with pytest.raises(ValueError, match="--baseline ln: fits 2 rows: 'ln 32', 'ln 8'"):
        choose_baseline(rows, SCORE, "ln")
