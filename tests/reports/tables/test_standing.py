"""How a row compares with the baseline at a point."""

import math

import pytest
from msgspec.structs import replace

from normlab.records.record import Outcome
from normlab.reports.tables.standing import Standing, main_score, point_difference
from tests.reports.handmade import BLEU, build, made, noisy, row, run, runs, study, table
from tests.reports.handmade import entry as entry_of


@pytest.mark.parametrize(
    ("low", "high", "standing"),
    [(0.1, 0.5, Standing.ABOVE), (-0.5, -0.1, Standing.BELOW), (-0.1, 0.5, Standing.OPEN)],
)
def test_a_row_is_above_or_below_only_if_the_interval_excludes_zero(low, high, standing):
    assert Standing.of(low, high) is standing and standing.is_compared


def test_a_single_pair_of_seeds_is_above_or_below_by_its_bare_difference():
    of = table({"ln": [30.0], "bn": [28.0]})
    difference = point_difference(row(of, "bn"), row(of, "ln"), BLEU)
    assert (difference.standing, difference.gap) == (Standing.BELOW, -2.0)
    assert difference.interval is None
    of = table(noisy(30.0, 20.0))
    several = point_difference(row(of, "bn"), row(of, "ln"), BLEU)
    assert several.standing is Standing.BELOW and several.interval is not None


def test_several_seeds_with_the_same_difference_have_no_interval_and_show_nothing():
    of = table({"ln": [30.0, 30.5, 30.2, 30.1, 30.4], "bn": [29.5, 30.0, 29.7, 29.6, 29.9]})
    difference, entry = point_difference(row(of, "bn"), row(of, "ln"), BLEU), entry_of(of, "bn")
    assert (difference.standing, difference.interval) == (Standing.OPEN, None)
    assert (entry.p, entry.difference, entry.best) == (None, None, False)
    assert entry.gap == "-0.50" and not entry_of(of, "ln").best


def test_a_row_with_a_diverged_seed_or_without_a_baseline_is_not_compared():
    diverged = replace(made("bn", 2), outcome=Outcome("diverged", 5))
    of = build(study(), [*runs({"ln": [30.0, 31.0], "bn": [28.0]}), run(diverged, "bn", 2)])
    assert point_difference(row(of, "bn"), row(of, "ln"), BLEU).standing is Standing.DIVERGED
    of = table({"ln": [30.0], "bn": [28.0]})
    assert point_difference(row(of, "bn"), None, BLEU).standing is Standing.UNKNOWN


def test_a_row_with_a_score_that_is_not_finite_is_not_compared_and_not_near_the_baseline():
    levels = {"ln": [30.0, 31.0], "bn": [28.0, math.nan]}
    made_of = [
        run(replace(made(name, seed, {BLEU: value}), floors={"bleu": 3.0}), name, seed)
        for name, values in levels.items()
        for seed, value in enumerate(values, 1)
    ]
    of = build(study(), made_of)
    assert point_difference(row(of, "bn"), row(of, "ln"), BLEU).standing is Standing.NOT_FINITE
    assert point_difference(row(of, "ln"), row(of, "bn"), BLEU).standing is Standing.NOT_FINITE
    assert "bn is not compared (not every seed has a finite score)" in of.answer
    assert not any("near the untrained baseline" in note.brief for note in of.notes)


def test_the_main_score_is_the_first_column_that_a_row_has():
    columns = ("stability/spikes/count", "test/chrf", BLEU)
    assert main_score(build(study(columns=columns), runs({"ln": [30.0]}))) == BLEU
    assert main_score(build(study(columns=("test/chrf",)), runs({"ln": [30.0]}))) is None
