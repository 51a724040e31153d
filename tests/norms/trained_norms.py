"""Steps of norms with state."""

import torch

from normlab.norms.make import make_norm
from normlab.norms.model_norms import ModelNorms
from normlab.norms.ramp import Clock
from normlab.norms.tokens import Tokens

PAST = 12  # steps: past the end of every warm-up
VALID = torch.arange(6)[None] < torch.tensor([6, 2, 4, 5])[:, None]


def random_batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 6, 8, generator=generator, dtype=torch.float64) * 3 + 2
    return x, Tokens(VALID)


def take_step(norm, step, *, total=PAST, seed=None):
    x, tokens = random_batch(step if seed is None else seed)
    x.requires_grad_()
    norm.begin_step(Clock(step, total))
    y = norm(x, tokens) * tokens.valid[..., None]
    (y * y.detach().cos()).sum().backward()
    return y.detach(), x.grad


def trained_norm(option, steps=PAST, **values):
    norm = make_norm(option, 8, **values).double()
    for step in range(1, steps + 1):
        take_step(norm, step)
    return norm


def model_norms_of(*norms, **settings):
    return ModelNorms(torch.nn.Sequential(*norms), **settings)
