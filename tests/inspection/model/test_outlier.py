"""Attention with a 999 in a token."""

from normlab.inspection.model.outlier import outlier
from tests.inspection.tiny_models import trained


def test_with_an_outlier_the_softmax_saturates_without_a_norm_but_not_with_layer_norm(tmp_path):
    alive, dead = (outlier(trained(tmp_path, f"norm={norm}")) for norm in ("ln", "none"))
    assert alive.verdict == "fine" and dead.verdict == "look"
    with_ln, without = (each.values["model"]["as evaluated"] for each in (alive, dead))
    assert with_ln["alive"] and not without["alive"]
    slopes = [min(by["slope"] for by in each["outlier_in"].values()) for each in (with_ln, without)]
    assert slopes[1] < slopes[0] / 3
