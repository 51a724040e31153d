"""Attention with a 999 in a token."""

from normlab.inspection.model import (
    injected_outlier,
)
from tests.inspection.tiny_models import trained


def test_layer_norm_keeps_the_softmax_alive_where_no_norm_lets_it_saturate(tmp_path):
    alive, dead = (
        injected_outlier.outlier(trained(tmp_path, f"norm={norm}")) for norm in ("ln", "none")
    )
    assert alive.verdict == "fine" and dead.verdict == "look"
    kept, lost = (each.values["model"]["as evaluated"] for each in (alive, dead))
    assert kept["alive"] and not lost["alive"]
    slopes = [min(by["slope"] for by in each["outlier_in"].values()) for each in (kept, lost)]
    assert slopes[1] < slopes[0] / 3
