"""Multi-head attention: over the stream itself, and over the encoder's output.

Letters: `B` sequences, `P` queries, `S` keys, `H` heads, `K` width of a head, `D = H K`.

A norm may stand on the heads of the queries, keys and values, on what they mix, and on what is
projected of it (`AttentionSites`). None does unless a placement or an option asks for it.

On a CPU the products are written out: for the short sequences of translation in bf16 this takes a
quarter of the time of torch's fused kernel. On a GPU the fused kernel is called.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from normlab.dropout import Dropout
from normlab.models.linear import Linear
from normlab.norms.base import Stream
from normlab.placements.base import Role


class _Weights(torch.autograd.Function):
    """softmax(scale scores) over visible keys, in float32, which is also faster for short rows.

    What is hidden has weight 0, so that no gradient reaches its score without a mask.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, scale: float, visible: Tensor | None) -> Tensor:
        if visible is None:
            wide = scale * scores.to(torch.promote_types(scores.dtype, torch.float32))
        else:  # a float32 table that is added: `masked_fill` is slow where its mask broadcasts
            hidden = torch.where(visible, 0.0, float("-inf"))
            wide = torch.add(hidden, scores, alpha=scale)
        weights = wide.softmax(-1).to(scores.dtype)
        ctx.save_for_backward(weights)
        ctx.scale = scale
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (weights,) = ctx.saved_tensors
        wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
        pull = ctx.scale * wide * grad
        slope = torch.addcmul(pull, wide, pull.sum(-1, keepdim=True), value=-1)
        return slope.to(grad.dtype), None, None


class AttentionCore(nn.Module):
    """softmax(Q K' / sqrt(K)) V of every head (Vaswani et al. 2017, eq. 1).

    It has no parameters; it is a module so that a probe can see what is attended to.
    """

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        query: Float[Tensor, "B H P K"],
        key: Float[Tensor, "B H S K"],
        value: Float[Tensor, "B H S K"],
        visible: Bool[Tensor, "..."] | None,
    ) -> Float[Tensor, "B H P K"]:
        """Mix the values by the attention weights.

        `visible` is True where a query may look at a key and broadcasts to `B H P S`; None where
        it may look at all of them.
        """
        if not query.is_cpu:
            rate = self.dropout.p if self.training else 0.0
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask=visible, dropout_p=rate
            )
        scores = query @ key.transpose(-1, -2)
        weights = _Weights.apply(scores, query.shape[-1] ** -0.5, visible)
        return self.dropout(weights) @ value


@dataclass(frozen=True)
class AttentionSites:
    """What stands inside an attention, each a module of a tensor and its stream, or None.

    Attributes:
        q_norm, k_norm, v_norm: on the heads of queries, keys and values, `B H P K`; those of the
            memory come with the memory's stream.
        mix_norm: on the mixed heads side by side, `B P D`, before the output projection.
        out_norm: on the output projection, `B P D`.
    """

    q_norm: nn.Module | None = None
    k_norm: nn.Module | None = None
    v_norm: nn.Module | None = None
    mix_norm: nn.Module | None = None
    out_norm: nn.Module | None = None


NO_SITES = AttentionSites()


