"""Dropout with cheap random numbers on a CPU.

Only dropout uses torch's default generator. Initialization and data order have generators of their
own, so two runs that differ only in their norms drop the same units. On a CPU, torch draws one
double per unit. This module draws sixteen random bits instead, which takes a seventh of the time
and keeps the rate accurate to 2**-16.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

_LEVELS = 1 << 16


class Dropout(nn.Module):
    """Sets units to zero with probability `p` in training, and scales the others by 1 / (1 - p)."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p
        self.threshold = min(round(p * _LEVELS), _LEVELS - 1)

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        if not self.training or self.threshold == 0:
            return x
        if not x.is_cpu or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64)
        bits = words.random_(-(2**63), None).view(torch.int16)[: x.numel()]
        # Compare in place, giving 16-bit 0 and 1, because converting a boolean mask is slow.
        mask = bits.ge_(self.threshold - _LEVELS // 2).view(x.shape)
        return x * mask.to(x.dtype).mul_(_LEVELS / (_LEVELS - self.threshold))
