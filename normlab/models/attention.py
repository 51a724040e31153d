"""Multi-head self-attention and cross-attention, and the norms inside them.

Dimensions: `B` sequences, `P` queries, `S` keys, `H` heads of width `K`, `D = H K`.

A placement or rule can add norms to each head's queries, keys and values, to the concatenated heads
before the output projection, and to its output. `model.qk_norm` selects a published QK norm:

    l2         g cos(q, k) instead of q k' / sqrt(K), with one learned g per sub-layer, initialized
               to log2(n^2 - n) for sequences of n tokens (Henry et al. 2020, section 2)
    cosine     10 cos(q, k), with no learned scale (`qk_norm_scale` in x-transformers)
    ln         layer norm on each head's queries and keys, with 1 / sqrt(K) (Dehghani et al. 2023)
    rms        the same with RMS norm
    rms_heads  rms with separate gains for each head (`qk_rmsnorm` in x-transformers)
    rms_full   RMS norm of all features of a token, before the split into heads (OLMo 2)
    qkv        rms on queries, keys and values (HybridNorm; Zhuo et al. 2025)

`model.attention_gate` multiplies the heads' outputs by sigmoid(W x), where x is the sub-layer's
input, before the output projection (Qiu et al. 2025, the gate after the softmax average). With
`elementwise` each of the D values has its own gate, as in Qwen3-Next; with `headwise` each head has
one gate.

On a CPU, attention is computed from separate operations, which for short sentences in bf16 takes a
quarter of the time of torch's fused kernel. A GPU uses the fused kernel unless scores are capped.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from normlab.dropout import Dropout
from normlab.errors import UserError
from normlab.models.base import AttentionGate, QkNorm
from normlab.models.cache import LayerCache
from normlab.models.layers import Linear, MakeLinear, soft_cap
from normlab.models.rotary import Rotary
from normlab.norms.base import Norm, learn
from normlab.norms.layer import LayerNorm
from normlab.norms.rms import RMSNorm, UnitNorm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Site

_COSINES = 10.0


class AttentionCore(nn.Module):
    """Scaled dot-product attention, softmax(Q K' / sqrt(K)) V (Vaswani et al. 2017, eq. 1).

    It has no parameters; it is a module so that probes can hook into the queries and keys.
    """

    def __init__(self, dropout: float, cap: float | None = None):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.path = ""
        self.cap = cap  # limit of the scores, passed to `soft_cap`; None for no limit

    def forward(
        self,
        query: Float[Tensor, "B H P K"],
        key: Float[Tensor, "B H S K"],
        value: Float[Tensor, "B H S K"],
        visible: Bool[Tensor, "..."] | None,
        causal: bool = False,
    ) -> Float[Tensor, "B H P K"]:
        """Return the values averaged with the attention weights.

        `visible` is True where a query may attend to a key, and broadcasts to `B H P S`. With None,
        every query attends to every key or, if `causal`, to the keys up to its own position.
        """
        if not query.is_cpu and self.cap is None:
            rate = self.dropout.p if self.training else 0.0
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask=visible, dropout_p=rate, is_causal=causal
            )
        scores = soft_cap((query @ key.transpose(-1, -2)) * query.shape[-1] ** -0.5, self.cap)
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if (mask := visible_keys(query, visible, causal)) is not None:
            wide = wide.masked_fill(~mask, float("-inf"))
        return self.dropout(wide.softmax(-1).to(value.dtype)) @ value


def visible_keys(
    query: Float[Tensor, "B H P K"], visible: Bool[Tensor, "..."] | None, causal: bool = False
) -> Bool[Tensor, "..."] | None:
    """Return the mask that `AttentionCore` applies when called with these arguments."""
    if not causal:
        return visible
    size = query.shape[-2]
    return torch.ones(size, size, dtype=torch.bool, device=query.device).tril()


class HeadNorm(nn.Module):
    """A norm over a head's width, shared by all heads. Each head counts as a separate sequence."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, heads: Float[Tensor, "B H P K"], tokens: Tokens) -> Float[Tensor, "B H P K"]:
        """Return the heads, each normalized as a separate sequence."""
        rows = self.norm(heads.flatten(0, 1), tokens.repeated(heads.shape[1]))
        return rows.unflatten(0, heads.shape[:2])


class FullNorm(nn.Module):
    """A norm over the features of all heads together."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, heads: Float[Tensor, "B H P K"], tokens: Tokens) -> Float[Tensor, "B H P K"]:
        """Return the heads, normalized token by token."""
        rows = self.norm(heads.transpose(1, 2).flatten(2), tokens)
        return rows.unflatten(-1, (heads.shape[1], -1)).transpose(1, 2)


def _at(site: nn.Module | None, x: Tensor, tokens: Tokens) -> Tensor:
    return x if site is None else site(x, tokens)


class Attention(nn.Module):
    """Base class of self- and cross-attention: heads, core, output projection and inner norms.

    `sites` maps names to norms, which are called with a tensor and its tokens: `q`, `k` and `v`
    with the heads, `B H P K`; `mix` with the concatenated heads, `B P D`, after their gate; and
    `out` with the result of the output projection. In cross-attention, `k` and `v` get the memory's
    tokens.
    """

    sublayer: ClassVar[str] = "attention"

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        dropout: float,
        linear: MakeLinear,
        sites: Mapping[Site, nn.Module | None],
        score_cap: float | None = None,
        gate: AttentionGate = "none",
    ):
        super().__init__()
        if dim % num_heads:
            raise UserError(f"model.dim={dim} is not a multiple of model.num_heads={num_heads}")
        self.num_heads = num_heads
        self.out_proj = linear(dim, dim, "out")
        # Initialized like the query projection: in published code the gate is extra rows of that
        # matrix.
        width = {"none": None, "headwise": num_heads, "elementwise": dim}[gate]
        self.gate = None if width is None else linear(dim, width, "q")
        self.core = AttentionCore(dropout, score_cap)
        self.q_norm, self.k_norm, self.v_norm = sites.get("q"), sites.get("k"), sites.get("v")
        self.mix_norm, self.out_norm = sites.get("mix"), sites.get("out")

    @property
    def path(self) -> str:
        """The path of the sub-layer in the model, such as `encoder.0.self`. Its core shares it."""
        return self.core.path

    @path.setter
    def path(self, path: str) -> None:
        self.core.path = path

    def split(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "B H P K"]:
        """Split the features into heads."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def mix(
        self,
        query: Float[Tensor, "B H P K"],
        key: Float[Tensor, "B H S K"],
        value: Float[Tensor, "B H S K"],
        visible: Bool[Tensor, "..."] | None,
        causal: bool = False,
    ) -> Float[Tensor, "B P D"]:
        """Return the attention output with the heads concatenated."""
        return self.core(query, key, value, visible, causal).transpose(1, 2).flatten(2)

    def gated(
        self, mixed: Float[Tensor, "B P D"], x: Float[Tensor, "B P D"]
    ) -> Float[Tensor, "B P D"]:
        """Multiply the concatenated heads by their gates, given the sub-layer's input."""
        if self.gate is None:
            return mixed
        heads, gates = (y.unflatten(-1, (self.num_heads, -1)) for y in (mixed, self.gate(x)))
        return (heads * gates.sigmoid()).flatten(-2)

    def project_mix(self, mixed: Float[Tensor, "B P D"], tokens: Tokens) -> Float[Tensor, "B P D"]:
        """Apply the output projection and the norms before and after it."""
        projected = self.out_proj(_at(self.mix_norm, mixed, tokens))
        return _at(self.out_norm, projected, tokens)

    def readers(self, projection: Linear) -> Sequence[Linear]:
        """Return the linear layers that read the sub-layer's input: `projection` and any gate."""
        return [projection] if self.gate is None else [projection, self.gate]


