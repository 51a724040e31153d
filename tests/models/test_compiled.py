"""Compiled layers compute what plain ones do, forward and backward."""

import torch

from tests.models.small import lm, sentences
from tests.train.trainers import on_ranks


def outputs_and_gradients(place, *, compiled):
    model = lm("ln", place, layers=1).train()
    if compiled:
        for layer in model.decoder.layers:
            layer.compile(backend="eager", fullgraph=True, dynamic=False)
    ids, stream = sentences([6, 4, 5], seed=1)
    y = model(ids, stream)[stream.valid]
    (y * y.detach().cos()).sum().backward()
    return {"output": y.detach(), **{name: p.grad for name, p in model.named_parameters()}}


def unlike():
    """Return in what the compiled model differs, or why it is none; None if it is the same."""
    try:
        both = [outputs_and_gradients("hybrid", compiled=compiled) for compiled in (True, False)]
        torch.testing.assert_close(*both)
    except (AssertionError, RuntimeError) as error:
        return str(error)


def test_compiled_layers_are_the_plain_ones():
    """In a process of its own: the shape checks of the tests cannot be compiled."""
    assert on_ranks(1, unlike) == [None]
