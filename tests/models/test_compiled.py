"""What of a compiled layer's forward pass runs outside its graphs (`observe.fast`)."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from normlab.norms.model_norms import ModelNorms
from normlab.norms.tokens import Tokens
from tests.models.small import DIM, NORMS, lm
from tests.train.trainers import on_ranks

STEPS = 8
LENGTHS = {1: [6, 4, 5], 2: [3, 7, 7, 2], 3: [5, 2], 7: [4, 9, 1], 8: [8, 3, 6]}
"""The sentences of some steps of a run, in which every phase of a norm ends."""
IN_PART = [NORMS[number::6] for number in range(6)]


class Outside(TorchDispatchMode):
    """Counts the operators that run outside graphs, and the graphs; both are compiled by `run`."""

    def __init__(self):
        super().__init__()
        self.graphs, self.inside, self.outside = 0, 0, 0

    @classmethod
    def ignore_compile_internals(cls):
        return True

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.outside += not self.inside
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


def outside(norm):
    """Return the operators of a layer outside its graphs at the last step, and the graphs."""
    torch._dynamo.reset()
    (layer,) = lm(norm, layers=1).train().decoder.layers
    count = Outside()
    layer.compile(backend=count.run, dynamic=True)
    norms = ModelNorms(layer)
    for step, lengths in LENGTHS.items():
        valid = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        x = torch.randn(*valid.shape, DIM, dtype=torch.float64, requires_grad=True)
        tokens = Tokens.collated(valid)
        norms.begin_step(step, STEPS)
        count.outside = 0
        with count:
            y = layer(x, tokens)
        norms.penalty()
        y.sum().backward()
        norms.commit()
    return count.outside, count.graphs


def outside_all(options):
    return {option: outside(option) for option in options}


@pytest.mark.parametrize("options", IN_PART, ids=" ".join)
def test_a_compiled_layer_is_one_graph_in_each_phase_of_its_norms(options):
    """In a process of its own: the shape checks of the tests cannot be compiled."""
    (found,) = on_ranks(1, outside_all, options)
    assert {option: operators for option, (operators, _) in found.items()} == dict.fromkeys(
        options, 0
    )
    assert max(graphs for _, graphs in found.values()) <= 3
