"""Endpoints decided by timings and by computed checks."""

import pytest

from normlab.claims.evidence import CheckFinding, TimedCandidate, Timings
from normlab.claims.side import sides_text
from normlab.claims.texts import result_text, side_values
from tests.claims.handmade_study import decided, part, primary


def test_one_contradicting_finding_decides_a_check_unless_only_leaves_it_out(tmp_path):
    findings = {
        "a.b": [
            CheckFinding("bn: it moves", "it moves", "supports", name="moving"),
            CheckFinding("ln: it moves", "it does not", "contradicts", name="still"),
        ]
    }
    every, some, none = (
        part({"computed": {"check": "a.b", "only": only}}, "definition")
        for only in ([], ["moving"], ["bn"])
    )
    entry = decided(tmp_path, [], every, some, none, computed=findings)
    verdicts = [each.verdict for each in entry.primary]
    assert verdicts == ["contradicted", "supported", "not measured"]
    assert "moving; still" in str(entry.primary[2].reason)
    assert entry.verdict == "mixed" and entry.grades == "D"
    assert str(decided(tmp_path, [], some).primary[0].reason) == "not computed"


def test_a_timing_is_decided_by_the_ratios_of_its_rounds(tmp_path):
    ratios = (0.89, 0.9, 0.91, 0.88, 0.92, 0.9)
    timed = (
        TimedCandidate("ln", {"median": 2.0}, (1.0,) * 6),
        TimedCandidate("bn", {"median": 1.8}, ratios),
    )
    report = Timings("normlab.bench.norms/1", {"device": "CPU", "precision": "fp32"}, {"m": timed})
    each = part({"timing": {"faster": "bn", "slower": "ln", "group": "m", "alone": True}})
    judged_part = primary(tmp_path, [], each, timings={"norms": report})
    assert (judged_part.verdict, judged_part.basis.n, judged_part.grade) == (
        "supported",
        6,
        "D: CPU fp32",
    )
    assert (
        result_text(judged_part).startswith("10.0 % [") and judged_part.decision.estimate.mean > 0
    )
    assert result_text(judged_part).endswith("] less time")
    assert (
        sides_text(side_values(judged_part)) == "1.80 ms with batch norm, 2.00 ms with layer norm"
    )
    reversed_ = {"faster": "bn", "slower": "ln", "first": "slower", "group": "m"}
    named = primary(tmp_path, [], part({"timing": reversed_}), timings={"norms": report})
    assert side_values(named) == side_values(judged_part)[::-1]
    assert result_text(named).startswith("11.1 % [") and result_text(named).endswith("more time")
    low, high = named.endpoint.limits
    assert judged_part.endpoint.limits == (-0.02, 0.02)
    assert (1 + high) == pytest.approx(1 / 0.98) and (1 + low) == pytest.approx(1 / 1.02)
    none = primary(tmp_path, [], each)
    assert none.to_measure.command.startswith("python scripts/bench norms --json results/bench/no")


def test_a_timing_seen_in_advance_is_shown_but_stays_undecided(tmp_path):
    timed = tuple(
        TimedCandidate(name, {"median": ms}, tuple(ms + 0.001 * k for k in range(9)))
        for name, ms in (("bn", 1.0), ("ln", 2.0))
    )
    report = Timings("normlab.bench.norms/1", {"device": "CPU", "precision": "fp32"}, {"m": timed})
    asked = {"faster": "bn", "slower": "ln", "group": "m", "seen_before": True}
    judged_part = primary(tmp_path, [], part({"timing": asked}), timings={"norms": report})
    assert judged_part.verdict == "undecided" and judged_part.decision.by_seen_runs
    assert judged_part.to_measure is not None
    assert judged_part.to_measure.cost.endswith("then remove seen_before: true from the endpoint")
    assert result_text(judged_part).startswith("49.9 % [") and "less time" in result_text(
        judged_part
    )
