"""The patches of a vision Transformer."""

import pytest
import torch

from tests.tasks.image_models import VIT, model_of


@pytest.mark.parametrize("pool", ["mean", "class"])
def test_a_vision_transformer_reads_patches_row_by_row(pool):
    model, _ = model_of(*VIT, f"model.pool={pool}", "model.dropout=0", "precision=fp64")
    embedding = model.get_submodule("encoder.embedding")
    pixels = torch.rand(2, 8, 8, 1, dtype=torch.float64)
    seen: list[torch.Tensor] = []
    embedding.patches.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    assert model.eval()(pixels).shape == (2, 10)
    torch.testing.assert_close(seen[0][0, 1], pixels[0, :4, 4:].flatten())
    assert len(embedding.positions.weight) == (5 if pool == "class" else 4)
