"""Verdicts of endpoints on made-up records, compared with hand calculations; which runs count."""

import math

import numpy as np
import pytest

from normlab.claims.decision import NOT_SURVIVED
from normlab.claims.evidence import PlannedRuns, TimedCandidate, Timings
from normlab.claims.side import sides_text
from normlab.metrics.baseline import NOT_CLEAR
from normlab.records.record import Score
from normlab.studies.load import load_study
from tests.claims.made import (
    BETTER,
    NOISE,
    PLACE,
    STUDY,
    WORSE,
    configs,
    contrast,
    decided,
    part,
    primary,
    run,
    side,
)


@pytest.mark.parametrize(
    ("bn", "says", "verdict", "confidence"),
    [
        (28.0, "difference", "supported", 0.99),
        (28.0, "equality", "contradicted", 0.99),
        (32.0, "difference", "contradicted", 0.99),
        (30.0, "difference", "no difference", 0.98),
        (30.0, "equality", "supported", 0.98),
        (29.6, "difference", "undecided", 0.99),
    ],
)
def test_a_contrast_is_decided_by_the_difference_over_five_seeds(
    tmp_path, bn, says, verdict, confidence
):
    records = side("ln", 30.0) + side("bn", bn)
    found = primary(tmp_path, records, contrast(margin=0.5, says=says))
    assert found.verdict == verdict
    assert (found.basis.n, found.decision.estimate.confidence) == (
        5,
        confidence,
    )
    assert len(found.basis.records) == 10
    assert found.decision.estimate.mean == pytest.approx(30.0 - bn)


def test_a_difference_that_is_the_same_in_every_seed_stays_undecided(tmp_path):
    records = [
        run(k, norm, 30.0, stability={"stability/spikes/count": 1.0 if k == 2 else 0.0})
        for k in range(1, 6)
        for norm in ("ln", "bn")
    ]
    each = contrast(margin=0.5, score="stability/spikes/count")
    found = primary(tmp_path, records, each)
    assert (found.verdict, found.p_holm, found.decision.p) == ("undecided", None, None)
    assert str(found.reason).startswith("the difference is the same in every seed")
    assert (
        sides_text(found.decision.sides) == "0.200 with layer norm, 0.200 with batch norm"
        and not found.decision.value
    )
    assert found.judgement.to_measure.command == "normlab study run made scale=small seeds=6,7,8"
    same = [run(k, "bn", 30.0) for k in range(1, 6)]
    assert primary(tmp_path, same, reported(35.2, {"task": "toy"})).verdict == "undecided"
    assert primary(tmp_path, same, level(above=25)).decision.value == "30.0"


def test_seeds_trained_on_an_earlier_toy_corpus_must_all_be_rerun(tmp_path):
    earlier = {"source": "toy", "label": "toy (generated German-English)"}
    records = [
        run(k, norm, 30.0 + k % 2, data=earlier) for k in range(1, 6) for norm in ("ln", "bn")
    ]
    more = primary(tmp_path, records, contrast(margin=0.5)).judgement.to_measure
    assert more.command == "normlab study run made scale=small seeds=1,2,3,4,5,6,7,8"
    assert more.cost.endswith("run all seeds again and publish with --replace")


def test_a_contrast_with_ratio_reports_a_factor_and_the_smallest_detectable_one(tmp_path):
    records = [
        run(k, norm, 30.0, stability={"stability/var": value})
        for k in range(1, 6)
        for norm, value in (("ln", 1.0), ("bn", 2.0 + 0.0001 * NOISE[k - 1]))
    ]
    each = contrast(margin=1.25, score="stability/var", ratio=True)
    found = primary(tmp_path, records, each)
    assert found.verdict == "supported" and found.decision.value.startswith("factor 2.00 [2.00")
    for k, record in enumerate(records):
        record.stability["stability/var"] = 2.0 ** (k % 3)
    open_ = primary(tmp_path, records, each)
    assert str(open_.reason).startswith("these seeds would have shown a factor ")
    said = float(open_.reason.values["smallest"])
    smallest = math.exp(open_.decision.estimate.smallest)
    assert said == pytest.approx(smallest, rel=0.01) and said > 2


