"""NormFormer: its gains of heads."""

import torch

from normlab.norms.tokens import Tokens
from tests.models.small import DIM, assert_close, lm
from tests.placements.places import x_of


@torch.no_grad()
def test_normformers_head_gains_scale_heads_before_the_output_projection():
    layer = lm("ln", "normformer", values={"head_gains": "mix"}).decoder.layers[1]
    x, every, attention = x_of(), Tokens(torch.ones(3, 6, dtype=torch.bool)), layer.self_attention
    gains = torch.tensor([0.5, 2.0], dtype=torch.double)
    attention.mix_norm.gain.copy_(gains)
    y = attention(x, every)
    attention.mix_norm.gain.fill_(1)
    attention.out_proj.weight.mul_(gains.repeat_interleave(DIM // 2))
    assert_close(attention(x, every), y)
