"""A batch of sentences, a place in a model, and the outputs of a model."""

import torch

from normlab.placements.base import Place
from tests.models.small import DIM, sentences

IDS, TOKENS = sentences([6, 4, 5], seed=1)


def at(stack, layers, other=0, *, layer=0, sublayer="self"):
    return Place(stack=stack, layer=layer, layers=layers, other_layers=other, sublayer=sublayer)


def outputs(model):
    return model(IDS, TOKENS)[TOKENS.valid]


def x_of(width=DIM, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 6, width, generator=generator, dtype=torch.double)
