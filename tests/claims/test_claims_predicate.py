"""Comparisons say of made-up records what can be worked out by hand."""

import math

import pytest

from normlab.claims.evidence import judge
from normlab.claims.predicate import Ending, Level, Paired
from normlab.claims.runs import Runs
from normlab.records.record import Score
from tests.records.examples import record

LN_OVER_BN = Paired("test/bleu", {"norm": "ln"}, {"norm": "bn"}, {}, 0.0, (), None, True)


def seeds(norm, values, **changes):
    return [record(seed=k, norm=norm, bleu=float(v), **changes) for k, v in enumerate(values, 1)]


def with_scores(kept, **scores):
    """Return a record with other scores, given by name with `__` for the slash."""
    for name, (value, higher) in scores.items():
        kept.scores[name.replace("__", "/")] = Score(value, higher, 10)
    return kept


def found(comparison, *records):
    return comparison.evidence(Runs(records))


def one(comparison, *records):
    (piece,) = found(comparison, *records)
    return piece


def paired(first, second, name="test/bleu", margin=0.0, by_score=True, where=None, besides=()):
    return Paired(name, first, second, where or {}, float(margin), tuple(besides), None, by_score)


def test_a_difference_beyond_zero_supports_and_the_other_way_contradicts():
    ln, bn = seeds("ln", [36.65, 37.06, 36.78]), seeds("bn", [34.46, 34.28, 34.94])
    piece = one(LN_OVER_BN, *ln, *bn)
    assert piece.standing == "supports" and piece.n == 3
    # Differences 2.19, 2.78, 1.84: mean 2.27, sd 0.475, half width 4.303 x 0.475 / sqrt(3) = 1.18.
    assert piece.finding == "2.27 [1.09, 3.45] (36.8 against 34.6)"
    assert piece.numbers["mean"] == pytest.approx(2.27)
    assert (piece.task, piece.scale, piece.setting) == ("toy", None, "pre")
    assert piece.records == tuple(kept.run_id for kept in (*ln, *bn))
    other = paired({"norm": "bn"}, {"norm": "ln"})
    assert one(other, *ln, *bn).standing == "contradicts"


def test_an_interval_over_the_margin_is_undecided():
    records = seeds("ln", [36.65, 37.06, 36.78]) + seeds("bn", [34.05, 33.95, 30.47])
    assert one(LN_OVER_BN, *records).standing == "undecided"


def test_the_margin_asks_for_a_size_and_below_zero_for_hardly_worse():
    records = seeds("ln", [30.0, 31.0, 32.0]) + seeds("bn", [28.0, 29.1, 29.9])
    sides = {"norm": "ln"}, {"norm": "bn"}
    assert one(paired(*sides, margin=1), *records).standing == "supports"
    assert one(paired(*sides, margin=6.5), *records).standing == "contradicts"
    equal = seeds("rms", [29.9, 31.1, 32.0]) + records[:3]
    assert one(paired({"norm": "rms"}, {"norm": "ln"}), *equal).standing == "undecided"
    assert one(paired({"norm": "rms"}, {"norm": "ln"}, margin=-0.5), *equal).standing == "supports"


def test_the_direction_is_the_scores_own():
    def losses(norm, values):
        return [with_scores(r, valid__loss=(r.scores["test/bleu"].value, False)) for r in values]

    records = losses("ln", seeds("ln", [2.9, 2.91, 2.92]))
    records += losses("bn", seeds("bn", [3.7, 3.62, 3.5]))
    piece = one(paired({"norm": "ln"}, {"norm": "bn"}, "valid/loss"), *records)
    assert piece.standing == "supports" and piece.numbers["mean"] > 0


def test_a_measure_has_the_direction_of_its_keys():
    records = [
        record(seed=seed, norm=norm, spikes=spikes + seed / 10)
        for norm, spikes in (("ln", 0.0), ("bn", 3.0))
        for seed in (1, 2, 3)
    ]
    more = paired({"norm": "bn"}, {"norm": "ln"}, "stability/spikes/count", by_score=False)
    assert one(more, *records).standing == "supports"


def test_too_few_common_seeds_decide_nothing():
    ln = seeds("ln", [36.0, 37.0, 36.5, 36.1])
    bn = [record(seed=k, norm="bn", bleu=20.0) for k in (3, 4, 5)]
    piece = one(LN_OVER_BN, *ln, *bn)
    assert (piece.standing, piece.n, piece.finding) == ("too few seeds", 2, "36.3 against 20.0")
    assert not piece.measured


def test_a_diverged_seed_has_no_score_and_is_told():
    bn = seeds("bn", [20.0, 20.5, 20.2])
    gone = record(seed=4, norm="bn", bleu=1.0, status="diverged")
    piece = one(LN_OVER_BN, *seeds("ln", [30, 31, 32, 33]), *bn, gone)
    assert piece.n == 3 and piece.finding.endswith("; norm=bn diverged 1/4")


def test_settings_of_a_task_without_the_score_are_left_out_and_diverged_ones_are_not():
    other = [record(seed=k, norm=n, bleu=None) for n in ("ln", "bn") for k in (1, 2, 3)]
    assert one(LN_OVER_BN, *other).standing == "no records"
    gone = [record(seed=k, norm="bn", bleu=None, status="diverged") for k in (1, 2, 3)]
    piece = one(LN_OVER_BN, *seeds("ln", [30, 31, 32]), *gone)
    assert piece.standing == "too few seeds"
    assert piece.finding == "no common seed; norm=bn diverged 3/3"


