"""The figures of a table by hand and by Student's tables; what it marks, and what it refuses."""

import math
from dataclasses import replace

import pytest

from normlab.reports.table import build
from tests.records.examples import SIGNATURE
from tests.reports.tables import made, planned, runs, study

BLEU = "test/bleu"
T_2 = 4.302652729911275  # two-sided 95 % quantile of Student's t at two degrees, from tables
T_1 = 12.706204736174698  # and at one


def table(values, **changes):
    return build(study(**changes), "smoke", runs(values))


def row(found, name, point=""):
    return next(row for row in found.rows if (row.name, row.point) == (name, point))


def entry(found, name, column=BLEU):
    return row(found, name).entries[column]


def test_means_and_deviations_by_hand():
    found = table({"ln": [30.0, 32.0, 34.0], "bn": [25.0]})
    summary = entry(found, "ln").summary
    assert (summary.mean, summary.sd, summary.n) == (32.0, 2.0, 3)
    assert entry(found, "bn").summary.sd is None
    assert row(found, "ln").outcome == "finished 3/3" and row(found, "ln").seeds == (1, 2, 3)
    assert found.title == "Translation (D0), scale=smoke"


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


def test_a_seed_that_one_side_lacks_is_left_out_of_the_difference():
    found = table({"ln": [30.0, 40.0, 50.0], "bn": [29.0, None, 47.0]})
    gap = entry(found, "bn").difference
    assert (gap.mean, gap.n) == (-2.0, 2)
    assert gap.high == pytest.approx(-2 + T_1 * math.sqrt(2) / math.sqrt(2))
    assert row(found, "bn").outcome == "finished 2/2, 1 not run"
    said = "bn: the difference to ln is paired over the seeds that both have: 1 3"
    assert said in found.notes
    assert not any(
        "both have" in note for note in table({"ln": [1.0, 2.0], "bn": [1.0, 3.0]}).notes
    )
    assert entry(found, "bn").summary.mean == 38.0


def test_one_common_seed_makes_no_difference():
    found = table({"ln": [30.0, None], "bn": [29.0, 38.0]})
    assert entry(found, "bn").difference is None
    said = "bn: the difference to ln is not made, which takes two of the seeds that both have: 1"
    assert said in found.notes
    apart = table({"ln": [30.0, None], "bn": [None, 38.0]})
    assert any(note.endswith("both have: none") for note in apart.notes)


def test_a_table_of_runs_that_all_diverged_says_so():
    lost = [(planned("ln", seed), made("ln", seed, status="diverged")) for seed in (1, 2)]
    found = build(study(), "smoke", lost)
    assert row(found, "ln").outcome == "diverged 2/2" and "no run has finished" in found.notes


def test_diverged_seeds_are_counted_and_their_scores_left_out():
    lost = made("bn", 3, {BLEU: 1.0}, status="diverged")
    made_of = [*runs({"ln": [30.0, 40.0, 50.0], "bn": [29.0, 38.0]}), (planned("bn", 3), lost)]
    found = build(study(), "smoke", made_of)
    assert row(found, "bn").outcome == "diverged 1/3"
    assert row(found, "bn").seeds == (1, 2, 3)
    assert entry(found, "bn").summary.mean == 33.5
    assert entry(found, "bn").difference.n == 2


def test_a_row_that_was_not_run_has_no_figures():
    found = table({"ln": [30.0], "bn": [None]})
    assert row(found, "bn").outcome == "no run" and entry(found, "bn").summary is None
    assert not any("no run" in note for note in found.notes)
    assert table({"ln": [None], "bn": [None]}).notes == ("no run has ended",)


def test_the_best_is_marked_only_where_it_is_better_than_every_other():
    clear = {"ln": [30.0, 30.1, 30.2], "bn": [20.0, 20.2, 20.1], "gn": [25.0, 25.1, 25.3]}
    marks = [entry(table(clear), name).best for name in ("ln", "bn", "gn")]
    assert marks == [True, False, False]
    close = {**clear, "gn": [29.0, 31.5, 30.0]}
    assert not any(entry(table(close), name).best for name in close)
    assert not entry(table({"ln": [30.0, 30.1]}), "ln").best  # than no other


def test_the_best_loss_is_the_lowest():
    losses = {"ln": [2.0, 2.1, 2.2], "bn": [3.0, 3.1, 3.25]}
    found = build(study(), "smoke", runs(losses, "valid/loss"))
    assert [entry(found, n, "valid/loss").best for n in ("ln", "bn")] == [True, False]


def test_a_row_of_which_a_seed_diverged_is_never_the_best():
    lost = made("bn", 3, {}, status="diverged")
    made_of = runs({"ln": [30.0, 30.1, 30.2], "bn": [40.0, 40.1]})
    found = build(study(), "smoke", [*made_of, (planned("bn", 3), lost)])
    assert entry(found, "bn").difference.low > 0
    assert not entry(found, "bn").best


def test_points_of_the_grid_stand_apart():
    made_of = [
        (planned(name, seed, point), made(name, seed, {BLEU: base + seed}, batch_size=size))
        for point, size, base in (("batch_size=8", 8, 10.0), ("batch_size=16", 16, 20.0))
        for name in ("ln", "bn")
        for seed in (1, 2)
    ]
    found = build(study(), "smoke", made_of)
    assert [(r.name, r.point) for r in found.rows] == [
        ("ln", "batch_size=8"),
        ("bn", "batch_size=8"),
        ("ln", "batch_size=16"),
        ("bn", "batch_size=16"),
    ]
    for point in ("batch_size=8", "batch_size=16"):
        assert row(found, "bn", point).entries[BLEU].difference.mean == 0.0


