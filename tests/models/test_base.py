"""The blocks and stacks that models declare are what compilation and inspection use."""

import pytest
import torch
import torch._dynamo
from torch import nn

from normlab.inspection.model import batch_mates
from normlab.inspection.model.built_model import model_from_overrides
from normlab.inspection.model.leak import leak
from normlab.inspection.model.outlier import outlier
from normlab.models.base import stacks
from normlab.training.build import make_fast
from tests.inspection.tiny_models import examined
from tests.models.small import lm, sentences
from tests.training.trainers import on_ranks

RESNET = ("task=digits", "model=resnet8", "model.width=4")
ROWS = ("task=digits", "model=lstm", "model.dim=4", "model.read=rows")
VIT = ("task=digits", "model=vit", "model.dim=8", "model.ffn_dim=8", "model.num_heads=2")


def subject_for(*overrides):
    return model_from_overrides([*overrides, "observe.threads=1", "precision=fp64"])


@pytest.mark.parametrize(
    ("overrides", "number"),
    [(RESNET, 3), ((*VIT, "model.num_layers=2"), 2), (("task=toy", "model=tiny"), 4)],
)
def test_the_fast_path_compiles_each_block(overrides, number, monkeypatch):
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: compiled.append(self))
    subject = subject_for(*overrides)
    with torch._dynamo.config.patch(recompile_limit=8):
        make_fast(subject.model)
        assert torch._dynamo.config.recompile_limit >= 2 * 4 * 3 + 6, "padding, phases, eval"
    assert len(set(compiled)) == len(compiled) == number


def test_the_fast_path_is_refused_for_a_model_without_blocks():
    subject = subject_for(*ROWS)
    with pytest.raises(ValueError, match=r"observe\.fast=true: RecurrentClassifier has no blocks"):
        make_fast(subject.model)


@pytest.mark.parametrize("norm", ["bn", "ln"])
def test_the_output_for_an_image_depends_on_other_images_only_with_batch_norm(norm, monkeypatch):
    monkeypatch.setattr(batch_mates, "SETS", 3)
    subject, name = subject_for(*RESNET, f"norm={norm}"), "network"
    assert list(stacks(subject.model)) == [name]
    leaked, moved = (examined(subject, which).values for which in (leak, batch_mates.batch_mates))
    over_batch = norm == "bn"
    assert leaked["training"][name]["own"] > 0
    assert (leaked["training"][name]["others"] > 1e-6) == over_batch
    assert (moved["values"]["training"][name] > 1e-6) == over_batch
    assert leaked["eval"][name]["others"] == 0
    assert moved["values"]["eval"][name] < 1e-12
    assert "no attention" in str(examined(subject, outlier).why_not)


def outputs_and_gradients(place, *, compiled):
    model = lm("ln", place, layers=1).train()
    if compiled:
        for layer in model.decoder.layers:
            layer.compile(backend="eager", fullgraph=True, dynamic=False)
    ids, tokens = sentences([6, 4, 5], seed=1)
    y = model(ids, tokens)[tokens.valid]
    (y * y.detach().cos()).sum().backward()
    return {"output": y.detach(), **{name: p.grad for name, p in model.named_parameters()}}


def compiled_difference():
    """Return how compiling changes the results or why it fails, or None if they are equal."""
    try:
        both = [outputs_and_gradients("hybrid", compiled=compiled) for compiled in (True, False)]
        torch.testing.assert_close(*both)
    except (AssertionError, RuntimeError) as error:
        return str(error)


def test_compiled_layers_have_the_same_outputs_and_gradients_as_eager_ones():
    """It runs in a separate process, because the tests' shape checks cannot be compiled."""
    assert on_ranks(1, compiled_difference) == [None]