def test_settings_are_compared_one_by_one_where_all_else_is_equal():
    def setting(norm, lr, values):
        return seeds(norm, values, optim={"lr": lr})

    records = setting("ln", 0.1, [30, 31, 32]) + setting("bn", 0.1, [20, 21, 22.5])
    records += setting("ln", 0.2, [10, 11, 12]) + setting("bn", 0.2, [20, 21, 22.5])
    records += setting("bn", 0.3, [1, 2, 3])  # no partner
    pieces = found(LN_OVER_BN, *records)
    assert [(p.standing, p.setting) for p in pieces] == [
        ("supports", "pre optim.lr=0.1"),
        ("contradicts", "pre optim.lr=0.2"),
    ]


def test_what_may_differ_besides_is_named():
    def of(size, steps, values):
        return seeds("bn", values, batch_size=size, budget={"steps": steps})

    records = of(8, 1000, [20, 21, 22]) + of(128, 100, [30, 31, 32.5])
    sides = {"batch_size": 128}, {"batch_size": 8}
    assert one(paired(*sides), *records).standing == "no records"
    assert one(paired(*sides, besides=["budget"]), *records).standing == "supports"


def test_no_runs_are_said():
    assert one(LN_OVER_BN).finding == "no runs with norm=ln or norm=bn"
    assert one(LN_OVER_BN, *seeds("ln", [30, 31, 32])).finding == "no runs with norm=bn"
    where = paired({"norm": "ln"}, {"norm": "bn"}, where={"task.unheard": 3})
    piece = one(where, *seeds("ln", [30, 31, 32]))
    assert piece.standing == "no records" and piece.question.endswith("where task.unheard=3")


def test_runs_on_other_data_or_scored_otherwise_are_not_compared():
    ln = seeds("ln", [30, 31, 32])
    other = seeds("bn", [20, 21, 22], data={"checksums": {"train": "xyz"}})
    piece = one(LN_OVER_BN, *ln, *other)
    assert piece.standing == "not comparable" and "data.checksums" in piece.finding
    scored = seeds("bn", [20, 21, 22], signature="other")
    assert "computed in several ways" in one(LN_OVER_BN, *ln, *scored).finding


def test_seeds_that_cannot_be_joined_are_refused_and_the_rest_stands():
    odd = record(seed=4, norm="bn", bleu=0.0, params=7)
    pieces = found(
        LN_OVER_BN,
        *seeds("ln", [30, 31, 32]),
        *seeds("bn", [20, 21, 22]),
        odd,
        *seeds("ln", [30, 31, 32], batch_size=8),
        *seeds("bn", [20, 21, 22.5], batch_size=8),
    )
    assert [piece.standing for piece in pieces] == ["not comparable", "supports"]
    assert "params" in pieces[0].finding


def test_a_level_is_held_against_a_bound():
    records = seeds("none", [35.3, 35.6, 35.1])
    below = Level("test/bleu", {"norm": "none"}, {}, 5.0, False, None)
    assert one(below, *records).standing == "contradicts"
    above = Level("test/bleu", {"norm": "none"}, {}, 34.0, True, None)
    piece = one(above, *records)
    assert piece.standing == "supports" and piece.finding == "35.3 [34.7, 36.0]"
    assert one(above, *records[:2]).standing == "too few seeds"


def test_a_second_figure_of_the_same_run_is_subtracted():
    records = [
        with_scores(r, test__loss=(3 + r.seed / 100, False), test__own__loss=(2.5, False))
        for r in seeds("bn", [1, 1, 1])
    ]
    level = Level("test/loss", {"norm": "bn"}, {}, 0.3, True, "test/own/loss")
    piece = one(level, *records)
    assert piece.standing == "supports" and piece.numbers["mean"] == pytest.approx(0.52)
    without = Level("test/loss", {"norm": "bn"}, {}, 0.3, True, "test/nothing")
    assert one(without, *records).standing == "no records"


@pytest.mark.parametrize(
    ("statuses", "standing"),
    [
        (["diverged"] * 3, "supports"),
        (["finished"] * 3, "contradicts"),
        (["diverged", "finished", "diverged"], "undecided"),
        (["diverged"] * 2, "too few seeds"),
        (["diverged", "diverged", "failed"], "too few seeds"),  # a crash is no divergence
    ],
)
def test_an_outcome_takes_all_or_none_of_three_seeds(statuses, standing):
    records = [record(seed=k, norm="none", status=s) for k, s in enumerate(statuses, 1)]
    assert one(Ending("diverged", {"norm": "none"}, {}), *records).standing == standing


def test_a_target_that_only_one_side_reached_decides():
    assert judge([math.inf] * 3, 0.0) == ("supports", None)
    assert judge([-math.inf] * 3, 0.0) == ("contradicts", None)
    assert judge([math.inf, 3.0, 4.0], 0.0) == ("undecided", None)
    assert judge([math.nan] * 3, 0.0) == ("undecided", None)
