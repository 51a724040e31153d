"""Multi-head attention: over the stream itself, and over the encoder's output.

Letters: `B` sequences, `T` queries, `S` keys, `H` heads, `K` width of a head, `D = H K`.

On a CPU the products are written out: for the short sequences of translation in bf16 this takes a
quarter of the time of torch's fused kernel. On a GPU the fused kernel is called.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from normlab.dropout import Dropout
from normlab.models.linear import Linear
from normlab.norms.base import Stream

_QKV_GAIN = 1 / math.sqrt(2)  # fairseq's for the three input projections


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
        query: Float[Tensor, "B H T K"],
        key: Float[Tensor, "B H S K"],
        value: Float[Tensor, "B H S K"],
        visible: Bool[Tensor, "..."] | None,
    ) -> Float[Tensor, "B H T K"]:
        """Mix the values by the attention weights.

        `visible` is True where a query may look at a key and broadcasts to `B H T S`; None where
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


class _Heads(nn.Module):
    """What both attentions share: heads, the core and the output projection."""

    def __init__(self, dim: int, *, num_heads: int, dropout: float, init_gain: float):
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"model.dim={dim} is not a multiple of model.num_heads={num_heads}")
        self.num_heads = num_heads
        self.out_proj = Linear(dim, dim, gains=(init_gain,))
        self.core = AttentionCore(dropout)

    def split(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"]:
        """Cut the width into heads."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def attend(
        self,
        query: Float[Tensor, "B H T K"],
        key: Float[Tensor, "B H S K"],
        value: Float[Tensor, "B H S K"],
        visible: Bool[Tensor, "..."] | None,
    ) -> Float[Tensor, "B T D"]:
        """Return what the core mixes, the heads side by side, projected."""
        mixed = self.core(query, key, value, visible)
        return self.out_proj(mixed.transpose(1, 2).flatten(2))


class SelfAttention(_Heads):
    """Attention of a stream over itself; `causal` hides later positions."""

    def __init__(
        self, dim: int, *, num_heads: int, dropout: float, causal: bool, init_gain: float = 1.0
    ):
        super().__init__(dim, num_heads=num_heads, dropout=dropout, init_gain=init_gain)
        self.causal = causal
        self.qkv_proj = Linear(dim, 3 * dim, gains=(_QKV_GAIN, _QKV_GAIN, _QKV_GAIN * init_gain))

    def project(self, x: Float[Tensor, "B T D"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each `B H T K`."""
        query, key, value = self.qkv_proj(x).chunk(3, dim=-1)
        return self.split(query), self.split(key), self.split(value)

    def forward(self, x: Float[Tensor, "B T D"], stream: Stream) -> Float[Tensor, "B T D"]:
        """Attend over the valid positions of the stream, not beyond one's own when causal."""
        if self.causal:  # padding stands at the end: whoever is valid cannot see it
            size = x.shape[1]
            visible = torch.ones(size, size, dtype=torch.bool, device=x.device).tril()
        else:
            visible = stream.valid[:, None, None, :]
        return self.attend(*self.project(x), visible)


class CrossAttention(_Heads):
    """Attention of the target stream over the encoder's output, the memory."""

    def __init__(self, dim: int, *, num_heads: int, dropout: float, init_gain: float = 1.0):
        super().__init__(dim, num_heads=num_heads, dropout=dropout, init_gain=init_gain)
        self.q_proj = Linear(dim, dim, gains=(_QKV_GAIN,))
        self.kv_proj = Linear(dim, 2 * dim, gains=(_QKV_GAIN, _QKV_GAIN * init_gain))

    def project_memory(self, memory: Float[Tensor, "B S D"]) -> tuple[Tensor, Tensor]:
        """Return keys and values of the memory, each `B H S K`: once a sentence in decoding."""
        key, value = self.kv_proj(memory).chunk(2, dim=-1)
        return self.split(key), self.split(value)

    def forward(
        self, x: Float[Tensor, "B T D"], memory: Float[Tensor, "B S D"], source: Stream
    ) -> Float[Tensor, "B T D"]:
        """Attend over the valid positions of the memory."""
        key, value = self.project_memory(memory)
        return self.attend(self.split(self.q_proj(x)), key, value, source.valid[:, None, None, :])
