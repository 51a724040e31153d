"""Corrections of the endpoints of a study, or of a report of timings, for each other."""

import pytest

from normlab.claims.decision import NOT_SURVIVED
from normlab.claims.evidence import TimedCandidate, Timings
from normlab.claims.ledger import ledger, with_measurements
from normlab.claims.texts import reason_of
from tests.claims.handmade_study import (
    CONTRAST,
    claim,
    configs,
    contrast,
    decided,
    part,
    primary,
    run,
    runs_of,
    side,
)


@pytest.fixture
def among_ten(tmp_path):
    """Return the result of a contrast on its own, and as one of ten contrasts in its study."""
    noise = enumerate((0.0, 0.025, -0.025, 0.03, -0.03), 1)  # ln is better by 0.1, p 0.0012
    records = side("ln", 30.0) + [run(k, "bn", 29.9 + each) for k, each in noise]

    def outcomes(margin):
        root = configs(tmp_path)
        one = claim(root, contrast(margin=margin))
        others = (contrast(margin=margin, worse={"norm": "none"}) for _ in range(9))
        other = claim(root, *others, number=2)
        evidence = runs_of(root, records)
        (alone,) = with_measurements(ledger([one], evidence), evidence)
        among, _ = with_measurements(ledger([one, other], evidence), evidence)
        return alone.primary[0], among.primary[0]

    return outcomes


def test_a_direction_is_reported_only_if_it_survives_the_correction(among_ten):
    alone, among = among_ten(0.12)
    assert str(alone.reason) == "the direction is shown, but the size of the difference is open"
    assert alone.decision.p.direction < 0.01
    assert "these seeds would have detected" in str(reason_of(among))


def test_p_values_are_corrected_within_a_study_over_all_claims(among_ten):
    alone, among = among_ten(0)
    assert alone.verdict == "supported"
    assert alone.decision.p.at_look == pytest.approx(5 * alone.decision.p.observed)
    assert alone.p_holm == pytest.approx(alone.decision.p.at_look)
    assert among.p_holm == pytest.approx(min(1.0, 10 * alone.decision.p.at_look))
    assert (among.verdict, among.reason) == ("undecided", NOT_SURVIVED)


def test_only_a_part_that_is_open_after_the_correction_has_a_command(among_ten):
    alone, among = among_ten(0)
    more = among.to_measure
    assert more.command == "normlab study run made scale=small rows=ln,bn seeds=6,7,8"
    assert more.cost.startswith("6 runs, about 36 min") and alone.to_measure is None


def test_secondary_endpoints_do_not_affect_the_correction(tmp_path):
    records = side("ln", 30.0) + side("bn", 28.0)
    more = [{"contrast": {**CONTRAST, "margin": 5}}] * 3
    plain = decided(tmp_path, records, contrast())
    entry = decided(tmp_path, records, contrast() | {"secondary": more})
    assert entry.verdict == "supported" and len(entry.secondary) == 3
    assert entry.primary[0].p_holm == plain.primary[0].p_holm
    assert [each.p_holm for each in entry.secondary] == [None] * 3


def test_a_supported_reported_value_survives_the_correction(tmp_path):
    body = {"study": "made", "scale": "small", "score": "test/bleu", "of": {"norm": "bn"}}
    each = part({"reported": {**body, "value": 30, "data": {"task": "toy"}}}, "figure")
    entry = decided(tmp_path, side("bn", 30.0, 12), each, contrast())
    assert entry.primary[0].verdict == "supported"


def test_an_endpoint_written_after_its_runs_is_left_out_of_the_holm_correction(tmp_path):
    records = side("ln", 30.0, noise=1.0) + side("bn", 28.5)
    alone = decided(tmp_path, records, contrast(margin=0.5)).primary[0].p_holm
    both = decided(tmp_path, records, contrast(margin=0.5), contrast(margin=0.4, seen_seeds=5))
    assert [each.p_holm for each in both.primary] == [alone, None]


def test_p_values_of_timings_are_corrected_within_their_report(tmp_path):
    ratios = (0.9, 0.92, 0.97, 0.95, 0.92, 0.98)
    timed = (
        TimedCandidate("ln", {"median": 2.0}, (1.0,) * 6),
        TimedCandidate("bn", {"median": 1.8}, ratios),
    )
    report = Timings("normlab.bench.norms/1", {"device": "CPU", "precision": "fp32"}, {"m": timed})
    each = part({"timing": {"faster": "bn", "slower": "ln", "group": "m"}})
    alone = primary(tmp_path, [], each, timings={"norms": report})
    assert alone.verdict == "supported" and alone.p_holm == alone.decision.p.observed
    assert 0.01 < alone.decision.p.observed < 0.05
    none = [part({"timing": {"faster": "none", "slower": "ln", "group": "m"}})] * 4
    among = decided(tmp_path, [], each, *none, timings={"norms": report}).primary[0]
    assert among.p_holm == pytest.approx(5 * alone.decision.p.observed)
    assert (among.verdict, among.reason) == ("undecided", NOT_SURVIVED)
    other = {"faster": "none", "slower": "ln", "group": "m", "report": "norms_vit"}
    apart = [part({"timing": other})] * 4
    beside = decided(tmp_path, [], each, *apart, timings={"norms": report}).primary[0]
    assert beside.p_holm == alone.decision.p.observed