class SelfAttention(Attention):
    """Self-attention. `causal` masks later positions, and `rotary` rotates queries and keys."""

    def __init__(
        self,
        dim: int,
        *,
        causal: bool,
        linear: MakeLinear,
        rotary: Rotary | None = None,
        **parts: Any,
    ):
        super().__init__(dim, linear=linear, **parts)
        self.causal = causal
        self.qkv_proj = linear(dim, 3 * dim, "q", "k", "v")
        self.rotary = rotary

    def project(
        self, x: Float[Tensor, "B P D"], tokens: Tokens
    ) -> tuple[Float[Tensor, "B H P K"], Float[Tensor, "B H P K"], Float[Tensor, "B H P K"]]:
        """Return queries, keys and values."""
        query, key, value = map(self.split, self.qkv_proj(x).chunk(3, dim=-1))
        query, key = _at(self.q_norm, query, tokens), _at(self.k_norm, key, tokens)
        if (rotary := self.rotary) is not None:
            query, key = rotary(query, tokens.start), rotary(key, tokens.start)
        return query, key, _at(self.v_norm, value, tokens)

    def forward(
        self, x: Float[Tensor, "B P D"], tokens: Tokens, cache: LayerCache | None = None
    ) -> Float[Tensor, "B P D"]:
        """Attend to all real positions or, if causal, to those up to the current one.

        With a cache, `x` is the next position and attends to all cached positions and itself.
        """
        query, key, value = self.project(x, tokens)
        visible, causal = tokens.keys, self.causal
        if cache is not None:
            query, key, value, visible = cache.extended(query, key, value)
            causal = False
        elif causal:
            visible = None  # padding comes last, so no real position would attend to it
        mixed = self.mix(query, key, value, visible, causal)
        return self.project_mix(self.gated(mixed.view(x.shape), x), tokens)


