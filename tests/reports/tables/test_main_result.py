"""What a table answers, as values: stretches along an axis, counts of points, and single rows."""

import pytest

from normlab.reports.tables.main_result import (
    BestAndWorst,
    Comparisons,
    NothingLearned,
    main_result,
)
from normlab.reports.tables.standing import Standing
from tests.reports.handmade import SIZES, sweep


def rows_of(table):
    finding = main_result(table).finding
    assert isinstance(finding, Comparisons) and finding.others == 0
    return finding.rows


def test_neighbouring_points_with_the_same_standing_are_one_stretch():
    first_published_last = dict(sorted(SIZES.items(), key=lambda each: each[0][1]))
    for sizes in (SIZES, first_published_last):
        (row,) = rows_of(sweep(sizes))
        assert not row.by_count and row.name.text == "bn"
        points = [(each.standing, [d.point for d in each.differences]) for each in row.stretches]
        assert points == [
            (Standing.BELOW, ["batch_size=8", "batch_size=32"]),
            (Standing.OPEN, ["batch_size=128"]),
        ]


def test_the_points_of_a_row_with_many_stretches_are_counted():
    levels = {("ln", str(size)): 30.0 for size in range(6)}
    levels |= {("bn", str(size)): 28.0 + 4.0 * (size % 2) for size in range(6)}
    (row,) = rows_of(sweep(levels))
    assert row.by_count
    assert {each.standing: len(each.differences) for each in row.stretches} == {
        Standing.BELOW: 3,
        Standing.ABOVE: 3,
    }


@pytest.mark.parametrize(("score", "best"), [("test/bleu", "128"), ("test/loss", "8")])
def test_a_single_row_has_its_best_and_worst_point_by_the_direction_of_the_score(score, best):
    alone = {key: level for key, level in SIZES.items() if key[0] == "bn"}
    finding = main_result(sweep(alone, score=score, column=(score,))).finding
    assert isinstance(finding, BestAndWorst)
    assert finding.best[0] == f"batch_size={best}"


def test_nothing_is_compared_if_no_row_beats_the_untrained_baseline():
    assert main_result(sweep(SIZES, floor=31.0)).finding == NothingLearned()
