"""Folding running-statistics norms into the products beside them, for inference.

With running statistics batch norm is a fixed scale and shift of each feature (Ioffe and Szegedy
2015, algorithm 2, line 11). Where nothing but products reads its output, the scale goes into their
weights and the shift into their biases, and the norm is gone:

    W (s * x + t) + b  =  (W s) x + (W t + b)

A norm that reads a product or a convolution goes into it in the same way.

What stays: norms of post-norm residuals, whose output is the stream itself; those before an output
projection that is the token embedding; and statistics by position, which are no fixed map.
"""

from collections.abc import Sequence

import torch
from torch import nn

from normlab.models.centering import settle_centered
from normlab.models.convolution import ConvNorm, Convolution
from normlab.models.feed_forward import FeedForward
from normlab.models.layers import DecoderLayer, EncoderLayer
from normlab.models.linear import Linear
from normlab.models.masked_lm import MaskedLM
from normlab.models.seq2seq import Seq2Seq
from normlab.models.vit import ViT
from normlab.norms.base import Norm
from normlab.norms.local import NoNorm
from normlab.placements.base import Residual


@torch.no_grad()
def fold(model: nn.Module) -> list[str]:
    """Fold what can be folded of a model in evaluation, in place; return the norms that are gone.

    The model computes the same up to rounding, and must not be trained or recalibrated any more.
    """
    settle_centered(model)
    names = {module: name for name, module in model.named_modules()}
    folded = [
        norm
        for module in list(model.modules())
        for owner, place, linears in _before(module)
        if (norm := _absorbed_by_next(owner, place, linears)) is not None
    ]
    for module in model.modules():
        behind = None
        if isinstance(module, FeedForward):
            behind = _absorbed_by_last(module, "inner_norm", module.fc1)
        elif isinstance(module, ConvNorm):
            behind = _absorbed_by_last(module, "norm", module.convolution)
        folded += [] if behind is None else [behind]
    return sorted(names[norm] for norm in folded)


def _before(module: nn.Module) -> list[tuple[nn.Module, str, Sequence[Linear]]]:
    """Return where norms stand that products alone read: their owner, their name, the products."""
    found: list[tuple[nn.Module, str, Sequence[Linear]]] = []
    if isinstance(module, EncoderLayer | DecoderLayer):
        branches = [
            (module.self_residual, module.self_attention.qkv_proj),
            (module.ffn_residual, module.feed_forward.fc1),
        ]
        if isinstance(module, DecoderLayer):
            branches.append((module.cross_residual, module.cross_attention.q_proj))
        for residual, linear in branches:
            assert isinstance(residual, Residual)
            if residual.branch_norm is not None:
                found.append((residual, residual.branch_norm, [linear]))
    elif isinstance(module, Seq2Seq):
        layers = [layer for layer in module.decoder.layers if isinstance(layer, DecoderLayer)]
        readers = [layer.cross_attention.kv_proj for layer in layers]
        found.append((module.encoder, "final_norm", readers))
    elif isinstance(module, MaskedLM):
        found.append((module.encoder, "final_norm", [module.token_head, module.pooler]))
    elif isinstance(module, ViT):  # a mean over patches does not come between
        found.append((module.encoder, "final_norm", [module.classes]))
    return found


def _absorbed_by_next(owner: nn.Module, place: str, linears: Sequence[Linear]) -> Norm | None:
    """Fold the norm at `place` into the products that read it; return it if that was possible."""
    norm = getattr(owner, place)
    if not isinstance(norm, Norm) or (fixed := norm.fixed_map()) is None:
        return None
    scale, shift = fixed
    for linear in linears:
        weight = linear.weight.double()
        linear.bias.copy_(weight @ shift + linear.bias.double())
        linear.weight.copy_(weight * scale)
    setattr(owner, place, NoNorm(norm.dim))
    return norm


def _absorbed_by_last(owner: nn.Module, place: str, product: Linear | Convolution) -> Norm | None:
    """Fold the norm at `place` into the product that it reads; return it if that was possible."""
    norm = getattr(owner, place)
    if (fixed := norm.fixed_map()) is None:
        return None
    scale, shift = fixed
    weight = product.weight
    weight.copy_(weight.double() * scale.view(-1, *[1] * (weight.dim() - 1)))
    bias = shift if product.bias is None else product.bias.double() * scale + shift
    product.bias = nn.Parameter(bias.to(weight))
    setattr(owner, place, NoNorm(norm.dim))
    return norm
