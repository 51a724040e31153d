"""The documents' 999 by hand, and what an outlier in the model does to whom."""

import math

import pytest

from normlab.inspect import outlier
from normlab.inspect.outlier import through
from normlab.train.build import make_norm
from tests.inspect.subjects import EVERY_KIND, OVER_BATCH, examined, trained


@EVERY_KIND
def test_an_outlier_reaches_other_sentences_only_through_the_statistics_of_the_batch(
    tmp_path, norm, placement
):
    about = trained(tmp_path, f"norm={norm}", f"placement={placement}")
    finding = examined(about, outlier.outlier)
    model = finding.values["model"]
    assert ("of the batch" in model) == (norm in OVER_BATCH)
    for statistics, found in model.items():
        assert found["outlier_in"].keys() == {"encoder", "decoder"}
        for stack, by in found["outlier_in"].items():
            assert by["moved"][stack]["own"] > 0
            assert (by["moved"][stack]["others"] > 0) == (statistics == "of the batch")
        # The encoder does not see the decoder; the decoder sees what the encoder made of it.
        assert found["outlier_in"]["decoder"]["moved"]["encoder"] == {"own": 0, "others": 0}
        assert found["outlier_in"]["encoder"]["moved"]["decoder"]["own"] > 0


# The document's sentence ------------------------------------------------------------------------


def test_layer_norm_of_the_documents_sentence_by_hand():
    found = through(make_norm("ln", 4))
    # Of 10, 20, 999, -5: mean 256, variance 736382 / 4.
    deviation = math.sqrt(736382 / 4)
    expected = [(value - 256) / deviation for value in (10, 20, 999, -5)]
    assert found["values"][0] == pytest.approx(expected, rel=1e-6)
    assert found["values"][0] == pytest.approx([-0.573, -0.550, 1.732, -0.608], abs=1e-3)
    assert found["values"][2] == [0, 0, 0, 0]
    # "I" on itself 4 / 2, on "eat" 0, on "love" y_1 y_2 / 2 with y_2 = -a, 3 a, -a, -a.
    a = 0.025 / math.sqrt(0.001875 + 1e-5)
    love = a * (-expected[0] + 3 * expected[1] - expected[2] - expected[3]) / 2
    weights = [math.exp(2), math.exp(love), 1]
    shares = [weight / sum(weights) for weight in weights]
    assert found["largest_weight"][0] == pytest.approx(shares[0], rel=1e-5)
    assert found["slope"][0] == pytest.approx(1 - sum(p * p for p in shares), rel=1e-5)
    assert found["slope"][2] == pytest.approx(2 / 3)  # "eat" looks at all three alike
    assert found["largest_logit"] == pytest.approx(2, rel=1e-5)


# The model --------------------------------------------------------------------------------------


def test_layer_norm_keeps_the_softmax_alive_where_no_norm_lets_it_saturate(tmp_path):
    alive = outlier.outlier(trained(tmp_path, "norm=ln", "placement=pre"))
    dead = outlier.outlier(trained(tmp_path, "norm=none", "placement=pre"))
    kept, lost = (found.values["model"]["as evaluated"] for found in (alive, dead))
    assert kept["alive"]
    assert kept["saturated"]["after"] == 0
    assert not lost["alive"]
    assert lost["saturated"]["after"] > 0.5
    assert lost["least_slope"]["after"] < kept["least_slope"]["after"] / 3
    assert "keeps the softmax alive" in alive.answer
    assert "saturates" in dead.answer
