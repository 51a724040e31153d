"""Attention weights, and their total variation over sets of batch mates."""

import pytest
import torch

from normlab.inspection.model.batch_mates import attention_weights, total_variation
from normlab.inspection.model.recorded_pass import record
from normlab.models.attention import AttentionCore
from normlab.probes.sites import modules_by_site
from tests.inspection.tiny_models import untrained


def test_recorded_attention_weights_reproduce_the_output_of_attention(tmp_path):
    about = untrained(tmp_path, "norm=ln")
    mixed = {}
    handles = [
        core.register_forward_hook(
            lambda _, given, output, name=name: mixed.update({name: (given[2][0], output[0])})
        )
        for name, core in modules_by_site(about.model, AttentionCore).items()
    ]
    seen = record(about, about.batch("train", range(5)))
    for handle in handles:
        handle.remove()
    assert sorted(seen.attentions) == ["decoder.0.cross", "decoder.0.self", "encoder.0.self"]
    for name, each in seen.attentions.items():
        value, output = mixed[name]
        weights = attention_weights(each.query, each.key, each.visible)
        torch.testing.assert_close(weights @ value, output)


def test_total_variation_matches_hand_calculations():
    one = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])
    two = torch.tensor([[[0.0, 1.0], [0.5, 0.5]]])
    # The first row's mean is (1/2, 1/2), at a distance of 1/2 from each; the second row is
    # constant.
    assert total_variation([one, two]) == pytest.approx(0.25)
    wider = torch.tensor([[[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]])
    assert total_variation([one, wider]) == pytest.approx(0.25)
