"""How many forward passes an inspection takes, since they dominate its cost on a large model."""

import pytest

import normlab
from normlab.any_model.tracing import calls
from tests.any_model.pairs import case


@pytest.fixture
def passes(monkeypatch):
    """Return a list that grows by one entry with each pass."""
    count = []
    run = calls.run_model
    monkeypatch.setattr(calls, "run_model", lambda *given: count.append(1) or run(*given))
    return count


def test_inspecting_a_sound_encoder_takes_at_most_42_passes(passes):
    encoder = case("mask forgotten", False)
    report = normlab.inspect(encoder.model, encoder.batches)
    assert not [each for each in report.findings.values() if each.verdict in ("broken", "failed")]
    assert 20 < len(passes) <= 42
