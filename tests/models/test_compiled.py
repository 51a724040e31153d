"""Compiled layers compute what plain ones do, in placements of each kind."""

import torch

from tests.models.small import lm, sentences
from tests.train.trainers import on_ranks

# As inductor does it takes torch's kernels apart before it traces them. The backend `aot_eager`
# keeps layer norm's backward pass whole, of which torch 2.13 expects other strides than it has
# on a CPU where the gradient is a transposed tensor, as that of HybridNorm's keys is.
BACKEND = "aot_eager_decomp_partition"


def outputs_and_gradients(place, *, compiled):
    model = lm("ln", place, layers=1).train()
    if compiled:
        for layer in model.decoder.layers:
            layer.compile(backend=BACKEND, fullgraph=True, dynamic=False)
    ids, stream = sentences([6, 4, 5], seed=1)
    y = model(ids, stream)[stream.valid]
    (y * y.detach().cos()).sum().backward()
    return {"output": y.detach(), **{name: p.grad for name, p in model.named_parameters()}}


def unlike():
    """Return by placement in what the compiled model differs, or why it is none."""
    found = {}
    for place in ("resi_dual", "hybrid"):
        torch.compiler.reset()
        try:
            both = [outputs_and_gradients(place, compiled=compiled) for compiled in (True, False)]
            torch.testing.assert_close(*both)
        except (AssertionError, RuntimeError) as error:
            found[place] = str(error)
    return found


def test_compiled_layers_are_the_plain_ones():
    """In a process of its own: the shape checks of the tests cannot be compiled."""
    assert on_ranks(1, unlike) == [{}]
