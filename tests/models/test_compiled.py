"""How much of a compiled norm's forward pass runs outside its graphs (`observe.fast`)."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from normlab.norms.make import make_norm
from normlab.norms.model_norms import ModelNorms
from normlab.norms.tokens import Tokens
from tests.models.small import DIM, NORMS, lm
from tests.training.trainers import on_ranks

STEPS = 8
LENGTHS = {1: [6, 4, 5], 2: [3, 7, 7, 2], 3: [5, 2], 7: [4, 9, 1], 8: [8, 3, 6]}
"""The sentence lengths at some steps of a run, chosen so that every phase of a norm ends."""
IN_PART = [NORMS[number::3] for number in range(3)]


class Outside(TorchDispatchMode):
    """Counts graphs, which `run` compiles, and the operators that run outside of them."""

    def __init__(self):
        super().__init__()
        self.graphs, self.inside, self.outside = 0, 0, 0

    @classmethod
    def ignore_compile_internals(cls):
        return True

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        # A constant from a Python number launches no kernel.
        constant = operator is torch.ops.aten.lift_fresh.default
        self.outside += not (self.inside or constant)
        return operator(*args, **(kwargs or {}))

    def run(self, graph, example):
        self.graphs += 1

        def call(*args):
            self.inside += 1
            try:
                return graph.forward(*args)
            finally:
                self.inside -= 1

        return call


def outside(option, *, in_layer=False, **sizes):
    """Return the operators outside graphs at the last step, and the number of graphs."""
    torch._dynamo.reset()
    model = make_norm(option, DIM).train()
    if in_layer:
        (model,) = lm(option, layers=1, sizes=sizes).float().train().decoder.layers
    count = Outside()
    model.compile(backend=count.run, dynamic=True)
    norms = ModelNorms(model)
    for step, lengths in LENGTHS.items():
        valid = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        x = torch.randn(*valid.shape, DIM, requires_grad=True)
        tokens = Tokens.collated(valid)
        norms.begin_step(step, STEPS)
        count.outside = 0
        with count:
            y = model(x, tokens)
        norms.penalty()
        y.sum().backward()
        norms.commit()
    return count.outside, count.graphs


def outside_all(options):
    return {option: outside(option) for option in options}


@pytest.mark.parametrize("options", IN_PART, ids=" ".join)
def test_a_compiled_norm_is_one_graph_in_each_of_its_phases(options):
    """It runs in a separate process, because the tests' shape checks cannot be compiled."""
    (found,) = on_ranks(1, outside_all, options)
    assert {option: count for option, (count, _) in found.items() if count} == {}
    assert {option: graphs for option, (_, graphs) in found.items() if graphs > 3} == {}


def in_layers(options):
    return {option: outside(option, in_layer=True) for option in options}


def test_layers_whose_norms_keep_gradients_or_add_a_penalty_compile_without_graph_breaks():
    (found,) = on_ranks(1, in_layers, ["un", "rbn"])
    assert found == {"un": (0, 2), "rbn": (0, 1)}


def gated_layers(kinds):
    return {kind: outside("ln", in_layer=True, attention_gate=kind) for kind in kinds}


def test_a_layer_with_gated_attention_compiles_to_one_graph():
    (found,) = on_ranks(1, gated_layers, ["none", "headwise", "elementwise"])
    assert found["headwise"] == found["elementwise"] == found["none"] == (0, 1)
