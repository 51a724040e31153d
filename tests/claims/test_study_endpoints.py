"""Verdicts of the kinds of endpoints that runs decide, compared with hand calculations."""

import numpy as np
import pytest

from normlab.claims.decision import CONSTANT
from normlab.claims.side import sides_text
from normlab.claims.texts import reason_of, result_text, side_values
from tests.claims.handmade_study import (
    BETTER,
    NOISE,
    PLACE,
    WORSE,
    contrast,
    decided,
    part,
    primary,
    run,
    side,
)


@pytest.mark.parametrize(
    ("bn", "assertion", "verdict", "confidence"),
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
    tmp_path, bn, assertion, verdict, confidence
):
    records = side("ln", 30.0) + side("bn", bn)
    judged_part = primary(tmp_path, records, contrast(margin=0.5, assertion=assertion))
    assert judged_part.verdict == verdict
    assert (judged_part.basis.n, judged_part.decision.estimate.confidence) == (
        5,
        confidence,
    )
    assert len(judged_part.basis.records) == 10
    assert judged_part.decision.estimate.mean == pytest.approx(30.0 - bn)


def test_a_difference_that_is_the_same_in_every_seed_stays_undecided(tmp_path):
    records = [
        run(k, norm, 30.0, stability={"stability/spikes/count": 1.0 if k == 2 else 0.0})
        for k in range(1, 6)
        for norm in ("ln", "bn")
    ]
    each = contrast(margin=0.5, score="stability/spikes/count")
    judged_part = primary(tmp_path, records, each)
    assert (judged_part.verdict, judged_part.p_holm, judged_part.decision.p) == (
        "undecided",
        None,
        None,
    )
    assert str(judged_part.reason).startswith("the difference is the same in every seed")
    assert sides_text(
        side_values(judged_part)
    ) == "0.200 with layer norm, 0.200 with batch norm" and not result_text(judged_part)
    assert (
        judged_part.to_measure.command
        == "normlab study run made scale=small rows=ln,bn seeds=6,7,8"
    )


def test_a_contrast_with_ratio_reports_a_factor_and_the_smallest_detectable_one(tmp_path):
    records = [
        run(k, norm, 30.0, stability={"stability/var": value})
        for k in range(1, 6)
        for norm, value in (("ln", 1.0), ("bn", 2.0 + 0.0001 * NOISE[k - 1]))
    ]
    each = contrast(margin=1.25, score="stability/var", ratio=True)
    judged_part = primary(tmp_path, records, each)
    assert judged_part.verdict == "supported"
    assert result_text(judged_part).startswith("factor 0.500 [0.500"), "1 divided by 2"
    other = primary(
        tmp_path, records, contrast(margin=1.25, score="stability/var", ratio=True, first="worse")
    )
    assert result_text(other).startswith("factor 2.00 [2.00")
    for k, record in enumerate(records):
        record.stability["stability/var"] = 2.0 ** (k % 3)
    open_ = primary(tmp_path, records, each)
    assert str(reason_of(open_)).startswith("these seeds would have detected a factor of ")
    said = float(reason_of(open_).values["smallest"])
    assert said == pytest.approx(open_.decision.estimate.smallest, rel=0.01) and said > 2


def test_if_a_seed_diverges_the_counts_of_trained_seeds_decide(tmp_path):
    failed = [run(k, "bn", None, status="diverged") for k in range(1, 6)]
    judged_part = primary(tmp_path, side("ln", 30.0) + failed, contrast())
    assert judged_part.verdict == "supported" and judged_part.decision.p.observed == pytest.approx(
        2 / 252
    )
    assert (
        result_text(judged_part) == "runs that trained: 5/5 with layer norm (95 % CI: ≥ 47 %), "
        "0/5 with batch norm"
    )
    one = primary(tmp_path, side("ln", 30.0) + side("bn", 20.0, 4) + failed[4:], contrast())
    assert one.verdict == "undecided" and "4/5 with batch norm" in result_text(one)
    better = [run(k, "ln", None, status="diverged") for k in range(1, 6)]
    other = primary(tmp_path, better + side("bn", 30.0), contrast())
    assert other.verdict == "contradicted"
    equal = primary(tmp_path, side("ln", 30.0) + failed, contrast(assertion="equality"))
    assert equal.verdict == "contradicted"


def test_an_interaction_is_the_difference_of_differences(tmp_path):
    grid = "{batching: {like: [batching=like], mixed: [batching=mixed]}}"
    gaps = {"like": 4.0, "mixed": 1.0}
    records = [
        record
        for batching, gap in gaps.items()
        for norm, mean in (("ln", 30.0), ("bn", 30.0 - gap))
        for record in side(norm, mean, batching=batching, noise=1.0 if batching == "like" else 0.5)
    ]
    places = {"inside": {"batching": "like"}, "outside": {"batching": "mixed"}}
    judged_part = primary(
        tmp_path, records, contrast(margin=1.0, first="worse", **places), grid=grid
    )
    assert (
        judged_part.verdict == "supported"
        and judged_part.decision.estimate.mean == pytest.approx(3.0)
    )
    assert len(judged_part.basis.records) == 20
    assert sides_text(side_values(judged_part), chinese=True) == (
        "batching=like：批归一化 26.00，层归一化 30.00；"
        "batching=mixed：批归一化 29.00，层归一化 30.00"
    )
    assert result_text(judged_part).startswith("-3.00 ["), "(26 - 30) - (29 - 30)"
    turned = {"inside": places["outside"], "outside": places["inside"]}
    other = primary(tmp_path, records, contrast(margin=1.0, **turned), grid=grid)
    assert other.verdict == "contradicted"


