"""GPAS: its gates, and gradients that they do not scale."""

import torch
from torch.autograd import gradcheck

from tests.models.small import assert_close, lm
from tests.placements.places import TOKENS, outputs, x_of


def test_gpas_starts_bitwise_equal_to_pre_norm_with_one_gate_per_layer():
    pre, gpas = (lm("ln", place, fresh=True) for place in ("pre", "gpas"))
    assert torch.equal(outputs(gpas), outputs(pre))
    apart = lm("ln", "gpas", fresh=True, values={"shared": False})
    for model, count in ((gpas, 2), (apart, 4)):
        assert sum(name.endswith("gate") for name, _ in model.named_parameters()) == count


def test_gpas_scales_the_residual_stream_but_not_its_gradient():
    """Its gradient in x is therefore not the derivative of its value; the one in the gate is."""
    layer = lm("ln", "gpas").decoder.layers[0]
    residual, x, pull = layer.self_residual, x_of(), x_of(seed=1)

    def y(x, gate=residual.gate):
        residual._parameters["gate"] = gate
        return residual(x, TOKENS, lambda h: layer.self_attention(h, TOKENS))

    gate, real = torch.tensor(0.7, dtype=torch.double), TOKENS.valid[..., None]
    inputs = [x.requires_grad_(), gate.requires_grad_()]
    h = y(x, torch.zeros(()))  # pre-norm
    (expected,) = torch.autograd.grad((h * pull * real).sum(), x)
    dx, dgate = torch.autograd.grad((y(x, gate) * pull * real).sum(), inputs)
    assert_close(dx, expected)
    s = torch.sigmoid(gate)
    assert_close(dgate, -s * (1 + gate * (1 - s)) * (h * pull)[TOKENS.valid].sum())
    fixed = x.detach()
    assert gradcheck(lambda gate: y(fixed, gate) * real, gate, fast_mode=True)
    assert not gradcheck(lambda x: y(x, gate) * real, x, fast_mode=True, raise_exception=False)
