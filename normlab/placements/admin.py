"""Admin: post-norm with a learned weight per feature on the stream, initialized from one batch.

    y = norm(omega x + f(x))

    x: the residual stream [B, P, D]; f: the sub-layer and its dropout; omega: [D].
    closing norm: none, because the last layer already ends in a norm.
    at initialization: one batch passes through the model as in training. Then, in each stack,

        omega_1 = 1,  omega_{i+1}^2 = omega_i^2 Var(x_i) + Var(f_i)

    for the residual connections i = 1, 2, ..., with Var over all features of all tokens. So
    omega_i^2 is the variance that the stream has accumulated before branch i.

Source: Liu et al. 2020 ("Understanding the Difficulty of Training Transformers"), section 4.3, and
the authors' Transformer-Clinic. Their profiling batch includes padding; here it is excluded.
"""

from collections.abc import Callable
from contextlib import ExitStack

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.distributed.process_group import sum_over_ranks
from normlab.norms.base import Norm
from normlab.norms.running import statistics_kept
from normlab.norms.tokens import Tokens
from normlab.placements.base import Branch, NormResidual, Norms, Place
from normlab.placements.post import Post


class AdminResidual(NormResidual):
    """`norm(omega * x + dropout(branch(x)))`, where `profile` sets the initial omega."""

    profiler: Callable[["AdminResidual", Tensor, Tensor, Tokens], None] | None = None

    def __init__(self, norm: Norm, dropout: float, *, first: bool):
        super().__init__(norm, dropout)
        self.omega = nn.Parameter(torch.ones(norm.dim))
        self.first = first  # whether it is the first residual in its stack

    def forward(self, x: Tensor, tokens: Tokens, branch: Branch) -> Tensor:
        added = self.dropout(branch(x))
        if self.profiler is not None:
            self.profiler(self, x, added, tokens)
        return self.norm(self.omega * x + added, tokens)


class Admin(Post):
    """Admin, `norm(omega x + f(x))` with a learned omega (Liu et al. 2020)."""

    drawing = """
        x ---+--> sub-layer --> dropout --> (+) --> norm --> y
             |                               |
             +--> x omega -------------------+
    """

    def residual(self, norms: Norms, dim: int, place: Place) -> AdminResidual:
        first = place.layer == 0 and place.sublayer == "self"
        return AdminResidual(norms.required(place.path, dim), self.dropout, first=first)


@torch.no_grad()
def profile(model: nn.Module, run_batch: Callable[[], object], *, seed: int) -> None:
    """Set the omegas of a model by calling `run_batch`, which runs one batch through the model.

    The batch runs in training mode, with dropout drawn from `seed`. Running statistics, gradients
    and the random state stay unchanged. Every process must call this before the model is compiled.
    Variances are over the tokens of all processes, so all processes get the same omegas.
    """
    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    total = torch.ones((), dtype=torch.float64)

    def take(residual: AdminResidual, x: Tensor, added: Tensor, tokens: Tokens) -> None:
        nonlocal total
        if residual.first:
            total = torch.ones((), dtype=torch.float64, device=x.device)
        residual.omega.copy_(total.sqrt())
        real = tokens.real(x)
        total = variance(residual.omega * x, real) + variance(added, real)

    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(list(devices)))
        stack.enter_context(statistics_kept(model))
        stack.callback(model.train, model.training)
        model.train()
        torch.manual_seed(seed)
        for module in model.modules():
            if isinstance(module, AdminResidual):
                module.profiler = take
                stack.callback(delattr, module, "profiler")
        run_batch()


def variance(x: Float[Tensor, "B P D"], counted: Bool[Tensor, "B P"]) -> Float[Tensor, ""]:
    """Return the variance over all features of the `counted` tokens, over all processes."""
    wide = x.double() * counted[..., None]
    count = counted.sum().double() * x.shape[-1]
    sums = torch.stack([count, wide.sum(), wide.square().sum()])
    count, first, second = sum_over_ranks(sums).unbind()
    return second / count - (first / count).square()
