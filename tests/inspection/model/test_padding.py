"""Sentences of the same lengths, padded to growing shares."""

import numpy as np

from normlab.inspection.model import padding
from normlab.inspection.model.padding import same_lengths
from tests.inspection.tiny_models import examined, trained, untrained


def test_the_most_common_combination_of_lengths_is_chosen(monkeypatch):
    monkeypatch.setattr(padding, "SENTENCES", 32)

    def picked(lengths):
        measured = same_lengths(np.array(lengths), longest=100, generator=np.random.default_rng(0))
        return [lengths[index] for index in measured]

    assert picked([(5, 6)] * 9 + [(5, 7)] * 40 + [(5, 8)] * 20) == [(5, 7)] * 32
    assert picked([(5, 6)] * 9 + [(5, 7)] * 4) == [(5, 6)] * 9


STACKS = ("encoder", "decoder")


def test_included_padding_changes_outputs_only_in_training(tmp_path):
    about = trained(tmp_path, "norm=bn", "norm.padding=include")
    finding = examined(about, padding.padding)
    moved = finding.values["moved"]
    for stack in STACKS:
        first, some, most = moved["training"][stack]
        assert first == 0 and most > some > 1e-3 and max(moved["eval"][stack]) < 1e-5
    assert "not at all" in finding.answer.partition("statistics")[2]
    assert finding.verdict == "look" and finding.value == max(
        x[-1] for x in moved["training"].values()
    )


def test_padding_never_exceeds_the_number_of_positions(tmp_path):
    rows = ("norm=bn_position", "norm.num_positions=40")
    measured = padding.padding(untrained(tmp_path, *rows)).values
    assert measured["shares"][-1] < 0.8
    assert max(measured["lengths"]) / (1 - measured["shares"][-1]) <= 40
