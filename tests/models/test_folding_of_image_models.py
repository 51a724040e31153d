"""Folding batch norms of image models."""

import pytest
import torch

from normlab.models.folding import fold
from normlab.norms.running import running_norms
from tests.tasks.image_models import VIT, model_of


@pytest.mark.parametrize(
    ("overrides", "count"),
    [
        (("task=digits", "model.width=4", "model.shortcut=projection"), 9),
        ((*VIT, "norm@ffn_inner_norm=bn", "model.num_layers=2"), 7),
    ],
)
def test_folding_batch_norms_removes_them_without_changing_the_logits(overrides, count):
    model, task = model_of(*overrides, "norm=bn")
    for norm in running_norms(model.eval()):
        mean, var = torch.randn(2, 1, norm.dim, dtype=torch.double)
        norm.enter(slice(1), mean, var.square() + 0.5, torch.ones(1, dtype=torch.double))
        torch.nn.init.uniform_(norm.weight)
    batch = task.batch("valid", range(8))
    with torch.no_grad():
        expected = task.logits(model, batch)
        folded = fold(model)
        assert len(folded) == count and not running_norms(model)
        torch.testing.assert_close(task.logits(model, batch), expected)
