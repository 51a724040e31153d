"""Measures what padding changes in a norm: outputs, gradients and statistics."""

import copy
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.inspection.norm.bare_norm import varied_loss
from normlab.inspection.norm.norm_calls import all_real, differ, fixed_seed, running_tables
from normlab.norms.base import Norm
from normlab.norms.tokens import Tokens


class PaddedPass(NamedTuple):
    """The outputs and gradients at real tokens, all statistics, and the gradients at padding."""

    outputs: Float[Tensor, "real D"]
    gradients: Float[Tensor, "real D"]
    statistics: Float[Tensor, " n"]
    leaked: Float[Tensor, "padding D"]


def with_padding(
    norm: Norm,
    x: Float[Tensor, "B P D"],
    valid: Bool[Tensor, "B P"] | None,
    *,
    columns: int = 0,
    rows: int = 0,
    value: float = 0.0,
) -> PaddedPass:
    """Run a copy of a norm on `x` with added padding, and with all padding set to `value`.

    `columns` positions and `rows` sequences of padding are added. If `valid` is None, all tokens
    are real, and the norm gets no mask, as for images.
    """
    other, real = copy.deepcopy(norm), all_real(x) if valid is None else valid
    filled = x.masked_fill(~real[..., None], value)
    wide = F.pad(filled, (0, 0, 0, columns, 0, rows), value=value).requires_grad_()
    real = F.pad(real, (0, columns, 0, rows))
    with fixed_seed():
        y = other(wide, Tokens(None if valid is None else real))[real]
    (gradient,) = torch.autograd.grad(varied_loss(y), wide)
    statistics = [
        torch.zeros(1),
        *(table.detach().flatten() for table in running_tables(other).values()),
    ]
    return PaddedPass(y.detach(), gradient[real], torch.cat(statistics), gradient[~real])


def padding_moves(norm: Norm, x: Float[Tensor, "B P D"], valid: Bool[Tensor, "B P"]) -> bool:
    """Return whether the values or the amount of padding change the outputs at real tokens."""
    plain = with_padding(norm, x, valid)
    filled = with_padding(norm, x, valid, value=100.0)
    more = with_padding(norm, x, valid, columns=2, rows=1)
    return any(differ(plain.outputs, other.outputs) for other in (filled, more))
