"""QK-norm: norms on the heads of an attention, in its published forms.

    l2         g cos(q, k) in the place of q k' / sqrt(K), with one learned g an attention, at
               first log2(n^2 - n) for sequences of n tokens (Henry et al. 2020, section 2)
    cosine     10 cos(q, k), nothing learned (`qk_norm_scale` of x-transformers)
    ln         layer norm of each head's queries and keys, 1 / sqrt(K) kept (Dehghani et al. 2023)
    rms        the same by the root mean square
    rms_heads  rms with gains of its own for each head (`qk_rmsnorm` of x-transformers)
    qkv        rms, of the values too (HybridNorm; Zhuo et al. 2025)

The heads share one norm, but for `rms_heads`. Rules of `sites` reach the same places: `*.q`, `*.k`,
`*.v`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.models.attention import NO_SITES, AttentionSites, HeadNorm
from normlab.norms.base import Norm, Stream
from normlab.norms.local import LayerNorm, RMSNorm, UnitNorm

QkNorm = Literal["none", "l2", "cosine", "ln", "rms", "rms_heads", "qkv"]
_EPS = 1e-5
_COSINES = 10.0


class RMSNormByHead(RMSNorm):
    """RMS norm of the tokens of `heads` heads, with a gain for each feature of each head."""

    gains: Tensor

    def __init__(self, dim: int, *, heads: int, eps: float) -> None:
        super().__init__(dim, eps=eps, affine=False)
        self._affine("gains", torch.ones(heads, 1, dim), learned=True)

    def forward(self, x: Float[Tensor, "BH P K"], stream: Stream) -> Float[Tensor, "BH P K"]:
        """Return each token over its root mean square; the heads of a sequence are neighbours."""
        by_head = super().forward(x, stream).unflatten(0, (-1, len(self.gains)))
        return (by_head * self.gains).flatten(0, 1).to(x.dtype)


def qk_sites(kind: QkNorm, *, dim: int, heads: int, length: int) -> AttentionSites:
    """Return the norms of one attention, whose heads are `dim` wide.

    Raises ValueError where the first scale of `l2` would not be above 0.
    """
    if kind == "none":
        return NO_SITES
    if kind in ("l2", "cosine"):
        return AttentionSites(HeadNorm(_query(kind, dim, length)), HeadNorm(UnitNorm(dim)))
    builders: Mapping[str, Callable[[], Norm]] = {
        "ln": lambda: LayerNorm(dim, eps=_EPS, affine=True),
        "rms_heads": lambda: RMSNormByHead(dim, heads=heads, eps=_EPS),
    }
    norm = builders.get(kind, lambda: RMSNorm(dim, eps=_EPS, affine=True))
    value = HeadNorm(norm()) if kind == "qkv" else None
    return AttentionSites(HeadNorm(norm()), HeadNorm(norm()), value)


def _query(kind: QkNorm, dim: int, length: int) -> Norm:
    """Return the norm of queries of which products with unit keys are scores times sqrt(K)."""
    if kind == "cosine":
        return UnitNorm(dim, factor=_COSINES * math.sqrt(dim))
    if length < 2:
        raise ValueError(f"model.qk_length={length} must be at least 2 tokens")
    return UnitNorm(dim, gain=math.log2(length**2 - length), factor=math.sqrt(dim))
