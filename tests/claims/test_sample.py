"""Which runs and seeds count, and when a side does not beat its untrained baseline."""

import pytest

from normlab.metrics.baseline import NOT_CLEAR
from normlab.records.record import Score
from tests.claims.handmade_study import NOISE, contrast, primary, run, side


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"weights": {}}, "tested weights chosen by loss: 1"),
        ({"weights": {"best": 50}}, "tested weights chosen by a score: 1"),
        ({"environment": {"dirty": True}}, "made by uncommitted code: 1"),
        ({"numerics": "xyz"}, "sides of different code: 1"),
        ({"environment": {"precision": "bf16"}}, "sides of different arithmetic"),
        ({"signature": "other"}, "sides of different ways to compute test/bleu: 1"),
        ({"status": "failed"}, "did not end (failed): 1"),
    ],
)
def test_a_run_that_does_not_count_leaves_too_few_seeds_and_is_reported(tmp_path, change, why):
    records = side("ln", 30.0) + side("bn", 20.0, 4) + [run(5, "bn", 20.0, **change)]
    judged_part = primary(tmp_path, records, contrast())
    assert judged_part.verdict == "not measured"
    assert str(judged_part.reason) == "too few seeds (4 of 5)"
    assert any(said.startswith(why) for said in judged_part.basis.excluded)


def test_settings_in_over_are_averaged_within_a_seed_and_all_are_required(tmp_path):
    grid = "{placement: [pre, post]}"
    records = [
        record
        for place, extra in (("pre", 1.0), ("post", 3.0))
        for norm, mean in (("ln", 30.0 + extra), ("bn", 30.0))
        for record in side(norm, mean, 6, placement=place, choices={"placement": place})
    ]
    judged_part = primary(tmp_path, records, contrast(over=["placement"]), grid=grid)
    assert judged_part.decision.estimate.mean == pytest.approx(2.0) and judged_part.basis.n == 5
    assert len(judged_part.basis.records) == 20
    pre = [r for r in records if r.choice("placement") == "pre"]
    none = primary(tmp_path, pre, contrast(over=["placement"]), grid=grid)
    assert none.verdict == "not measured", "the planned runs with placement=post are missing"


def test_settings_that_are_neither_fixed_nor_averaged_leave_a_contrast_unmeasured(tmp_path):
    grid = "{placement: [pre, post]}"
    records = [
        record
        for place in ("pre", "post")
        for norm in ("ln", "bn")
        for record in side(norm, 30.0, placement=place, choices={"placement": place})
    ]
    judged_part = primary(tmp_path, records, contrast(), grid=grid)
    assert judged_part.verdict == "not measured" and "differ in placement" in str(
        judged_part.reason
    )
    named = primary(tmp_path, records, contrast(where={"placement": "pre"}), grid=grid)
    assert named.verdict == "no difference" and named.basis.n == 5


RATES = ((2e-3, range(1, 4)), (9e-3, range(4, 13)))


def test_seeds_trained_at_different_learning_rates_are_not_pooled(tmp_path):
    records = [
        run(seed, norm, mean + NOISE[seed - 1] * (norm == "bn"), optim={"lr": rate})
        for rate, seeds in RATES
        for seed in seeds
        for norm, mean in (("ln", 30.0), ("bn", 28.0))
    ]
    judged_part = primary(tmp_path, records, contrast())
    assert judged_part.verdict == "not measured" and judged_part.decision.p is None
    assert judged_part.reason == (
        "norm=ln matches runs that differ in optim.lr; the claim must select one of them"
    )
    alike = [each for each in records if each.seed not in RATES[0][1]]
    assert primary(tmp_path, alike, contrast()).verdict == "supported"


def test_seeds_with_different_data_or_score_signatures_are_not_pooled(tmp_path):
    records = side("ln", 30.0) + side("bn", 28.0)
    for change, why in (
        ({"data": {"checksums": {"train": "other"}}}, "not comparable: data.checksums is"),
        ({"signature": "other"}, "test/bleu was computed in several ways"),
    ):
        others = [run(6, norm, 30.0, **change) for norm in ("ln", "bn")]
        judged_part = primary(tmp_path, records + others, contrast())
        assert judged_part.verdict == "not measured" and why in str(judged_part.reason)


def test_a_contrast_stays_undecided_if_a_side_does_not_beat_its_baseline(tmp_path):
    judged_part = primary(tmp_path, side("ln", 30.0) + side("bn", 3.0), contrast())
    assert judged_part.verdict == "undecided" and judged_part.decision.p is None
    assert f"batch norm: BLEU 3 is {NOT_CLEAR} (3)" in str(judged_part.reason)


@pytest.fixture
def near_the_floor():
    """Return runs whose losses beat an untrained model, but with bn not clearly."""
    return [
        run(k, norm, 30.0, scores={"test/loss": loss + 0.01 * k}, floors={"loss": 6.67})
        for k in range(1, 6)
        for norm, loss in (("ln", 5.2), ("bn", 5.8))
    ]


def test_a_side_near_the_untrained_baseline_gets_no_command_for_more_seeds(
    tmp_path, near_the_floor
):
    near = primary(tmp_path, near_the_floor, contrast(score="test/loss", margin=0.05))
    assert near.verdict == "undecided" and near.to_measure is None
    assert "batch norm: loss 5.83 is not clearly" in str(near.reason)
    assert "more seeds would not change that" in str(near.reason)


@pytest.mark.parametrize("score", ["valid/steps_to_converge", "stability/tid/mean"])
def test_a_score_without_a_baseline_is_judged_by_the_loss_of_the_same_runs(
    score, tmp_path, near_the_floor
):
    for made in near_the_floor:
        made.scores["valid/steps_to_converge"] = Score(100.0 * made.seed, False, 1000)
        made.scores["stability/tid/mean"] = made.scores["test/loss"]
    judged_part = primary(tmp_path, near_the_floor, contrast(score=score, margin=0.05))
    assert "batch norm: loss" in str(judged_part.reason)
