"""Admin: post-norm with a learned weight per feature on the stream, set before the first step.

        x ---+--> sub-layer --> dropout --> (+) --> norm --> y
             |                               |
             +--> x omega -------------------+

    y = norm(omega x + f(x))

    closing norm: none, since the last layer ends in one.
    at initialization: one batch passes through the model as in training, and in each stack

        omega_1 = 1,  omega_{i+1}^2 = omega_i^2 Var(x_i) + Var(f_i)

    over all features of all tokens, f_i after dropout: omega says how much of the stream came
    before branch i. Or, without a batch, from the number R of connections of the stack alone
    (`omega: log`, `omega: constant`: how the change of the output may grow with R),

        omega = sqrt((R + 1) / ln(R + 1) - 1)  or  sqrt(R)

Source: Liu et al. 2020 ("Understanding the Difficulty of Training Transformers"), section 4.3, and
the authors' Transformer-Clinic and admin-torch. Their profile counts padding (`padding: include`).
"""

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.norms.base import Norm, Stream, normalized_by
from normlab.norms.ranks import sum_over_ranks
from normlab.placements.base import NormResidual, Norms, Place
from normlab.placements.post import Post

Omega = Literal["profile", "log", "constant"]
Padding = Literal["exclude", "include"]


class AdminResidual(NormResidual):
    """y = norm(omega * x + dropout(branch(x)))."""

    def __init__(self, norm: Norm, dropout: float, start: float):
        super().__init__(norm, dropout)
        self.omega = nn.Parameter(torch.full((norm.dim,), start))

    def forward(self, x: Tensor, stream: Stream, branch: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(self.omega * x + self.dropout(branch(x)), stream)


class ProfiledResidual(AdminResidual):
    """An Admin residual whose omega comes from the profile of the branches before it."""

    def __init__(self, norm: Norm, dropout: float, *, first: bool, padding: Padding):
        super().__init__(norm, dropout, 1.0)
        self.first = first
        self.padding: Padding = padding

    def counted(self, x: Tensor, stream: Stream) -> Bool[Tensor, "B P"]:
        """Return which tokens of `x` count in the profile."""
        return (stream if self.padding == "exclude" else Stream()).real(x)


class Admin(Post):
    """Admin placement.

    Args:
        dropout: as for any placement.
        omega: `profile`, or one of admin-torch's formulas (see the module's docstring).
        padding: whether the profile counts padding.
    """

    def __init__(self, *, dropout: float, omega: Omega, padding: Padding):
        super().__init__(dropout=dropout)
        self.omega: Omega = omega
        self.padding: Padding = padding

    def residual(self, norms: Norms, dim: int, place: Place) -> AdminResidual:
        norm = norms.at(place.path, dim)
        if self.omega == "profile":
            return ProfiledResidual(norm, self.dropout, first=place.first, padding=self.padding)
        return AdminResidual(norm, self.dropout, closed_form(self.omega, place.connections))


def closed_form(omega: Literal["log", "constant"], connections: int) -> float:
    """Return admin-torch's omega for a stack of that many residual connections."""
    if omega == "constant":
        return math.sqrt(connections)
    return math.sqrt((connections + 1) / math.log(connections + 1) - 1)


def needs_profile(model: nn.Module) -> bool:
    """Tell whether any initial value of the model comes from a profile."""
    return any(isinstance(module, ProfiledResidual) for module in model.modules())


@torch.no_grad()
def profile(model: nn.Module, run_batch: Callable[[], object], *, seed: int) -> None:
    """Set the omegas of a model from `run_batch`, a forward pass of one batch.

    The model computes what it does in training, including dropout (drawn from `seed`) and the
    batch's own statistics, and keeps nothing but the omegas: no running statistics, gradients or
    random numbers. Every process must call it, before the model is compiled; they share their sums
    and so find the same values.
    """
    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    total = torch.ones((), dtype=torch.float64)
    streams: dict[nn.Module, Stream] = {}

    def enter(residual: nn.Module, arguments: tuple[Any, ...]) -> None:
        nonlocal total
        assert isinstance(residual, ProfiledResidual)
        x, streams[residual], *_ = arguments
        if residual.first:
            total = torch.ones((), dtype=torch.float64, device=x.device)
        residual.omega.copy_(total.sqrt())
        total = variance(residual.omega * x, residual.counted(x, streams[residual]))

    def leave(residual: ProfiledResidual, _: nn.Module, __: tuple[Any, ...], out: Tensor) -> None:
        nonlocal total
        total = total + variance(out, residual.counted(out, streams[residual]))

    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(list(devices)))
        stack.enter_context(normalized_by(model, "batch", in_step=True))
        torch.manual_seed(seed)
        for module in model.modules():
            module.training = not isinstance(module, Norm)
            if isinstance(module, ProfiledResidual):
                stack.callback(module.register_forward_pre_hook(enter).remove)
                hook = module.dropout.register_forward_hook(partial(leave, module))
                stack.callback(hook.remove)
        run_batch()


def variance(x: Float[Tensor, "B P D"], counted: Bool[Tensor, "B P"]) -> Float[Tensor, ""]:
    """Return the variance over all features of the counted tokens of all processes."""
    wide = x.double() * counted[..., None]
    count = counted.sum().double() * x.shape[-1]
    sums = torch.stack([count, wide.sum(), wide.square().sum()])
    count, first, second = sum_over_ranks(sums).unbind()
    return second / count - (first / count).square()
