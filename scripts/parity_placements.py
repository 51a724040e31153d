"""Layers of other authors with single linear layers as sub-layers, to compare only the wiring.

Each is built from the authors' file, and takes `x`, `[B, T, D]`.
"""

import os
import types
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scripts.parity_attention import Wide

LAYERS = 2


class _Attention(nn.Module):
    """A linear layer with the interface of LLaMA's attention."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, hidden_states: Tensor, **_: Any) -> tuple[Tensor, None, None]:
        """Return the linear layer's output, and None for the weights and the cache."""
        return self.linear(hidden_states), None, None


class GPAS(nn.Module):
    """A LLaMA layer with GPAS on pre-norm, and the model's final norm."""

    def __init__(self, module: Any, dim: int) -> None:
        super().__init__()
        os.environ["NORM_TYPE"] = "pre_gpas"  # read at every call
        vars(module)["torch"] = Wide()
        vars(module)["custom_activations"] = types.SimpleNamespace(ACT2FN={"silu": F.silu})
        settings = types.SimpleNamespace(
            hidden_size=dim,
            num_attention_heads=1,
            max_position_embeddings=8,
            num_hidden_layers=1,
            intermediate_size=dim,
            hidden_act="silu",
            rms_norm_eps=1e-5,
        )
        self.layer = module.LlamaDecoderLayer(settings, 0)
        self.layer.self_attn, self.layer.mlp = _Attention(dim), nn.Linear(dim, dim)
        self.norm = module.LlamaRMSNorm(dim, eps=settings.rms_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """Return the model's output."""
        return self.norm(self.layer(x)[0])


def keel(module: Any, dim: int) -> nn.Module:
    """Return vit-pytorch's layers with Keel; each sub-layer is a norm and a linear layer."""
    stack = module.Transformer(dim, LAYERS, 1, dim, dim)
    layers = [module.FeedForward(dim, dim) for _ in stack.layers]
    for layer in layers:
        layer.net = layer.net[:2]
    stack.layers = nn.ModuleList(layers)
    return stack


class Siamese(nn.Module):
    """The layers and the end of a DeiT with SiameseNorm."""

    def __init__(self, module: Any, dim: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            module.Block(dim, 1, index=number, drop_path=0.0) for number in range(LAYERS)
        )
        for block in self.blocks:
            block.attn, block.mlp = nn.Linear(dim, dim), nn.Linear(dim, dim)
        for name in ("pre_norm", "post_norm", "final_norm"):
            setattr(self, name, nn.LayerNorm(dim))
        self.features = module.VisionTransformer.forward_features

    def forward(self, x: Tensor) -> Tensor:
        """Return the output at all tokens; the authors' code returns only the first token's."""
        seen: list[Tensor] = []
        first, rest = x[:, :1], x[:, 1:]
        stand_in = types.SimpleNamespace(
            patch_embed=lambda _: rest,
            cls_token=types.SimpleNamespace(expand=lambda *_: first),
            dist_token=None,
            pos_embed=torch.zeros(()),
            pos_drop=nn.Identity(),
            blocks=self.blocks,
            pre_norm=self.pre_norm,
            post_norm=self.post_norm,
            final_norm=lambda x: seen.append(self.get_submodule("final_norm")(x)) or seen[-1],
            pre_logits=nn.Identity(),
        )
        self.features(stand_in, x)
        return seen[-1]
