"""QK norms, caps and gates of attention."""

import pytest
import torch

from normlab.models.attention import AttentionCore
from normlab.models.folding import fold
from normlab.norms.tokens import Tokens
from normlab.probes.activations import describe_attention
from tests.models.blocks import GATES, block, double, whole
from tests.models.small import BOS, assert_close, logits, sentences, seq2seq
from tests.models.test_decoding import stepped


@torch.no_grad()
def test_full_qk_norm_couples_heads_and_equals_the_per_head_norm_with_one_head():
    full, single = (block("ln", qk_norm=kind, num_heads=1) for kind in ("rms_full", "rms"))
    ids, _ = sentences([9, 9])
    assert_close(whole(full, ids), whole(single, ids))
    x, changed = double(1, 3, 16), {}
    for kind in ("rms_full", "rms"):
        attention = block("ln", qk_norm=kind, num_heads=4).decoder.layers[0].self_attention
        before, _, _ = attention.project(x, Tokens())
        attention.qkv_proj.weight[:4] *= 3  # the queries of the first head
        after, _, _ = attention.project(x, Tokens())
        changed[kind] = not torch.allclose(before[:, 1:], after[:, 1:])
    assert changed == {"rms_full": True, "rms": False}


def test_qk_eps_sets_the_eps_of_the_qk_norms():
    attention = block(qk_norm="rms_full", qk_eps=0.25).decoder.layers[0].self_attention
    assert attention.q_norm.norm.eps == attention.k_norm.norm.eps == 0.25


@torch.no_grad()
def test_caps_squash_attention_scores_and_logits_with_tanh():
    ids, _ = sentences([9, 9])
    plain, capped = block(), block(logit_cap=0.1)
    assert_close(whole(capped, ids), 0.1 * torch.tanh(whole(plain, ids) / 0.1))
    query, key, value = double(2, 1, 5, 4) * 9, double(2, 1, 5, 4), double(2, 1, 5, 4)
    scores = 3 * torch.tanh(query @ key.mT / 2 / 3)
    visible = torch.ones(5, 5, dtype=torch.bool).tril()
    expected = scores.masked_fill(~visible, -torch.inf).softmax(-1) @ value
    assert_close(AttentionCore(0.0, cap=3.0)(query, key, value, visible), expected)
    real = torch.ones(2, 5, dtype=torch.bool)
    found = describe_attention(query, key, visible, real, threshold=0.9, cap=3.0)
    assert_close(found["largest"], scores.tril().abs().amax())


def set_gates(model, bias):
    """Give every gate the value sigmoid(bias)."""
    for name, parameter in model.named_parameters():
        if ".gate." in name:
            parameter.fill_(bias if name.endswith("bias") else 0.0)


@torch.no_grad()
@pytest.mark.parametrize("changes", GATES)
def test_open_attention_gates_change_nothing_and_closed_ones_hide_the_source(changes):
    plain, model = seq2seq(), seq2seq(**changes)
    model.load_state_dict(plain.state_dict(), strict=False)
    source, other = (sentences([6, 3, 5], seed=seed)[0] for seed in (1, 3))
    target = sentences([7] * 3, seed=2, first=BOS)[0]
    set_gates(model, 50.0)
    assert_close(logits(model, source, target), logits(plain, source, target))
    assert not torch.allclose(logits(model, other, target), logits(model, source, target))
    set_gates(model, -50.0)
    assert_close(logits(model, other, target), logits(model, source, target))


@torch.no_grad()
@pytest.mark.parametrize("changes", GATES)
def test_decoding_and_folding_a_gated_model_do_not_change_its_logits(changes):
    model = seq2seq("bn", "pre", **changes)
    source, target = sentences([6, 3, 5], seed=1)[0], sentences([7] * 3, seed=2, first=BOS)[0]
    whole_pass = logits(model, source, target)
    assert_close(stepped(model, source, target)[0], whole_pass)
    assert {"decoder.layers.0.cross_residual.norm", "encoder.layers.1.self_residual.norm"} <= set(
        fold(model)
    )
    assert_close(logits(model, source, target), whole_pass)