@pytest.mark.parametrize(
    ("factor", "says", "verdict"),
    [
        (100.0, "difference", "supported"),
        (100.0, "equality", "contradicted"),
        (1.0, "difference", "undecided"),
        (0.005, "difference", "contradicted"),
    ],
)
def test_a_spread_is_decided_by_the_jackknifed_ratio_of_standard_deviations(
    tmp_path, factor, says, verdict
):
    rng = np.random.default_rng(5)
    narrow, wide = 900 + rng.normal(size=12), 900 + factor * rng.normal(size=12)
    records = [
        run(seed, norm, float(value))
        for norm, values in (("ln", narrow), ("bn", wide))
        for seed, value in enumerate(values, 1)
    ]
    endpoint = {**PLACE, "wider": WORSE, "narrower": BETTER, "margin": 1.5}
    found = primary(tmp_path, records, part({"spread": endpoint}, says))
    assert found.verdict == verdict
    n = found.basis.n  # the deciding analysis uses only the first n seeds
    ratio = wide[:n].std(ddof=1) / narrow[:n].std(ddof=1)
    others = [
        np.delete(wide[:n], k).std(ddof=1) / np.delete(narrow[:n], k).std(ddof=1) for k in range(n)
    ]
    bias = (n - 1) * (np.mean(np.log(others)) - np.log(ratio))
    assert found.decision.estimate.mean == pytest.approx(ratio * np.exp(-bias))
    assert found.endpoint.unit == "spread" and [x.name[1] for x in found.decision.sides] == [
        "batch norm",
        "layer norm",
    ]


def test_settings_in_over_are_averaged_within_a_seed_and_all_are_required(tmp_path):
    grid = "{placement: [pre, post]}"
    records = [
        record
        for place, extra in (("pre", 1.0), ("post", 3.0))
        for norm, mean in (("ln", 30.0 + extra), ("bn", 30.0))
        for record in side(norm, mean, 6, placement=place, choices={"placement": place})
    ]
    found = primary(tmp_path, records, contrast(over=["placement"]), grid=grid)
    assert found.decision.estimate.mean == pytest.approx(2.0) and found.basis.n == 5
    assert len(found.basis.records) == 20
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
    found = primary(tmp_path, records, contrast(), grid=grid)
    assert found.verdict == "not measured" and "differ in placement" in str(found.reason)
    named = primary(tmp_path, records, contrast(where={"placement": "pre"}), grid=grid)
    assert named.verdict == "no difference" and named.basis.n == 5


def test_an_interaction_is_the_difference_of_differences(tmp_path):
    grid = "{batching: {like: [batching=like], mixed: [batching=mixed]}}"
    gaps = {"like": 4.0, "mixed": 1.0}
    records = [
        record
        for batching, gap in gaps.items()
        for norm, mean in (("ln", 30.0), ("bn", 30.0 - gap))
        for record in side(norm, mean, batching=batching, noise=1.0 if batching == "like" else 0.5)
    ]
    places = {"in": {"batching": "like"}, "than_in": {"batching": "mixed"}}
    found = primary(tmp_path, records, contrast(margin=1.0, first="worse", **places), grid=grid)
    assert found.verdict == "supported" and found.decision.estimate.mean == pytest.approx(3.0)
    assert len(found.basis.records) == 20
    assert sides_text(found.decision.sides, chinese=True) == (
        "batching=like：批归一化 26.0，层归一化 30.0；batching=mixed：批归一化 29.0，层归一化 30.0"
    )
    turned = {"in": places["than_in"], "than_in": places["in"]}
    other = primary(tmp_path, records, contrast(margin=1.0, **turned), grid=grid)
    assert other.verdict == "contradicted"


def test_a_side_without_a_planned_run_is_refused(tmp_path):
    problem = (
        r"01_so.yaml: part so_1: made at scale=small plans no run with norm=lm; .* ln; bn; none"
    )
    with pytest.raises(ValueError, match=problem):
        decided(tmp_path, [], contrast(better={"norm": "lm"}))


@pytest.mark.parametrize(
    ("text", "other", "norm", "rows"),
    [
        ("optim.lr=5e-4", "optim.lr=5e-4, clip_grad=1", "bn", {"bn"}),  # no norm for a single site
        (
            "[norm=bn]",
            "[norm@encoder_norm=bn]",
            "bn+ln",
            {"bn"},
        ),  # the decoder has the default norm
    ],
)
def test_may_choose_returns_the_rows_whose_runs_match(tmp_path, text, other, norm, rows):
    (configs(tmp_path) / "study" / "made.yaml").write_text(
        STUDY.replace(text, other).format(grid="{}")
    )
    plan = PlannedRuns(load_study("made", tmp_path), "small")
    assert plan.may_choose({"norm": norm}) == rows and not plan.may_choose({"optim.lr": 1e-3})


