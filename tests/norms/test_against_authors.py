"""Every published norm matches its authors' code in output, gradients and state."""

import numpy as np
import pytest
import torch
from torch import nn

from normlab.models.attention import SelfAttention, qk_sites
from normlab.models.layers import Linear
from normlab.models.seq2seq import Layer
from normlab.models.stack_builder import StackBuilder
from normlab.norms.base import Norm
from normlab.norms.make import make_norm
from normlab.norms.model_norms import ModelNorms
from normlab.norms.ramp import Clock
from normlab.norms.running import RunningNorm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Place
from scripts.parity import TRACES, trace
from scripts.parity_subjects import HEADS, HIDDEN, SHAPE, SUBJECTS, Driver
from tests.models.small import architecture, norms, placement


class Centered(nn.Module):
    """A linear layer with centered rows, then a norm."""

    def __init__(self, norm):
        super().__init__()
        self.linear = Linear(norm.dim, norm.dim)
        self.linear.centered = True
        self.norm = norm

    def forward(self, x, tokens):
        return self.norm(self.linear(x), tokens)


class Heads(nn.Module):
    """The norm on an attention's queries, applied to the heads of its input."""

    def __init__(self, sites):
        super().__init__()
        self.norm = sites["q"].norm
        self.sites = sites

    def forward(self, x, tokens):
        heads = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        return self.sites["q"](heads, tokens).transpose(1, 2).flatten(2)


def _sites(option):
    return qk_sites(option, dim=SHAPE[2] // HEADS, heads=HEADS, length=SHAPE[1])


def _heads(option, values):
    heads = Heads(_sites(option))
    for name, value in values.items():
        setattr(heads.norm, name, value)
    return heads


def _product(in_features, out_features, *roles):
    return Linear(in_features, out_features, gains=[1.0] * len(roles))


def _attention(option, values):
    """Return a self-attention with a norm on the heads of queries and keys, or with a gate."""
    sites = _sites(option)
    settings = {"num_heads": HEADS, "dropout": 0.0, "causal": False, "linear": _product}
    return SelfAttention(SHAPE[2], sites=sites, **settings, **values)


def _layer(option):
    """Return an encoder layer with a placement that has no norm."""
    sizes = architecture(dim=SHAPE[2], num_heads=HEADS, ffn_dim=HIDDEN)
    place = Place(stack="encoder", layer=0, layers=1, sublayer="self")
    return Layer(StackBuilder(sizes, placement(option), norms("none")), place, cross=False)


class Residuals(nn.Module):
    """An encoder with an opening, residuals around linear layers, and an end."""

    def __init__(self, option, *, norm, layers):
        super().__init__()
        wiring, given, dim = placement(option), norms(norm), SHAPE[2]
        where = {"stack": "encoder", "layers": layers, "sublayer": "self"}
        places = [Place(layer=number, **where) for number in range(layers)]
        self.opening = wiring.opening(given, dim, "encoder")
        built = (wiring.residuals(given, dim, [place, place.at("ffn")]) for place in places)
        self.residuals = nn.ModuleList(residual for layer in built for residual in layer)
        self.linears = nn.ModuleList(Linear(dim, dim) for _ in self.residuals)
        self.final = wiring.final(given, dim, "encoder")

    def forward(self, x, tokens):
        x = self.opening(x, tokens)
        for residual, linear in zip(self.residuals, self.linears, strict=True):
            x = residual(x, tokens, linear)
        return self.final(x, tokens)


def _ours(subject):
    if subject.around == "residuals":
        return Residuals(subject.option, **subject.values)
    if subject.around == "attention":
        return _attention(subject.option, subject.values)
    if subject.around == "heads":
        return _heads(subject.option, subject.values)
    if subject.around == "layer":
        return _layer(subject.option)
    norm = make_norm(subject.option, SHAPE[2], **subject.values)
    return Centered(norm) if subject.around == "centered product" else norm


def _norms(module):
    return [part for part in module.modules() if isinstance(part, Norm)]


def _begin(module, step):
    """Set the clock to `step` and the number of batches to `step - 1`."""
    for norm in _norms(module):
        norm.begin_step(Clock(step))
        if isinstance(norm, RunningNorm):
            norm.set_extra_state(torch.tensor([step, -1, step - 1]))


def _penalty(module):
    """Return the penalty that the norms add to the loss, or None."""
    return ModelNorms(module).penalty()


OURS = Driver(
    forward=lambda norm, x, valid: norm(x, Tokens(valid)),
    begin=_begin,
    penalty=_penalty,
)


@pytest.mark.parametrize("name", SUBJECTS)
def test_each_norm_matches_its_authors_code_at_every_step(name):
    subject = SUBJECTS[name]
    theirs = np.load(TRACES / f"{name}.npz")
    own = ({name: name for name in names} for names in (subject.names, subject.tables))
    ours = trace(_ours(subject), subject, OURS, *own)
    assert ours.keys() == set(theirs.files)
    for figure in theirs.files:
        expected = theirs[figure] / subject.factors.get(figure, 1.0)
        np.testing.assert_allclose(
            ours[figure], expected, rtol=subject.tolerance, atol=subject.tolerance, err_msg=figure
        )


def test_every_stored_trace_belongs_to_a_subject():
    assert {path.stem for path in TRACES.glob("*.npz")} == set(SUBJECTS)
