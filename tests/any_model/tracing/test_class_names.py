"""What the name of a class suggests about a module or a model."""

import pytest
from torch import nn

from normlab.any_model.tracing.class_names import (
    causality_by_name,
    is_attention,
    is_convolution,
    is_dropout,
    is_named_norm,
    suggested_poolings,
)


def named(name: str) -> nn.Module:
    return type(name, (nn.Module,), {})()


@pytest.mark.parametrize(
    ("says", "names", "other_names"),
    [
        (is_attention, ["BertSelfAttention", "QKVAttn"], ["PatternMatching"]),
        (is_convolution, ["CausalConv1d", "GatedConvolution"], ["Converter"]),
        (is_dropout, ["StableDropout", "DropPath", "StochasticDepth"], ["Raindrop"]),
        (is_named_norm, ["LlamaRMSNorm", "layernorm"], ["Linear"]),
    ],
)
def test_only_a_whole_word_of_a_class_name_says_what_the_module_is(says, names, other_names):
    assert all(says(named(name)) for name in names)
    assert not any(says(named(name)) for name in other_names)


@pytest.mark.parametrize(
    ("name", "causal"),
    [
        ("LlamaForCausalLM", True),
        ("GPT2LMHeadModel", True),
        ("BertForMaskedLM", False),
        ("Bert", None),
        ("XLNetLMHeadModel", None),
        ("XLMWithLMHeadModel", None),
    ],
)
def test_the_name_of_a_language_model_says_whether_it_is_causal(name, causal):
    assert causality_by_name(name) is causal


def test_the_name_of_a_norm_suggests_the_axes_that_it_pools_over():
    (batch,), (layer,) = (suggested_poolings(name) for name in ("bn1", "LayerNorm"))
    assert batch.some == layer.none - {"position"} == {"batch"}
    assert [*suggested_poolings("Normalize")] == []