class CrossAttention(Attention):
    """Cross-attention from the target to the encoder's output (the memory)."""

    def __init__(self, dim: int, *, linear: MakeLinear, **parts: Any):
        super().__init__(dim, linear=linear, **parts)
        self.q_proj = linear(dim, dim, "q")
        self.kv_proj = linear(dim, 2 * dim, "k", "v")

    def project_memory(
        self, memory: Float[Tensor, "B S D"], source: Tokens
    ) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S K"], Tokens]:
        """Return the memory's keys, values and tokens; decoding computes them once per sentence."""
        key, value = map(self.split, self.kv_proj(memory).chunk(2, dim=-1))
        return _at(self.k_norm, key, source), _at(self.v_norm, value, source), source

    def forward(
        self,
        x: Float[Tensor, "B P D"],
        tokens: Tokens,
        memory: Float[Tensor, "B S D"] | None,
        source: Tokens | None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B P D"]:
        """Attend to the real positions of the memory, or to the cached memory."""
        query = _at(self.q_norm, self.split(self.q_proj(x)), tokens)
        if cache is not None:
            query, key, value, visible = cache.at_memory(query)
        else:
            assert memory is not None and source is not None
            key, value, _ = self.project_memory(memory, source)
            visible = source.keys
        mixed = self.mix(query, key, value, visible).view(x.shape)
        return self.project_mix(self.gated(mixed, x), tokens)


class RMSNormByHead(RMSNorm):
    """RMS norm with a separate gain per feature and head."""

    gains: Tensor

    def __init__(self, dim: int, *, heads: int, eps: float) -> None:
        super().__init__(dim, eps=eps, affine=False)
        learn(self, "gains", torch.ones(heads, 1, dim), learned=True)

    def forward(self, x: Float[Tensor, "BH P K"], tokens: Tokens) -> Float[Tensor, "BH P K"]:
        """Normalize each token and apply its head's gains.

        The heads of a sequence are adjacent rows of `x`.
        """
        by_head = super().forward(x, tokens).unflatten(0, (-1, len(self.gains)))
        return (by_head * self.gains).flatten(0, 1).to(x.dtype)


class _Heads(NamedTuple):
    """The heads that a QK norm is built for: their width and number, `model.qk_length`, and eps."""

    dim: int
    number: int
    length: int
    eps: float


def _l2(heads: _Heads, site: Site) -> Norm:
    """Return a norm that makes scores g cos(q, k), after the core's division by sqrt(K)."""
    if site == "k":
        return UnitNorm(heads.dim)
    if heads.length < 2:
        raise UserError(f"model.qk_length={heads.length} must be at least 2")
    gain = math.log2(heads.length**2 - heads.length)
    return UnitNorm(heads.dim, gain=gain, factor=math.sqrt(heads.dim))


def _cosine(heads: _Heads, site: Site) -> Norm:
    """Return a norm that makes scores 10 cos(q, k), after the core's division by sqrt(K)."""
    if site == "k":
        return UnitNorm(heads.dim)
    return UnitNorm(heads.dim, factor=_COSINES * math.sqrt(heads.dim))


def _layer(heads: _Heads, site: Site) -> Norm:
    return LayerNorm(heads.dim, eps=heads.eps, affine=True)


def _rms(heads: _Heads, site: Site) -> Norm:
    return RMSNorm(heads.dim, eps=heads.eps, affine=True)


def _rms_by_head(heads: _Heads, site: Site) -> Norm:
    return RMSNormByHead(heads.dim, heads=heads.number, eps=heads.eps)


def _rms_of_all(heads: _Heads, site: Site) -> Norm:
    return RMSNorm(heads.number * heads.dim, eps=heads.eps, affine=True)


class _QkNorm(NamedTuple):
    """The sites of a QK norm, the module that applies it to the heads, and how to build it."""

    sites: tuple[Site, ...]
    wrapper: type[HeadNorm | FullNorm]
    build: Callable[[_Heads, Site], Norm]


_QK_NORMS: Mapping[QkNorm, _QkNorm] = {
    "none": _QkNorm((), HeadNorm, _rms),
    "l2": _QkNorm(("q", "k"), HeadNorm, _l2),
    "cosine": _QkNorm(("q", "k"), HeadNorm, _cosine),
    "ln": _QkNorm(("q", "k"), HeadNorm, _layer),
    "rms": _QkNorm(("q", "k"), HeadNorm, _rms),
    "rms_heads": _QkNorm(("q", "k"), HeadNorm, _rms_by_head),
    "rms_full": _QkNorm(("q", "k"), FullNorm, _rms_of_all),
    "qkv": _QkNorm(("q", "k", "v"), HeadNorm, _rms),
}


def qk_sites(
    kind: QkNorm, *, dim: int, heads: int, length: int, eps: float = 1e-5
) -> dict[Site, nn.Module | None]:
    """Return the norms of `model.qk_norm=kind` for one attention module with heads of width `dim`.

    Raises UserError for `l2` if `length` is below 2, where the initial scale is undefined.
    """
    sites, wrapper, build = _QK_NORMS[kind]
    return {site: wrapper(build(_Heads(dim, heads, length, eps), site)) for site in sites}
