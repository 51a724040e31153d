"""With the same weights, the modern recipes match the classes of transformers.

Their RMS norms, softmax and rotary tables use float32 even in a float64 model, so the reference
runs with every cast to float32 replaced by one to float64 (`float64_operations`).
"""

import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from normlab.any_model.tracing.float64 import float64_operations
from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.norms.tokens import Tokens
from normlab.training.build import build_model
from tests.models.blocks import LM
from tests.models.small import VOCAB

DIM, HEADS, HIDDEN, LENGTH = 16, 2, 24, 24
SIZES = {
    **{"vocab_size": VOCAB, "hidden_size": DIM, "intermediate_size": HIDDEN, "head_dim": DIM // 2},
    **{"num_hidden_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": HEADS},
    **{"attn_implementation": "eager", "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}
GEMMA = {
    **{"query_pre_attn_scalar": DIM // 2, "sliding_window": 64, "rms_norm_eps": 1e-6},
    "layer_types": ["sliding_attention", "full_attention"],
}
SHORT = {
    **{"n_embd": DIM, "n_head": HEADS, "n_layer": 2, "n_inner": HIDDEN, "n_positions": 40},
    **{"vocab_size": VOCAB, "attn_implementation": "eager", "bos_token_id": 1, "eos_token_id": 2},
}


def base(value):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": value}}


THEIRS = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**SHORT)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, rms_norm_eps=1e-5)),
    "olmo2": lambda: Olmo2ForCausalLM(Olmo2Config(**SIZES, rms_norm_eps=1e-6, **base(5e5))),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, **base(1e6))),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, **GEMMA)),
}


def theirs(name):
    torch.manual_seed(0)
    model = THEIRS[name]().double().eval()
    for parameter in model.parameters():  # zeros and ones would hide a value in the wrong place
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return model


def ours(name):
    sizes = [f"model.dim={DIM}", f"model.num_heads={HEADS}", f"model.ffn_dim={HIDDEN}"]
    own = ["model.rope.global_every=2"] if name == "gemma3" else []
    config = compose(["task=lm", f"recipe={name}", *sizes, *own, "model.max_positions=40"])
    return build_model(to_dict(config), LM()).double().eval()


def of_gpt2(model, twin):
    """Yield each of our parameters with the parts of theirs that it consists of."""
    body, embedding = twin.transformer, model.decoder.embedding
    yield embedding.tokens.weight, [body.wte.weight]
    yield embedding.positions.weight, [body.wpe.weight]
    pairs = [(model.decoder.final_norm, body.ln_f)]
    for layer, block in zip(model.decoder.layers, body.h, strict=True):
        attention, forward = layer.self_attention, layer.feed_forward
        pairs += [(layer.self_residual.norm, block.ln_1), (layer.ffn_residual.norm, block.ln_2)]
        pairs += [(attention.qkv_proj, block.attn.c_attn), (attention.out_proj, block.attn.c_proj)]
        pairs += [(forward.fc1, block.mlp.c_fc), (forward.fc2, block.mlp.c_proj)]
    for own, other in pairs:
        yield own.weight, [other.weight]
        yield own.bias, [other.bias]


def of_llama(model, twin):
    """Yield the same pairs for LLaMA and its successors."""
    yield model.decoder.embedding.tokens.weight, [twin.model.embed_tokens.weight]
    yield model.decoder.final_norm.weight, [twin.model.norm.weight]
    if model.output is not None:
        yield model.output.weight, [twin.lm_head.weight]
    for layer, block in zip(model.decoder.layers, twin.model.layers, strict=True):
        attention, forward = layer.self_attention, layer.feed_forward
        parts = [getattr(block.self_attn, f"{part}_proj").weight for part in "qkv"]
        yield attention.qkv_proj.weight, parts
        yield attention.out_proj.weight, [block.self_attn.o_proj.weight]
        yield forward.fc1.weight, [block.mlp.gate_proj.weight, block.mlp.up_proj.weight]
        yield forward.fc2.weight, [block.mlp.down_proj.weight]
        if attention.q_norm is not None:
            yield attention.q_norm.norm.weight, [block.self_attn.q_norm.weight]
            yield attention.k_norm.norm.weight, [block.self_attn.k_norm.weight]
        norms = [m for n, m in block.named_children() if n.endswith("layernorm")]
        own = [layer.self_residual, layer.ffn_residual]
        if len(norms) == 4:
            norms = [norms[0], norms[2], norms[1], norms[3]]
            own = [getattr(each, part) for part in ("norm", "out_norm") for each in own]
        else:
            own = [each.norm for each in own]
        for norm, other in zip(own, norms, strict=True):
            yield norm.weight, [other.weight]


@torch.no_grad()
def copy(name, model, twin):
    """Copy their weights and frequencies, and return the pairs of parameters."""
    pairs = [*(of_gpt2 if name == "gpt2" else of_llama)(model, twin)]
    assert {id(own) for own, _ in pairs} == {id(p) for p in model.parameters()}
    assert {id(p) for _, parts in pairs for p in parts} == {id(p) for p in twin.parameters()}
    for own, parts in pairs:
        own.copy_(joined(name, parts, own, model))
    for number, layer in enumerate(model.decoder.layers):
        attention = layer.self_attention
        if name == "gemma3":  # the gain of its query and key norms is also 1 + w
            attention.q_norm.norm.weight.add_(1)
            attention.k_norm.norm.weight.add_(1)
        if attention.rotary is not None:
            kind = "" if name != "gemma3" else GEMMA["layer_types"][number] + "_"
            frequencies = getattr(twin.model.rotary_emb, f"{kind}inv_freq").double()
            torch.testing.assert_close(attention.rotary.frequencies, frequencies, rtol=1e-6, atol=0)
            attention.rotary.frequencies.copy_(frequencies)
    return pairs


def joined(name, parts, own, model):
    """Return the parts as one tensor; GPT-2 stores its matrices transposed."""
    embedding = model.decoder.embedding
    tables = [embedding.tokens.weight, getattr(embedding.positions, "weight", None)]
    product = own.ndim == 2 and not any(own is table for table in tables)
    return torch.cat(parts).T if name == "gpt2" and product else torch.cat(parts)


@pytest.mark.parametrize("name", THEIRS)
def test_logits_gradients_and_decoding_steps_match_transformers(name):
    model, twin = ours(name), theirs(name)
    pairs = copy(name, model, twin)
    ids = torch.randint(1, VOCAB, (3, LENGTH), generator=torch.Generator().manual_seed(2))
    found = model.project(model(ids, Tokens()))
    weighing = torch.randn_like(found)
    with float64_operations():
        expected = twin(ids).logits
        (expected * weighing).sum().backward()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    (found * weighing).sum().backward()
    for own, parts in pairs:
        grad = joined(name, [part.grad for part in parts], own, model)
        torch.testing.assert_close(own.grad, grad, rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        state = model.start_decoding(len(ids), max_length=LENGTH)
        steps = [model.decode_step(ids[:, t], state) for t in range(LENGTH)]
    torch.testing.assert_close(torch.stack(steps, 1), found, rtol=0, atol=1e-12)
    print(name, (found - expected).abs().max().item())