@pytest.mark.parametrize(
    ("value", "seeds", "verdict"),
    [(6.5, 12, "contradicted"), (2.0, 12, "supported"), (2.0, 5, "undecided")],
)
def test_a_gap_is_decided_by_whether_the_interval_contains_the_value(
    tmp_path, value, seeds, verdict
):
    records = side("ln", 30.0, seeds) + side("bn", 28.0, seeds)
    asked = part({"gap": {**PLACE, "better": BETTER, "worse": WORSE, "value": value}}, "figure")
    judged_part = primary(tmp_path, records, asked)
    assert judged_part.verdict == verdict and f"contain {value:g}" in judged_part.question
    assert sides_text(side_values(judged_part)) == ("30.00 with layer norm, 28.00 with batch norm")


def test_the_question_about_a_reported_value_names_its_data_and_the_seeds_that_count(tmp_path):
    asked = {**PLACE, "of": BETTER, "value": 30, "data": {"task": "toy"}, "seen_seeds": 5}
    question = primary(tmp_path, side("ln", 30.0), part({"reported": asked}, "figure")).question
    assert question.endswith("contain 30 (task=toy; only seeds after 5)?")


@pytest.mark.parametrize(
    ("factor", "assertion", "verdict"),
    [
        (100.0, "difference", "supported"),
        (100.0, "equality", "contradicted"),
        (1.0, "difference", "undecided"),
        (0.005, "difference", "contradicted"),
    ],
)
def test_a_spread_is_decided_by_the_jackknifed_ratio_of_standard_deviations(
    tmp_path, factor, assertion, verdict
):
    rng = np.random.default_rng(5)
    narrow, wide = 900 + rng.normal(size=12), 900 + factor * rng.normal(size=12)
    records = [
        run(seed, norm, float(value))
        for norm, values in (("ln", narrow), ("bn", wide))
        for seed, value in enumerate(values, 1)
    ]
    endpoint = {**PLACE, "wider": WORSE, "narrower": BETTER, "margin": 1.5}
    judged_part = primary(tmp_path, records, part({"spread": endpoint}, assertion))
    assert judged_part.verdict == verdict
    n = judged_part.basis.n  # the deciding analysis uses only the first n seeds
    ratio = wide[:n].std(ddof=1) / narrow[:n].std(ddof=1)
    others = [
        np.delete(wide[:n], k).std(ddof=1) / np.delete(narrow[:n], k).std(ddof=1) for k in range(n)
    ]
    bias = (n - 1) * (np.mean(np.log(others)) - np.log(ratio))
    assert judged_part.decision.estimate.mean == pytest.approx(ratio * np.exp(-bias))
    assert judged_part.endpoint.unit == "spread" and [
        x.name[1] for x in side_values(judged_part)
    ] == [
        "batch norm",
        "layer norm",
    ]


def level(assertion="figure", **changes):
    return part({"level": {**PLACE, "of": WORSE, **changes}}, assertion)


def test_a_level_is_compared_with_a_bound(tmp_path):
    records = side("bn", 30.0)
    assert primary(tmp_path, records, level(above=25)).verdict == "supported"
    assert primary(tmp_path, records, level(above=35)).verdict == "contradicted"
    assert primary(tmp_path, records, level(above=25, margin=6)).verdict == "no difference"
    assert primary(tmp_path, records, level("equality", above=25, margin=6)).verdict == "supported"
    judged_part = primary(tmp_path, records, level("equality", above=25, margin=1))
    assert judged_part.verdict == "contradicted"


def test_a_level_of_equal_values_has_no_interval_and_is_undecided(tmp_path):
    equal = primary(tmp_path, [run(k, "bn", 30.0) for k in range(1, 6)], level(above=25))
    assert (equal.verdict, result_text(equal)) == ("undecided", "30.0")
    assert equal.decision.estimate is None


def test_a_level_has_an_interval_and_needs_all_runs_to_finish(tmp_path):
    judged_part = primary(tmp_path, side("bn", 30.0), level(above=25))
    estimate = judged_part.decision.estimate
    assert estimate.mean == pytest.approx(30.0) and estimate.low < 30 < estimate.high
    failed = [*side("bn", 30.0, 4), run(5, "bn", None, status="diverged")]
    assert primary(tmp_path, failed, level(above=25)).decision.stuck


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
    assert other.verdict == "not measured" and result_text(other) == ""


def test_equal_values_cannot_contradict_a_reported_value(tmp_path):
    equal = [run(k, "bn", 30.0) for k in range(1, 6)]
    assert primary(tmp_path, equal, reported(35.2, {"task": "toy"})).reason == CONSTANT


def trains(assertion="fails", reference=BETTER, **changes):
    body = {**PLACE, "side": WORSE, **changes}
    return part({"trains": {**body, **({"reference": reference} if reference else {})}}, assertion)


def test_whether_a_side_trains_is_decided_by_counts_against_a_reference(tmp_path):
    # A side at the baseline has not trained. Only the reference must clearly beat the baseline.
    records = side("ln", 30.0) + side("bn", 3.0)
    assert primary(tmp_path, records, trains()).verdict == "supported"
    assert primary(tmp_path, records, trains("trains")).verdict == "contradicted"
    low = primary(tmp_path, side("ln", 3.0) + side("bn", 3.0), trains())
    assert low.verdict == "undecided" and "layer norm: BLEU 3 is not" in str(low.reason)
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
