"""Centred weights: products whose rows lose their means, before a norm that takes no mean.

Yan et al. 2020 (MABN, section 4.3) centre the weights of each convolution that a norm reads. The
stream of a Transformer is the sum of what its sub-layers add, so that there it is their last
products, and the first product of a feed-forward layer where the norm stands inside. The embedding,
which the stream begins with, is left as it is.
"""

import torch
from torch import nn

from normlab.models.layers import DecoderLayer, EncoderLayer
from normlab.models.linear import Linear
from normlab.norms.base import Norm


def center_weights(model: nn.Module) -> None:
    """Centre the products before those norms of a model that ask for it (`center_weights`)."""
    for layer in model.modules():
        if not isinstance(layer, EncoderLayer | DecoderLayer):
            continue
        inner = layer.feed_forward.inner_norm
        layer.feed_forward.fc1.centered = inner.center_weights
        norms = {m for m in layer.modules() if isinstance(m, Norm) and m is not inner}
        asked = any(norm.center_weights for norm in norms)
        for linear in _last_products(layer):
            linear.centered = asked


@torch.no_grad()
def settle_centered(model: nn.Module) -> None:
    """Let the weights of centred products be what they multiply by, for inference."""
    for linear in model.modules():
        if isinstance(linear, Linear) and linear.centered:
            linear.weight.copy_(linear.rows)
            linear.centered = False


def _last_products(layer: EncoderLayer | DecoderLayer) -> list[Linear]:
    last = [layer.self_attention.out_proj, layer.feed_forward.fc2]
    return [*last, layer.cross_attention.out_proj] if isinstance(layer, DecoderLayer) else last