def test_seeds_that_must_not_be_averaged_are_refused_and_the_rest_is_shown():
    other = made("bn", 2, {BLEU: 38.0}, data={"checksums": {"train": "other"}})
    made_of = [*runs({"ln": [30.0, 40.0], "bn": [29.0]}), (planned("bn", 2), other)]
    found = build(study(), "smoke", made_of)
    assert row(found, "bn").outcome == "refused" and entry(found, "bn").summary is None
    assert "not comparable: data.checksums" in row(found, "bn").problem
    assert any(note.startswith("bn: toy-bn-pre") and "checksums" in note for note in found.notes)
    assert entry(found, "ln").summary.mean == 35.0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"signature": "tok:none"}, "test/bleu was computed in several ways"),
        ({"optim": {"lr": 1.0}}, "differ in optim.lr"),
        ({"environment": {"precision": "bf16"}}, "environment.precision"),
    ],
)
def test_seeds_of_unlike_making_are_refused_with_the_reason(changes, reason):
    other = made("bn", 2, {BLEU: 38.0}, **changes)
    made_of = [*runs({"ln": [30.0, 40.0], "bn": [29.0]}), (planned("bn", 2), other)]
    found = build(study(), "smoke", made_of)
    assert reason in row(found, "bn").problem
    assert entry(found, "ln").summary.mean == 35.0


def test_a_seed_twice_is_refused():
    twice = runs({"ln": [30.0]}) * 2
    assert "seed 1 is given twice" in row(build(study(), "smoke", twice), "ln").problem


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data": {"checksums": {"train": "other"}}}, "data.checksums"),
        ({"environment": {"world_size": 2}}, "environment.world_size is 2 and 1"),
        ({"environment": {"precision": "bf16"}}, "environment.precision"),
    ],
)
def test_rows_on_unlike_data_or_machines_are_not_subtracted(changes, reason):
    figures = {"ln": [30.0, 30.1, 30.2], "gn": [10.0, 10.1, 10.2]}
    bn = [(planned("bn", s), made("bn", s, {BLEU: 1.0 + s}, **changes)) for s in (1, 2, 3)]
    found = build(study(), "smoke", [*runs(figures), *bn])
    assert entry(found, "bn").summary.mean == 3.0 and entry(found, "bn").difference is None
    assert entry(found, "gn").difference is not None
    assert any(n.startswith("bn: not compared with ln") and reason in n for n in found.notes)
    assert not any(entry(found, name).best for name in ("ln", "bn", "gn"))


def test_a_precision_that_rows_declare_is_compared():
    changes = {"precision": "bf16", "environment": {"precision": "bf16"}}
    bn = [(planned("bn", s), made("bn", s, {BLEU: 1.0 + s}, **changes)) for s in (1, 2)]
    found = build(study(), "smoke", [*runs({"ln": [3.0, 4.0]}), *bn])
    assert entry(found, "bn").difference.mean == -1.0


def test_scores_computed_in_two_ways_are_not_subtracted():
    bn = [(planned("bn", s), made("bn", s, {BLEU: 1.0 + s}, signature="tok:none")) for s in (1, 2)]
    found = build(study(), "smoke", [*runs({"ln": [3.0, 4.0]}), *bn])
    assert entry(found, "bn").difference is None
    assert f"test/bleu (ln): {SIGNATURE}" in found.notes
    assert "test/bleu (bn): tok:none" in found.notes


def test_a_target_that_a_seed_never_reached_makes_no_difference():
    steps = "valid/steps_to/bleu_20"
    figures = {"ln": [100.0, 200.0], "bn": [300.0, math.inf]}
    found = build(study(columns=(steps,)), "smoke", runs(figures, steps))
    assert entry(found, "bn", steps).summary.mean == math.inf
    assert entry(found, "bn", steps).difference is None
    assert not entry(found, "ln", steps).best
    assert not entry(found, "ln", steps).higher_is_better


def test_what_the_document_says_stands_beside_it():
    figures = {"ln": {BLEU: 35.2}, "bn": {BLEU: "no convergence"}}
    found = table({"ln": [30.0], "bn": [None]}, figures=figures)
    assert entry(found, "ln").document == 35.2
    assert entry(found, "bn").document == "no convergence"
    assert any(note.startswith("document: what D0 says") for note in found.notes)
    assert not any("document" in note for note in table({"ln": [30.0]}).notes)


def test_notes_say_on_what_and_by_which_code():
    made_of = runs({"ln": [30.0]})
    where = {"device": "a CPU", "code": "abc"}
    other = made("bn", 1, {BLEU: 29.0}, data={"label": "toy"}, environment=where)
    notes = build(study(), "smoke", [*made_of, (planned("bn", 1), other)]).notes
    assert notes[0] == "data: None, toy; fp32 on None, a CPU; 100 updates"
    assert "the runs were made by 2 states of the code" in notes
    assert f"test/bleu: {SIGNATURE}" in notes


def test_many_lengths_of_runs_are_a_range():
    made_of = []
    for n, name in enumerate(("ln", "bn", "gn", "in"), 1):
        record = made(name, 1, {BLEU: 1.0})
        record = replace(record, budget=replace(record.budget, steps=1000 * n))
        made_of.append((planned(name, 1), record))
    assert build(study(), "smoke", made_of).notes[0].endswith("1,000 to 4,000 updates")
