"""A norm from `make_norm` can replace layer norms in other people's models."""

import copy

import pytest
import torch
from torch import nn

import normlab
from normlab.norms.base import Norm
from normlab.norms.make import make_norm
from normlab.norms.tokens import Tokens

NAMES = ("bn", "ln", "none", "dyt", "rms", "in", "pn")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def replaced(model, name):
    """Return the model with its layer norms replaced by the norm `name`."""
    norms = {path: m for path, m in model.named_modules() if isinstance(m, nn.LayerNorm)}
    for path, norm in norms.items():
        model.set_submodule(path, normlab.make_norm(name, norm.normalized_shape[0]))
    assert norms and not any(isinstance(module, nn.LayerNorm) for module in model.modules())
    return model


def encoder(name, **given):
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(replaced(layer, name), 2, **given)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_mask_all_tokens_are_real(name):
    norm, x = make_norm(name, 16), torch.randn(3, 5, 16)
    alone = copy.deepcopy(norm)(x)
    torch.testing.assert_close(alone, norm(x, Tokens(torch.ones(3, 5, dtype=torch.bool))))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("padded", [False, True])
def test_torchs_fused_encoder_path_does_not_replace_the_norm_with_layer_norm(name, padded):
    model, x = encoder(name, enable_nested_tensor=False), 2 * torch.randn(4, 6, 16) + 1
    mask = torch.arange(6) >= torch.tensor([6, 4, 3, 6])[:, None] if padded else None
    model(x).square().sum().backward()
    model.eval()
    slow = model(x, src_key_padding_mask=mask)
    real = slice(None) if mask is None else ~mask
    with torch.no_grad():
        fast = model(x, src_key_padding_mask=mask)
    torch.testing.assert_close(fast[real], slow[real], rtol=1e-4, atol=1e-5)
    if name == "bn":  # this can happen: without the hooks, the fused path computes layer norm
        for module in model.modules():
            module._forward_pre_hooks.clear()
        with torch.no_grad():
            fast = model(x, src_key_padding_mask=mask)
        assert (fast - slow)[real].abs().max() > 0.1


def test_a_nested_tensor_raises_an_error_that_says_how_to_disable_nesting():
    model = encoder("bn").eval()
    mask = torch.tensor([[False, False, True]])
    with pytest.raises(ValueError, match="enable_nested_tensor=False"), torch.no_grad():
        model(torch.randn(1, 3, 16), src_key_padding_mask=mask)


@pytest.mark.parametrize("name", ["bn", "none", "rms"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "vit"])
def test_a_transformers_model_trains_with_the_replaced_norms(name, family):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"input_ids": torch.randint(30, (2, 7))}
    if family == "bert":
        config = transformers.BertConfig(vocab_size=30, intermediate_size=32, **sizes)
        model, given = transformers.BertForMaskedLM(config), {**ids, "labels": ids["input_ids"]}
    elif family == "gpt2":
        config = transformers.GPT2Config(vocab_size=30, n_embd=16, n_layer=2, n_head=2)
        model, given = transformers.GPT2LMHeadModel(config), {**ids, "labels": ids["input_ids"]}
    else:
        config = transformers.ViTConfig(image_size=8, patch_size=4, intermediate_size=32, **sizes)
        model = transformers.ViTForImageClassification(config)
        given = {"pixel_values": torch.randn(2, 3, 8, 8), "labels": torch.tensor([0, 1])}
    model = replaced(model, name)
    model(**given).loss.backward()
    learned = [p for m in model.modules() if isinstance(m, Norm) for p in m.parameters()]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in learned)
    assert bool(learned) == (name != "none")
    first, second = (copy.deepcopy(model).eval()(**given).loss for _ in range(2))
    assert torch.equal(first, second)


def test_a_timm_vit_trains_with_batch_norm():
    timm = pytest.importorskip("timm", exc_type=(ImportError, RuntimeError))  # needs torchvision
    model = replaced(timm.create_model("vit_tiny_patch16_224", depth=1, num_classes=2), "bn")
    images = torch.randn(2, 3, 224, 224)
    model(images).sum().backward()
    assert model.eval()(images).isfinite().all()


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 4, 8), (2, 3, 4)])
def test_an_input_of_the_wrong_shape_raises_an_error_that_states_the_expected_shape(shape):
    with pytest.raises(ValueError, match=r"expects \[batch, position, 8\], but got \[.*x\[None\]"):
        make_norm("bn", 8)(torch.randn(*shape))
