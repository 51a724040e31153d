"""Admin: post-norm whose stream has a learned weight for each feature, set before the first step.

        x ---+--> sub-layer --> dropout --> (+) --> norm --> y
             |                               |
             +--> x omega -------------------+

    y = norm(omega x + f(x))

    closing norm: none, since the last layer ends in one.
    at initialization: one batch passes through the model in training, and in each stack

        omega_1 = 1,  omega_{i+1}^2 = omega_i^2 Var(x_i) + Var(f_i)

    over all features of all tokens, f_i after dropout: omega says how much of the stream came
    before branch i. Or, without a batch, by the number R of connections of the stack alone
    (`omega: log`, `omega: constant`: how the change of the output may grow with R),

        omega = sqrt((R + 1) / ln(R + 1) - 1)  or  sqrt(R)

Source: Liu et al. 2020 ("Understanding the Difficulty of Training Transformers"), section 4.3, and
the authors' Transformer-Clinic and admin-torch. Their profile counts padding (`padding: include`).
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from normlab.dropout import Dropout
from normlab.norms.base import Norm, Stream
from normlab.norms.local import NoNorm
from normlab.placements.base import NormFactory, Place, Placement, Residual
from normlab.placements.calibration import Calibrated, Pass

Omega = Literal["profile", "log", "constant"]
Padding = Literal["exclude", "include"]


class AdminResidual(Residual):
    """y = norm(omega * x + dropout(branch(x)))."""

    def __init__(self, norm: Norm, dropout: float, start: float):
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.omega = nn.Parameter(torch.full((norm.dim,), start))

    def forward(self, x: Tensor, stream: Stream, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the normalized sum of the weighted stream and its branch."""
        return self.norm(self.omega * x + self.dropout(branch(x)), stream)


class ProfiledResidual(AdminResidual, Calibrated):
    """Its omega is found in the calibration pass, from the variances of the branches before it."""

    def __init__(self, norm: Norm, dropout: float, *, first: bool, padding: Padding):
        super().__init__(norm, dropout, 1.0)
        self.first = first
        self.padding: Padding = padding

    def enter(self, x: Tensor, stream: Stream, found: Pass) -> None:
        """Take omega from the variances so far, and begin the next one with the stream's."""
        if self.first:
            found.total = torch.ones((), dtype=torch.float64, device=x.device)
        self.omega.copy_(found.total.sqrt())
        found.total = found.variance(self.omega * x, self._counted(x, stream))

    def leave(self, added: Tensor, stream: Stream, found: Pass) -> None:
        """Add the variance of the branch."""
        found.total = found.total + found.variance(added, self._counted(added, stream))

    def _counted(self, x: Tensor, stream: Stream) -> Tensor:
        return (stream if self.padding == "exclude" else Stream()).real(x)


class Admin(Placement):
    """Admin placement.

    Args:
        norm, dropout: as for any placement.
        omega: `profile`, or admin-torch's formulas (see the head of this file).
        padding: whether the profile counts what stands at padding.
    """

    def __init__(self, norm: NormFactory, *, dropout: float, omega: Omega, padding: Padding):
        super().__init__(norm, dropout=dropout)
        self.omega: Omega = omega
        self.padding: Padding = padding

    def residual(self, dim: int, place: Place) -> AdminResidual:
        """Build a post-norm residual connection with a weight on its stream."""
        norm = self.norm(dim)
        if self.omega == "profile":
            return ProfiledResidual(norm, self.dropout, first=place.first, padding=self.padding)
        return AdminResidual(norm, self.dropout, closed_form(self.omega, place.connections))

    def final(self, dim: int) -> Norm:
        """Build the identity: the last residual has normalized already."""
        return NoNorm(dim)


def closed_form(omega: Literal["log", "constant"], connections: int) -> float:
    """Return admin-torch's omega for a stack of so many residual connections."""
    if omega == "constant":
        return math.sqrt(connections)
    return math.sqrt((connections + 1) / math.log(connections + 1) - 1)
