"""Table values, checked by hand and against Student's tables, and refused runs."""

import math

import pytest

from normlab.reports.legend import Note
from tests.reports.handmade import BLEU, build, entry, made, note_of, row, run, runs, study, table

T_2 = 4.302652729911275  # two-sided 95 % quantile of Student's t at two degrees, from tables

T_1 = 12.706204736174698  # and at one


def test_differences_are_paired_by_seed():
    # -1, -2, -3: mean -2, sd 1, whatever the seeds share.
    found = table({"ln": [30.0, 40.0, 50.0], "bn": [29.0, 38.0, 47.0]})
    gap = entry(found, "bn").difference
    half = T_2 / math.sqrt(3)
    assert (gap.mean, gap.sd, gap.n) == pytest.approx((-2.0, 1.0, 3))
    assert (gap.low, gap.high) == pytest.approx((-2 - half, -2 + half))
    # t = -2 sqrt(3) at two degrees, whose distribution has the closed form t / sqrt(2 + t^2).
    assert entry(found, "bn").p == pytest.approx(1 - math.sqrt(12 / 14))
    assert entry(found, "ln").difference is None and entry(found, "ln").p is None
    assert entry(found, "bn").gap == "-2.00 [-4.48, +0.48], p = 0.074"
    assert note_of(found, "differences:") == ""


def test_a_row_with_the_same_values_as_the_baseline_has_no_p_value():
    bn = entry(table({"ln": [0.0, 0.0, 0.0], "bn": [0.0, 0.0, 0.0]}), "bn")
    assert (bn.difference, bn.p, bn.bare, bn.gap) == (None, None, 0.0, "")


def test_a_seed_missing_on_one_side_is_left_out_of_the_difference():
    found = table({"ln": [30.0, 40.0, 50.0], "bn": [29.0, None, 47.0]})
    gap = entry(found, "bn").difference
    assert (gap.mean, gap.n) == (-2.0, 2)
    assert gap.high == pytest.approx(-2 + T_1 * math.sqrt(2) / math.sqrt(2))
    assert row(found, "bn").outcome == "finished 2/2, 1 not run"
    assert "only seeds 1 3 are pairs (bn)" in note_of(found, "differences:")
    assert entry(found, "bn").summary.mean == 38.0


def test_a_single_pair_has_no_difference_and_a_table_without_runs_says_so():
    one = table({"ln": [30.0, None], "bn": [29.0, 38.0]})
    assert entry(one, "bn").difference is None
    assert table({"ln": [None], "bn": [None]}).notes == (Note("no run has ended"),)


def test_a_row_with_a_diverged_seed_counts_it_and_is_not_compared():
    lost = run(made("bn", 3, {BLEU: 1.0}, status="diverged", spikes=9.0), "bn", 3)
    found = build(study(), [*runs({"ln": [30.0, 40.0, 50.0], "bn": [29.0, 38.0]}), lost])
    assert (
        row(found, "bn").outcome == "diverged 1/3" and len(row(found, "bn").experiment.records) == 3
    )
    assert row(found, "bn").stability == "diverged 1/3; median spikes 0"
    assert entry(found, "bn").summary.mean == 33.5 and entry(found, "bn").difference is None
    said = "not compared with ln, seeds diverged: 1 of 3 of the row; the others are not a fair"
    assert said in note_of(found, "differences:")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data": {"checksums": {"train": "other"}}}, "not comparable: data.checksums"),
        ({"signature": "tok:none"}, "test/bleu was computed in several ways"),
        ({"optim": {"lr": 1.0}}, "differ in optim.lr"),
        ({"seed": 1}, "has seed 1 twice"),
    ],
)
def test_seeds_that_must_not_be_averaged_are_refused_and_other_rows_are_shown(changes, reason):
    other = made("bn", **{"seed": 2, "scores": {BLEU: 38.0}, **changes})
    made_of = [*runs({"ln": [30.0, 40.0], "bn": [29.0]}), run(other, "bn", other.seed)]
    found = build(study(), made_of)
    assert row(found, "bn").outcome == "refused" and entry(found, "bn").summary is None
    assert reason in row(found, "bn").problem and reason in note_of(found, "bn: ")
    assert entry(found, "ln").summary.mean == 35.0


def test_rows_with_different_precisions_are_compared_only_if_they_declare_them():
    changes = {"precision": "bf16", "environment": {"precision": "bf16"}}
    bn = [run(made("bn", s, {BLEU: 1.0 + s}, **changes), "bn", s) for s in (1, 2)]
    rows = {"ln": ("norm=ln", "precision=fp32"), "bn": ("norm=ln", "precision=bf16")}
    found = build(study(rows=rows), [*runs({"ln": [3.0, 4.0]}), *bn])
    assert entry(found, "bn").bare == -1.0
    undeclared = build(study(), [*runs({"ln": [3.0, 4.0]}), *bn])
    assert entry(undeclared, "bn").bare is None
