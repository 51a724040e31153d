"""Norms that a residual network refuses."""

import pytest

from normlab.inspection.card import short_runs
from normlab.inspection.card.examined_norm import examined_norm
from tests.records.examples import record


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        (["norm=ln", "placement=post"], "on images: a residual network has its norms"),
        (["norm=gn", "norm.groups=32"], "groups=32 does not divide the width 8"),
        (["norm=scale"], "raises TypeError: no padding"),
    ],
)
def test_a_norm_that_cannot_be_used_on_images_gives_the_reason(
    chosen, reason, tmp_path, monkeypatch
):
    def forward(*_):
        raise TypeError("no padding\nthere")

    monkeypatch.setattr("normlab.norms.rms.ScaleNorm.forward", forward)
    subject = examined_norm([*chosen, "scale=smoke"], tmp_path)
    finding = short_runs.images(subject)
    assert finding.why_not.startswith("on images") and finding.why_not.count(reason) == 1
    assert "\n" not in finding.answer and finding.board == {} and not list(tmp_path.iterdir())


def test_diverged_short_runs_have_no_mean_and_are_reported_with_their_step(tmp_path, monkeypatch):
    runs = {
        "1": short_runs.ShortRun(record(bleu=12.0), [(3, 2.0)]),
        "2": short_runs.ShortRun(record(bleu=None, status="diverged", seed=2), []),
    }
    monkeypatch.setattr(short_runs, "short_runs", lambda *_: runs)
    finding = short_runs.translation(examined_norm(["norm=bn"], tmp_path))
    assert finding.answer == "diverged in 1 of 2 runs: seed 2 at step 100"
    assert finding.board == {"toy nll": "diverged 1/2", "toy BLEU": "diverged 1/2"}
    assert finding.values["scores"] == {"test/nll": {}, "test/bleu": {"1": 12.0}}
