"""Norms that a residual network refuses."""

import pytest

from normlab.inspection.card import short_runs
from normlab.inspection.card.examined_norm import examined_norm


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        (["norm=ln", "placement=post"], "on images: placement: a residual network has its norms"),
        (["norm=gn", "norm.groups=32"], "groups=32 does not divide the width 8"),
        (["norm=scale"], "raises TypeError: no padding"),
    ],
)
def test_a_norm_that_cannot_stand_on_pictures_says_why(chosen, reason, tmp_path, monkeypatch):
    def forward(*_):
        raise TypeError("no padding\nthere")

    monkeypatch.setattr("normlab.norms.rms.ScaleNorm.forward", forward)
    subject = examined_norm([*chosen, "scale=smoke"], tmp_path)
    found = short_runs.pictures(subject)
    assert found.why_not.startswith("on images") and found.why_not.count(reason) == 1
    assert "\n" not in found.answer and found.board == {} and not list(tmp_path.iterdir())
