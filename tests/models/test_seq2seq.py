"""With the same weights, our translation model matches `torch.nn.Transformer`."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.models.small import BOS, DIM, sentences, seq2seq

LENGTHS = ([5, 3, 7], [4, 6, 2])


def copy(ours, theirs):
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(ours.bias)


@torch.no_grad()
def torch_twin(model, *, norm_first) -> Any:
    twin: Any = nn.Transformer(
        DIM, 2, 2, 2, 24, dropout=0.0, batch_first=True, norm_first=norm_first, dtype=torch.double
    )
    stacks = [(model.encoder, twin.encoder), (model.decoder, twin.decoder)]
    for ours, theirs in stacks:
        if norm_first:
            copy(ours.final_norm, theirs.norm)
        else:
            theirs.norm = None
        for layer, layer_twin in zip(ours.layers, theirs.layers, strict=True):
            attention = layer_twin.self_attn
            attention.in_proj_weight.copy_(layer.self_attention.qkv_proj.weight)
            attention.in_proj_bias.copy_(layer.self_attention.qkv_proj.bias)
            copy(layer.self_attention.out_proj, attention.out_proj)
            copy(layer.feed_forward.fc1, layer_twin.linear1)
            copy(layer.feed_forward.fc2, layer_twin.linear2)
            copy(layer.self_residual.norm, layer_twin.norm1)
            if ours is model.encoder:
                copy(layer.ffn_residual.norm, layer_twin.norm2)
                continue
            cross = layer.cross_attention
            attention = layer_twin.multihead_attn
            for name in ("weight", "bias"):
                both = [getattr(part, name) for part in (cross.q_proj, cross.kv_proj)]
                getattr(attention, f"in_proj_{name}").copy_(torch.cat(both))
            copy(cross.out_proj, attention.out_proj)
            copy(layer.cross_residual.norm, layer_twin.norm2)
            copy(layer.ffn_residual.norm, layer_twin.norm3)
    return twin


@torch.no_grad()
def randomize_biases(model):
    """Draw random biases: they start as zeros, which would hide a bias in the wrong place."""
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.uniform_(-0.3, 0.3)


@pytest.mark.parametrize(("place", "norm_first"), [("post", False), ("pre", True)])
@pytest.mark.parametrize("training", [False, True])
def test_outputs_and_gradients_match_torchs_transformer(place, norm_first, training):
    model = seq2seq("ln", place).train(training)
    randomize_biases(model)
    twin = torch_twin(model, norm_first=norm_first)  # training mode: torch's plain code path
    source_ids, source = sentences(LENGTHS[0], seed=1)
    target_ids, target = sentences(LENGTHS[1], seed=2, first=BOS)
    x = model.encoder.embedding(source_ids, source).detach().requires_grad_()
    y = model.decoder.embedding(target_ids, target).detach().requires_grad_()
    expected = twin(
        x,
        y,
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.double),
        src_key_padding_mask=~source.valid,
        memory_key_padding_mask=~source.valid,
    )
    found = model(source_ids, source, target_ids, target)
    torch.testing.assert_close(found[target.valid], expected[target.valid], rtol=1e-10, atol=1e-11)

    weighing = torch.randn(found[target.valid].shape, dtype=torch.double)
    (found[target.valid] * weighing).sum().backward()
    (expected[target.valid] * weighing).sum().backward()
    cross = model.decoder.layers[0].cross_attention
    for parts, other in (
        ([model.encoder.layers[0].feed_forward.fc1], twin.encoder.layers[0].linear1.weight),
        ([model.encoder.layers[1].self_residual.norm], twin.encoder.layers[1].norm1.weight),
        ([cross.q_proj, cross.kv_proj], twin.decoder.layers[0].multihead_attn.in_proj_weight),
    ):
        grad = torch.cat([part.weight.grad for part in parts])
        torch.testing.assert_close(grad, other.grad, rtol=1e-9, atol=1e-10)
