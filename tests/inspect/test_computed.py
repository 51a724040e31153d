"""The checks give the figures that the documents state, or what is so instead."""

import time
from functools import cache

import pytest

from normlab.inspect import computed
from normlab.inspect.computed import names

compute = cache(computed.compute)


def pieces(name):
    return {piece.question.split(":")[0]: piece for piece in compute(name)}


def standings(name):
    return [piece.standing for piece in compute(name)]


def test_five_zeros_move_the_mean_to_1_5_and_the_variance_to_3_25():
    found = pieces("padding.pollutes")
    for name in ("nn.BatchNorm1d", "bn"):
        assert found[name].numbers == pytest.approx({"mean": 1.5, "var": 3.25})
    assert found["it is the padding"].numbers == pytest.approx({"mean": 3.0, "var": 2.0})
    assert {piece.standing for piece in found.values()} == {"supports"}


def test_layer_norm_does_not_move_at_all():
    first, _ = compute("padding.spares")
    assert first.numbers == {"largest": 0.0}
    assert standings("padding.spares") == ["supports"] * 2
    assert standings("modes.agreement") == ["supports"] * 2


def test_n_counts_tokens_and_correlated_ones_count_for_less():
    single, sentences, alike = compute("sampling.variance_of_the_mean")
    assert single.numbers["slope"] == pytest.approx(-1, abs=0.05)
    assert sentences.numbers["per_sentence"] == pytest.approx(16, rel=0.05)
    assert alike.numbers["design_effect"] == pytest.approx(1 + 15 * 0.1, rel=0.05)
    assert [p.standing for p in (single, sentences, alike)] == [
        "supports",
        "contradicts",
        "contradicts",
    ]


def test_the_documents_tensor():
    found = pieces("axes.worked")
    assert found["bn_sample"].numbers == pytest.approx({"mean": 1.5, "var": 2.25})
    assert found["ln"].numbers == pytest.approx({"mean": 2.5, "var": 1.25})
    assert found["bn"].numbers == pytest.approx({"mean": 4.0, "var": 35 / 3})
    assert {piece.standing for piece in found.values()} == {"supports"}


def test_the_documents_code_raises_and_its_example_is_another_norm():
    code, example, papers = compute("axes.positions")
    assert "should contain 4 elements not 3" in code.finding
    assert "8 values of all features (mean 1.5)" in example.finding
    assert "6 values" in papers.finding
    assert standings("axes.positions") == ["contradicts"] * 3


def test_batch_mates_matter_in_training_alone():
    training, layer, evaluation = compute("batch.mates")
    assert training.numbers["values"] > 0.01 and training.numbers["attention"] > 0.001
    assert layer.numbers["values"] < 1e-12 and evaluation.numbers["values"] < 1e-12
    assert standings("batch.mates") == ["supports", "supports", "contradicts"]


def test_running_statistics_know_no_batch_no_length_and_no_future():
    assert standings("batch.alone") == ["contradicts", "supports", "contradicts", "supports"]
    assert standings("batch.generation") == ["contradicts", "supports"]


def test_two_processes_differ_unless_they_share_statistics():
    own, shared, layer = compute("batch.ranks")
    assert own.numbers["moved"] > 0.01 and shared.numbers["moved"] < 1e-12
    assert [p.standing for p in (own, shared, layer)] == ["supports", "contradicts", "supports"]


def test_training_and_inference_differ_less_for_many_tokens():
    first, second = compute("modes.mismatch")
    assert first.numbers["few"] > 2 * first.numbers["many"] > 0
    assert second.numbers["moved"] == 0


def test_what_norms_keep():
    found = pieces("modes.buffers")
    assert found["bn keeps running statistics"].finding == "running_mean, running_var"
    assert {piece.standing for piece in found.values()} == {"supports"}


def test_order_is_kept_without_weights_and_not_with_them():
    *alone, learned = compute("order.kept")
    assert [piece.numbers["exact"] for piece in alone] == [1, 1, 0, 0]
    assert learned.standing == "contradicts" and 0.9 < learned.numbers["rho"] < 1


def test_the_outlier_kills_the_softmax_unless_layer_norm_stands_before_it():
    bare, layer = compute("outlier.softmax")
    assert bare.numbers["slope"] == 0
    assert layer.numbers["value"] == pytest.approx(1.73, abs=0.005)
    assert layer.numbers["slope"] == pytest.approx(0.298, abs=0.001)


def test_all_of_them_take_seconds():
    start = time.process_time()
    for name in names():
        assert computed.compute(name), name
    assert time.process_time() - start < 30  # about 3 on a quiet core


def test_an_unknown_check_names_those_there_are():
    with pytest.raises(ValueError, match=r"no question 'padding.eats': .*padding.pollutes"):
        compute("padding.eats")


def test_statistics_by_position_grow_with_the_longest_sequence():
    (piece,) = compute("modes.memory")
    assert piece.standing == "supports"
    assert piece.numbers["of_256"] == 4 * piece.numbers["of_64"]
    assert piece.finding.endswith("bn keeps 128 whatever the length")