def test_a_contrast_with_fewer_than_five_seeds_is_not_measured(tmp_path):
    found = primary(tmp_path, side("ln", 30.0, 3) + side("bn", 20.0, 4), contrast())
    assert found.verdict == "not measured" and found.reason == "too few seeds (3 of 5)"
    assert (
        found.basis.n,
        len(found.basis.records),
        found.decision.p,
    ) == (3, 6, None)
    # Seed 4 has only some of its runs, so new seeds are proposed.
    more = found.judgement.to_measure
    assert more.command == "normlab study run made scale=small seeds=5,6"
    assert more.cost.startswith("6 runs, about 36 min")


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
    found = primary(tmp_path, records, contrast())
    assert (found.verdict, found.reason) == ("not measured", "too few seeds (4 of 5)")
    assert any(said.startswith(why) for said in found.basis.excluded)


RATES = ((2e-3, range(1, 4)), (9e-3, range(4, 13)))


def test_seeds_trained_at_different_learning_rates_are_not_pooled(tmp_path):
    records = [
        run(seed, norm, mean + NOISE[seed - 1] * (norm == "bn"), optim={"lr": rate})
        for rate, seeds in RATES
        for seed in seeds
        for norm, mean in (("ln", 30.0), ("bn", 28.0))
    ]
    found = primary(tmp_path, records, contrast())
    assert found.verdict == "not measured" and found.decision.p is None
    assert found.reason == (
        "norm=ln matches runs that differ in optim.lr; the claim must say which it means"
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
        found = primary(tmp_path, records + others, contrast())
        assert found.verdict == "not measured" and why in str(found.reason)


def test_if_a_seed_diverges_the_counts_of_trained_seeds_decide(tmp_path):
    failed = [run(k, "bn", None, status="diverged") for k in range(1, 6)]
    found = primary(tmp_path, side("ln", 30.0) + failed, contrast())
    assert found.verdict == "supported" and found.decision.p.observed == pytest.approx(2 / 252)
    assert found.decision.value == "train: 5/5 with layer norm (at least 47 %), 0/5 with batch norm"
    one = primary(tmp_path, side("ln", 30.0) + side("bn", 20.0, 4) + failed[4:], contrast())
    assert one.verdict == "undecided" and "4/5 with batch norm" in one.decision.value
    better = [run(k, "ln", None, status="diverged") for k in range(1, 6)]
    other = primary(tmp_path, better + side("bn", 30.0), contrast())
    assert other.verdict == "contradicted"
    equal = primary(tmp_path, side("ln", 30.0) + failed, contrast(says="equality"))
    assert equal.verdict == "contradicted"


def test_a_contrast_stays_undecided_if_a_side_does_not_beat_its_baseline(tmp_path):
    found = primary(tmp_path, side("ln", 30.0) + side("bn", 3.0), contrast())
    assert found.verdict == "undecided" and found.decision.p is None
    assert f"norm=bn: test/bleu 3 is {NOT_CLEAR} (3)" in str(found.reason)


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
    assert near.verdict == "undecided" and near.judgement.to_measure is None
    assert "norm=bn: test/loss 5.83 is not clearly" in str(near.reason)
    assert "more seeds would not change that" in str(near.reason)


@pytest.mark.parametrize("score", ["valid/steps_to_converge", "stability/tid/mean"])
def test_a_score_without_a_baseline_is_judged_by_the_loss_of_the_same_runs(
    score, tmp_path, near_the_floor
):
    for made in near_the_floor:
        made.scores["valid/steps_to_converge"] = Score(100.0 * made.seed, False, 1000)
        made.scores["stability/tid/mean"] = made.scores["test/loss"]
    found = primary(tmp_path, near_the_floor, contrast(score=score, margin=0.05))
    assert "norm=bn: test/loss" in str(found.reason)


def test_scores_are_compared_only_if_all_seeds_train(tmp_path):
    # On average both sides clearly beat the baseline of 3, but one seed of one side does not.
    rest = [*side("ln", 30.0), *side("bn", 20.0, 4)]
    low = primary(tmp_path, [*rest, run(5, "bn", 2.0)], contrast())
    assert str(low.reason).startswith("not all seeds train") and low.decision.stuck
    assert low.decision.value == "train: 5/5 with layer norm (at least 47 %), 4/5 with batch norm"
    near = [run(k, "bn", 3.4 + 0.01 * k) for k in range(1, 6)]  # clear only on average
    none = primary(tmp_path, [*side("ln", 30.0), *near], contrast())
    assert none.verdict == "undecided" and none.decision.value.endswith("0/5 with batch norm")


def trains(says="fails", reference=BETTER, **changes):
    body = {**PLACE, "side": WORSE, **changes}
    return part({"trains": {**body, **({"reference": reference} if reference else {})}}, says)


def test_whether_a_side_trains_is_decided_by_counts_against_a_reference(tmp_path):
    # A side at the baseline has not trained. Only the reference must clearly beat the baseline.
    records = side("ln", 30.0) + side("bn", 3.0)
    assert primary(tmp_path, records, trains()).verdict == "supported"
    assert primary(tmp_path, records, trains("trains")).verdict == "contradicted"
    low = primary(tmp_path, side("ln", 3.0) + side("bn", 3.0), trains())
    assert low.verdict == "undecided" and "norm=ln: test/bleu 3 is not" in str(low.reason)
    five = primary(tmp_path, side("ln", 30.0) + side("bn", 30.0), trains())
    eight = primary(tmp_path, side("ln", 30.0, 8) + side("bn", 30.0, 8), trains())
    assert (five.verdict, eight.verdict) == ("undecided", "contradicted")
    lone = primary(tmp_path, side("bn", 30.0, 8), trains("trains", None))
    assert lone.verdict == "supported"


def test_a_side_can_train_and_still_be_worse(tmp_path):
    counted = {**contrast(), "secondary": [trains()["endpoint"]]}
    worse = decided(tmp_path, side("ln", 30.0, 8) + side("bn", 28.0, 8), counted)
    assert worse.primary[0].verdict == "supported", "ln is better than bn"
    assert [other.verdict for other in worse.secondary] == ["contradicted"], "bn trains, too"


def level(says="figure", **changes):
    return part({"level": {**PLACE, "of": WORSE, **changes}}, says)


def test_a_level_is_compared_with_a_bound(tmp_path):
    records = side("bn", 30.0)
    assert primary(tmp_path, records, level(above=25)).verdict == "supported"
    assert primary(tmp_path, records, level(above=35)).verdict == "contradicted"
    assert primary(tmp_path, records, level(above=25, margin=6)).verdict == "no difference"
    assert primary(tmp_path, records, level("equality", above=25, margin=6)).verdict == "supported"
    found = primary(tmp_path, records, level("equality", above=25, margin=1))
    assert found.verdict == "contradicted"


def test_a_level_has_an_interval_and_needs_all_runs_to_finish(tmp_path):
    found = primary(tmp_path, side("bn", 30.0), level(above=25))
    estimate = found.decision.estimate
    assert estimate.mean == pytest.approx(30.0) and estimate.low < 30 < estimate.high
    failed = [*side("bn", 30.0, 4), run(5, "bn", None, status="diverged")]
    assert primary(tmp_path, failed, level(above=25)).decision.stuck


def test_a_timing_is_decided_by_the_ratios_of_its_rounds(tmp_path):
    ratios = (0.89, 0.9, 0.91, 0.88, 0.92, 0.9)
    timed = (
        TimedCandidate("ln", {"median": 2.0}, (1.0,) * 6),
        TimedCandidate("bn", {"median": 1.8}, ratios),
    )
    report = Timings("normlab.bench.norms/1", {"device": "CPU", "precision": "fp32"}, {"m": timed})
    each = part({"timing": {"faster": "bn", "than": "ln", "group": "m", "alone": True}})
    found = primary(tmp_path, [], each, timings={"norms": report})
    assert (found.verdict, found.basis.n, found.grade) == ("supported", 6, "D: CPU fp32")
    assert found.decision.value.startswith("10.0% [")
    assert sides_text(found.decision.sides) == "1.80 ms with batch norm, 2.00 ms with layer norm"
    reversed_ = {"faster": "bn", "than": "ln", "first": "than", "group": "m"}
    named = primary(tmp_path, [], part({"timing": reversed_}), timings={"norms": report})
    assert named.decision.sides == found.decision.sides[::-1]
    none = primary(tmp_path, [], each)
    assert none.judgement.to_measure.command.startswith(
        "python scripts/bench norms --json results/bench/no"
    )


def test_p_values_of_timings_are_corrected_within_their_report(tmp_path):
    ratios = (0.9, 0.92, 0.97, 0.95, 0.92, 0.98)
    timed = (
        TimedCandidate("ln", {"median": 2.0}, (1.0,) * 6),
        TimedCandidate("bn", {"median": 1.8}, ratios),
    )
    report = Timings("normlab.bench.norms/1", {"device": "CPU", "precision": "fp32"}, {"m": timed})
    each = part({"timing": {"faster": "bn", "than": "ln", "group": "m"}})
    alone = primary(tmp_path, [], each, timings={"norms": report})
    assert alone.verdict == "supported" and alone.p_holm == alone.decision.p.observed
    assert 0.01 < alone.decision.p.observed < 0.05
    none = [part({"timing": {"faster": "none", "than": "ln", "group": "m"}})] * 4
    among = decided(tmp_path, [], each, *none, timings={"norms": report}).primary[0]
    assert among.p_holm == pytest.approx(5 * alone.decision.p.observed)
    assert (among.verdict, among.reason) == ("undecided", NOT_SURVIVED)
    other = {"faster": "none", "than": "ln", "group": "m", "report": "norms_vit"}
    apart = [part({"timing": other})] * 4
    beside = decided(tmp_path, [], each, *apart, timings={"norms": report}).primary[0]
    assert beside.p_holm == alone.decision.p.observed


def reported(value, data):
    return part({"reported": {**PLACE, "of": WORSE, "value": value, "data": data}}, "figure")


def test_a_reported_value_is_supported_if_the_interval_contains_it(tmp_path):
    held, missed = (reported(value, {"task": "toy"}) for value in (30.1, 35.2))
    assert primary(tmp_path, side("bn", 30.0), missed).verdict == "contradicted"
    # Containing the value means more with more seeds, so only the last analysis may say so.
    assert primary(tmp_path, side("bn", 30.0), held).verdict == "undecided"
    assert primary(tmp_path, side("bn", 30.0, 12), held).verdict == "supported"
    other = primary(tmp_path, side("bn", 30.0), reported(35.2, {"task": "iwslt"}))
    assert other.reason == "other data: task=toy, the article's is task=iwslt"
    assert other.verdict == "not measured" and other.decision.value == ""


def test_seen_seeds_show_a_value_but_only_later_seeds_decide(tmp_path):
    seen = {"seen_seeds": 5}
    records = side("ln", 30.0) + side("bn", 28.0)
    found = primary(tmp_path, records, contrast(margin=0.5, **seen))
    assert found.verdict == "undecided" and "seeds after 5" in found.question
    assert found.decision.value.startswith("2.00 [") and found.decision.p is None
    assert "seeds=6,7,8,9,10" in found.judgement.to_measure.command
    twelve = [*side("ln", 30.0, 12), *side("bn", 28.0, 12)]
    later = [each for each in twelve if each.seed > 5]
    found = primary(tmp_path, [*side("ln", 30.0), *side("bn", 32.0), *later], contrast(**seen))
    assert found.verdict == "supported"
    assert found.basis.n == 5 and found.decision.estimate.mean == pytest.approx(2.0, abs=0.15)


def test_an_endpoint_written_after_its_runs_is_left_out_of_the_holm_correction(tmp_path):
    records = side("ln", 30.0, noise=1.0) + side("bn", 28.5)
    alone = decided(tmp_path, records, contrast(margin=0.5)).primary[0].p_holm
    both = decided(tmp_path, records, contrast(margin=0.5), contrast(margin=0.4, seen_seeds=5))
    assert [each.p_holm for each in both.primary] == [alone, None]


@pytest.mark.parametrize(
    ("value", "seeds", "verdict"),
    [(6.5, 12, "contradicted"), (2.0, 12, "supported"), (2.0, 5, "undecided")],
)
def test_a_gap_is_decided_by_whether_the_interval_contains_the_value(
    tmp_path, value, seeds, verdict
):
    records = side("ln", 30.0, seeds) + side("bn", 28.0, seeds)
    asked = part({"gap": {**PLACE, "better": BETTER, "worse": WORSE, "value": value}}, "figure")
    found = primary(tmp_path, records, asked)
    assert found.verdict == verdict and f"contains {value:g}" in found.question
    assert sides_text(found.decision.sides) == "30.0 with layer norm, 28.0 with batch norm"


def test_a_timing_seen_in_advance_is_shown_but_stays_undecided(tmp_path):
    timed = tuple(
        TimedCandidate(name, {"median": ms}, tuple(ms + 0.001 * k for k in range(9)))
        for name, ms in (("bn", 1.0), ("ln", 2.0))
    )
    report = Timings("normlab.bench.norms/1", {"device": "CPU", "precision": "fp32"}, {"m": timed})
    asked = {"faster": "bn", "than": "ln", "group": "m", "seen": True}
    found = primary(tmp_path, [], part({"timing": asked}), timings={"norms": report})
    assert found.verdict == "undecided" and found.decision.by_seen_runs
    assert found.judgement.to_measure is not None
    assert found.judgement.to_measure.cost.endswith("then remove seen: true from the endpoint")
    assert "of the time saved" in found.decision.value