class HeadNorm(nn.Module):
    """A norm over the width of a head, one for all heads: they count as further sequences."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, heads: Float[Tensor, "B H P K"], stream: Stream) -> Float[Tensor, "B H P K"]:
        """Return the heads, each normalized as a sequence of its own."""
        rows = self.norm(heads.flatten(0, 1), stream.repeated(heads.shape[1]))
        return rows.unflatten(0, heads.shape[:2])


def _at(site: nn.Module | None, x: Tensor, stream: Stream) -> Tensor:
    return x if site is None else site(x, stream)


class _Heads(nn.Module):
    """What both attentions share: heads, the core, the output projection and the sites."""

    sublayer: ClassVar[str] = "attention"

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        dropout: float,
        gain: Callable[[Role], float],
        sites: AttentionSites,
    ):
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"model.dim={dim} is not a multiple of model.num_heads={num_heads}")
        self.num_heads = num_heads
        self.out_proj = Linear(dim, dim, gains=(gain("out"),))
        self.core = AttentionCore(dropout)
        self.q_norm, self.k_norm, self.v_norm = sites.q_norm, sites.k_norm, sites.v_norm
        self.mix_norm, self.out_norm = sites.mix_norm, sites.out_norm

    def split(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "B H P K"]:
        """Cut the width into heads."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def mix(
        self,
        query: Float[Tensor, "B H P K"],
        key: Float[Tensor, "B H S K"],
        value: Float[Tensor, "B H S K"],
        visible: Bool[Tensor, "..."] | None,
    ) -> Float[Tensor, "B P D"]:
        """Return what the core mixes, the heads side by side."""
        return self.core(query, key, value, visible).transpose(1, 2).flatten(2)

    def project_mix(self, mixed: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return the output projection of what was mixed for the queries of `stream`."""
        projected = self.out_proj(_at(self.mix_norm, mixed, stream))
        return _at(self.out_norm, projected, stream)


class SelfAttention(_Heads):
    """Attention of a stream over itself; `causal` hides later positions."""

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        dropout: float,
        causal: bool,
        gain: Callable[[Role], float],
        sites: AttentionSites = NO_SITES,
    ):
        super().__init__(dim, num_heads=num_heads, dropout=dropout, gain=gain, sites=sites)
        self.causal = causal
        self.qkv_proj = Linear(dim, 3 * dim, gains=(gain("q"), gain("k"), gain("v")))

    def project(
        self, x: Float[Tensor, "B P D"], stream: Stream
    ) -> tuple[Float[Tensor, "B H P K"], Float[Tensor, "B H P K"], Float[Tensor, "B H P K"]]:
        """Return queries, keys and values."""
        query, key, value = map(self.split, self.qkv_proj(x).chunk(3, dim=-1))
        return (
            _at(self.q_norm, query, stream),
            _at(self.k_norm, key, stream),
            _at(self.v_norm, value, stream),
        )

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Attend over the valid positions of the stream, not beyond one's own when causal."""
        if self.causal:  # padding stands at the end: whoever is valid cannot see it
            size = x.shape[1]
            visible = torch.ones(size, size, dtype=torch.bool, device=x.device).tril()
        else:
            visible = stream.keys
        return self.project_mix(self.mix(*self.project(x, stream), visible), stream)


class CrossAttention(_Heads):
    """Attention of the target stream over the encoder's output, the memory."""

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        dropout: float,
        gain: Callable[[Role], float],
        sites: AttentionSites = NO_SITES,
    ):
        super().__init__(dim, num_heads=num_heads, dropout=dropout, gain=gain, sites=sites)
        self.q_proj = Linear(dim, dim, gains=(gain("q"),))
        self.kv_proj = Linear(dim, 2 * dim, gains=(gain("k"), gain("v")))

    def project_query(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B H P K"]:
        """Return the queries of the target stream."""
        return _at(self.q_norm, self.split(self.q_proj(x)), stream)

    def project_memory(
        self, memory: Float[Tensor, "B S D"], source: Stream
    ) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S K"]]:
        """Return keys and values of the memory: once a sentence in decoding."""
        key, value = map(self.split, self.kv_proj(memory).chunk(2, dim=-1))
        return _at(self.k_norm, key, source), _at(self.v_norm, value, source)

    def forward(
        self,
        x: Float[Tensor, "B P D"],
        stream: Stream,
        memory: Float[Tensor, "B S D"],
        source: Stream,
    ) -> Float[Tensor, "B P D"]:
        """Attend over the valid positions of the memory."""
        query = self.project_query(x, stream)
        key, value = self.project_memory(memory, source)
        return self.project_mix(self.mix(query, key, value, source.keys), stream)
