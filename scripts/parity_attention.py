"""Attention modules of other authors, with their weight matrices split like ours.

Each is built from the authors' file, and takes `x`, `[B, T, D]`, and `valid`, `[B, T]`.
"""

import types
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

HEADS = 2


class OneTable(nn.Module):
    """CyndxAI's attention, which keeps all four projections in one matrix."""

    def __init__(self, module: Any, dim: int, length: int) -> None:
        super().__init__()
        settings = types.SimpleNamespace(
            embed_dim=dim,
            num_heads=HEADS,
            att_dropout=0.0,
            use_bias=True,
            seq_len_threshold=length,
            mha_sup=True,
        )
        self.attention = module.MultiheadAttention(settings)
        for name in ("weights", "biases"):
            table = self.attention._parameters.pop(name).detach()
            for part, rows in (("in", table[: 3 * dim]), ("out", table[3 * dim :])):
                self.register_parameter(f"{part}_{name}", nn.Parameter(rows))

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """Return the attention of `x` to the valid tokens, with the current weights."""
        for name in ("weights", "biases"):
            parts: list[Tensor] = [self.get_parameter(f"{part}_{name}") for part in ("in", "out")]
            setattr(self.attention, name, torch.cat(parts))
        return self.attention(x, x, x, ~valid[:, None, None])[0]


class Timm(nn.Module):
    """timm's attention with layer norm on queries and keys."""

    def __init__(self, module: Any, dim: int) -> None:
        super().__init__()
        self.attention = module.Attention(
            dim, HEADS, qkv_bias=True, qk_norm=True, norm_layer=nn.LayerNorm
        )

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """Return the attention of `x` to the valid tokens."""
        return self.attention(x, valid[:, None, None])


class Gated(nn.Module):
    """The gated attention of its authors' code, without rotary positions.

    In their code the gate's rows are in the query projection, next to each head's. Here the gate is
    a separate layer, like the other projections of our attention.
    """

    def __init__(self, module: Any, dim: int, kind: str) -> None:
        super().__init__()
        vars(module)["torch"] = Wide()
        settings = types.SimpleNamespace(
            hidden_size=dim,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            head_dim=dim // HEADS,
            max_position_embeddings=0,
            rope_theta=1.0,
            attention_dropout=0.0,
            use_qk_norm=False,
            qkv_bias=True,
            headwise_attn_output_gate=kind == "headwise",
            elementwise_attn_output_gate=kind == "elementwise",
        )
        vars(module)["Qwen3RotaryEmbedding"] = lambda config: None
        self.attention = module.Qwen3Attention(settings, layer_idx=0).requires_grad_(False)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, HEADS if kind == "headwise" else dim)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """Return the attention of `x` to the valid tokens."""
        tables = {}
        for name in ("weight", "bias"):
            query, key, value = self.qkv.get_parameter(name).chunk(3)
            gate = self.gate.get_parameter(name).unflatten(0, (HEADS, -1))
            query = torch.cat([query.unflatten(0, (HEADS, -1)), gate], 1).flatten(0, 1)
            parts = {"q": query, "k": key, "v": value, "o": self.out.get_parameter(name)}
            tables |= {f"{part}_proj.{name}": table for part, table in parts.items()}
        hidden = torch.zeros(valid.shape, dtype=x.dtype).masked_fill(~valid, float("-inf"))
        length, width = x.shape[1], x.shape[2] // HEADS
        still = torch.ones(1, length, width, dtype=x.dtype), torch.zeros(1, length, width)
        arguments = {"attention_mask": hidden[:, None, None], "position_embeddings": still}
        return functional_call(self.attention, tables, (x,), arguments)[0]


class Wide:
    """torch with float64 as its float32, because their code takes root mean squares in float32."""

    float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class HybridNorm(nn.Module):
    """The attention of a block in HybridNorm's code, with RMS norm on queries and keys.

    With `values`, it also normalizes the values.
    """

    def __init__(self, module: Any, dim: int, *, values: bool) -> None:
        super().__init__()
        vars(module)["torch"] = Wide()
        settings = types.SimpleNamespace(
            d_model=dim,
            n_heads=HEADS,
            effective_n_kv_heads=HEADS,
            n_layers=1,
            mlp_hidden_size=2 * dim,
            activation_type=module.ActivationType.gelu,
            layer_norm_type=module.LayerNormType.rms,
            layer_norm_eps=1e-5,
            layer_norm_with_affine=True,
            attention_layer_norm_with_affine=True,
            bias_for_layer_norm=False,
            include_bias=True,
            attention_layer_norm=False,
            use_query_norm=True,
            use_key_norm=True,
            use_value_norm=values,
            use_context_norm=False,
            attn_norm=False,
            attn_residual_after_norm=False,
            ffn_norm=False,
            ffn_residual_after_norm=False,
            norm_pos_special_config=None,
            clip_qkv=None,
            rope=False,
            flash_attention=False,
            attention_dropout=0.0,
            residual_dropout=0.0,
            init_device="cpu",
        )
        self.block = module.OLMoSequentialBlock(0, settings, {})

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """Return the attention of `x` to the valid tokens."""
        hidden = torch.zeros(valid.shape, dtype=x.dtype).masked_fill(~valid, float("-inf"))
        bias = hidden[:, None, None].expand(-1, 1, x.shape[1], -1)
        heads = self.block.att_proj(x).split(self.block.fused_dims, dim=-1)
        return self.block.attention(*heads, bias)[0]


class GainsByHead(nn.Module):
    """x-transformers' norm on heads, whose gain is 1 plus the parameter."""

    def __init__(self, module: Any, dim: int) -> None:
        super().__init__()
        self.norm = module.MultiheadRMSNorm(dim // HEADS, HEADS)
        self.gains = nn.Parameter(1 + self.norm._parameters.pop("gamma").detach())

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """Return the normalized heads of `x`, concatenated."""
        self.norm.gamma = self.gains - 1
        heads = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        return self.norm(heads).transpose(1, 2).flatten(2)
