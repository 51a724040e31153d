"""How many operators a training step of a small model dispatches, counted without a GPU.

Kernel launches limit the speed of small models. On the device `meta` nothing is computed, so the
count is exact; views launch no kernel and are left out.
"""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.norms.base import Norm
from normlab.norms.model_norms import ModelNorms
from normlab.norms.tokens import Tokens
from normlab.tasks.translation import TranslationBatch
from normlab.training.build import build_model
from tests.models.small import Words

VIEWS = "view _unsafe_view transpose unsqueeze permute t expand slice split detach select alias"
VIEWS += " squeeze as_strided split_with_sizes promote_types lift_fresh"
VIEWS = {f"aten.{name}" for name in VIEWS.split()}


class Counted(TorchDispatchMode):
    """Counts the operators that are dispatched inside the block, except views."""

    def __init__(self):
        super().__init__()
        self.names = Counter()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if str(operator).rpartition(".")[0] not in VIEWS:
            self.names[str(operator)] += 1
        return operator(*args, **(kwargs or {}))


def operators(norm, *changes, padded):
    """Return the operators of the forward and backward pass of the model `tiny`, and its norms."""
    task = Words()
    task.label_smoothing = 0.1
    model = (
        build_model(to_dict(compose(["model=tiny", f"norm={norm}", *changes])), task)
        .to("meta")
        .train()
    )
    norms = [module for module in model.modules() if isinstance(module, Norm)]
    ModelNorms(model).begin_step(50, 100)  # past the warm-up
    shape, real = (4, 7), 20 if padded else 28
    ids, rows = (torch.ones(*size, dtype=torch.long, device="meta") for size in (shape, (real,)))
    valid = torch.ones(shape, dtype=torch.bool, device="meta")
    tokens = Tokens(valid, rows=rows) if padded else Tokens()
    sides = {"source": ids, "source_tokens": tokens, "tgt_in": ids, "tgt_tokens": tokens}
    counts = {"counts": {"loss": real}, "tokens": real, "positions": 56}
    batch = TranslationBatch(**sides, **counts, tgt_out=rows)
    with Counted() as forward:
        loss = task.losses(model, batch)["loss"]
    one = torch.ones_like(loss)
    with Counted() as backward:
        loss.backward(one)
    sizes = [sum(each.names.values()) for each in (forward, backward)]
    return *sizes, sum(type(each).__name__ != "NoNorm" for each in norms)


def test_batch_norm_adds_at_most_8_forward_and_6_backward_operators_on_a_padded_batch():
    forward, backward, count = operators("bn", padded=True)
    base_forward, base_backward, _ = operators("none", padded=True)
    assert (forward - base_forward) / count <= 8 and (backward - base_backward) / count <= 6


@pytest.mark.parametrize(
    ("norm", "limits"),
    [("bn", (300, 191)), ("ln", (190, 185)), ("mabn", (440, 341)), ("un", (476, 341))],
)
def test_a_training_step_stays_within_its_limit_of_operators(norm, limits):
    forward, backward, _ = operators(norm, padded=False)
    assert forward <= limits[0] and backward <= limits[1]


def test_power_norm_takes_at_most_twice_the_operators_of_batch_norm():
    forward, backward, _ = operators("pn", padded=True)
    of_bn, of_bn_backward, _ = operators("bn", padded=True)
    assert forward <= 2 * of_bn and backward <= 2 * of_bn_backward


@pytest.mark.parametrize("kind", ["headwise", "elementwise"])
def test_an_attention_gate_adds_three_operators(kind):
    forward, _, _ = operators("ln", f"model.attention_gate={kind}", padded=False)
    attentions = 2 * (1 + 2)  # one in each encoder layer, two in each decoder layer
    assert forward - operators("ln", padded=False)[0] == 3 * attentions
