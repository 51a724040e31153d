"""QK-norm: norms on the heads of an attention, in its three published forms.

    l2    g cos(q, k) in the place of q k' / sqrt(K), with one learned g an attention, at first
          log2(n^2 - n) for sequences of n tokens (Henry et al. 2020, section 2)
    ln    layer norm of each head's queries and keys, 1 / sqrt(K) kept (Dehghani et al. 2023)
    rms   the same by the root mean square
    qkv   rms, of the values too (HybridNorm; Zhuo et al. 2025)

One norm is shared by the heads. Rules of `sites` reach the same places: `*.q`, `*.k`, `*.v`.
"""

import math
from typing import Literal

from normlab.models.attention import NO_SITES, AttentionSites, HeadNorm
from normlab.norms.local import LayerNorm, RMSNorm, UnitNorm

QkNorm = Literal["none", "l2", "ln", "rms", "qkv"]
_EPS = 1e-5


def qk_sites(kind: QkNorm, *, dim: int, length: int) -> AttentionSites:
    """Return the norms of one attention, whose heads are `dim` wide.

    Raises ValueError where the first scale of `l2` would not be above 0.
    """
    if kind == "none":
        return NO_SITES
    if kind == "l2":
        if length < 2:
            raise ValueError(f"model.qk_length={length} must be at least 2 tokens")
        gain = math.log2(length**2 - length)
        # The core divides by sqrt(K).
        query = UnitNorm(dim, gain=gain, factor=math.sqrt(dim))
        return AttentionSites(q_norm=HeadNorm(query), k_norm=HeadNorm(UnitNorm(dim)))

    def norm() -> HeadNorm:
        return HeadNorm((LayerNorm if kind == "ln" else RMSNorm)(dim, eps=_EPS, affine=True))

    return AttentionSites(q_norm=norm(), k_norm=norm(), v_norm=norm() if kind == "qkv" else None)
