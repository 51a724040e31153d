"""`normlab.fold_norms` folds norms into weights without changing the outputs."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

import normlab
from normlab.any_model.surgery.fold import EXACT, FoldedRMSNorm, _difference
from normlab.any_model.tracing.float64 import float64_operations
from normlab.cli import main
from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.models.base import Text
from normlab.tasks.lm import LanguageModeling
from normlab.training.build import build_model

D = 8
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "vocab_size": 30}
SIZES |= {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
IDS = {"input_ids": torch.randint(3, 30, (2, 7), generator=torch.Generator().manual_seed(1))}
X = torch.randn(2, 5, D, generator=torch.Generator().manual_seed(2))


def shaken(model):
    """Return the model with random gains and biases, as after training."""
    generator = torch.Generator().manual_seed(0)
    for values in model.parameters():
        values.data += 0.2 * torch.randn(values.shape, generator=generator)
    return model


def gpt2(**settings):
    return shaken(GPT2LMHeadModel(GPT2Config(**SIZES, **settings)))


def llama():
    return shaken(LlamaForCausalLM(LlamaConfig(**SIZES, intermediate_size=32)))


@torch.no_grad()
def logits(model):
    with float64_operations():
        return model.eval()(**IDS).logits


@pytest.mark.parametrize("make", [lambda: gpt2(tie_word_embeddings=False), llama])
def test_every_norm_of_a_pre_norm_model_folds_without_changing_the_logits(make):
    model = make().double()
    folded = normlab.fold_norms(model, IDS)
    assert len(folded.table) == 5
    assert all(row.gain.folded and (row.mean is None or row.mean.folded) for row in folded.table)
    assert not any(isinstance(module, nn.LayerNorm) for module in folded.model.modules())
    gains = [w for name, w in folded.model.named_parameters() if "norm" in name or "ln_" in name]
    assert all((w == 1).all() for w in gains)
    before, after = logits(model), logits(folded.model)
    assert ((after - before).abs().max() < EXACT * before.abs().max()).item()
    assert folded.error < EXACT


def test_the_folded_model_keeps_its_dtype():
    folded = normlab.fold_norms(gpt2().bfloat16(), IDS, untie=True).model
    assert {x.dtype for x in folded.parameters()} == {torch.bfloat16}
    model = gpt2().eval()
    folded = normlab.fold_norms(model, IDS, untie=True).model
    torch.testing.assert_close(folded(**IDS).logits, model(**IDS).logits, atol=1e-5, rtol=1e-4)


def test_each_folded_module_keeps_its_mode():
    model = gpt2().train()
    model.transformer.h[0].eval()
    folded = normlab.fold_norms(model, IDS, untie=True).model
    assert folded.training and folded.transformer.h[1].training
    assert not folded.transformer.h[0].mlp.training


def test_a_tied_embedding_blocks_folding_unless_untie_is_set():
    model = gpt2()
    table = normlab.fold_norms(model, IDS).table
    for row in table:
        assert "transformer.wte.weight is also read by linear in lm_head (tied" in row.mean.why_not
        assert row.gain.folded == (row.site != "transformer.ln_f")
    untied = normlab.fold_norms(model, IDS, untie=True)
    assert all(row.mean.folded and row.gain.folded for row in untied.table)
    assert model.lm_head.weight is model.transformer.wte.weight


def test_post_norm_is_not_folded_and_the_reason_names_the_module():
    model = shaken(BertForMaskedLM(BertConfig(**SIZES, intermediate_size=32)))
    table = {row.site: row for row in normlab.fold_norms(model, IDS).table}
    last = table["bert.encoder.layer.0.output.LayerNorm"]
    name = "bert.encoder.layer.0.attention.output.LayerNorm"
    assert last.mean.why_not == f"its input contains the output of {name} (post-norm)"
    where = "bert.encoder.layer.1.attention.output"
    assert last.gain.why_not == f"add in {where} reads its output (post-norm)"


class Words(LanguageModeling):
    def __init__(self):
        pass

    def spec(self):
        return Text(vocab=30, pad_id=0, causal=True, longest=16)


class Branch(nn.Module):
    """A pre-norm block, with a branch that reads the stream without a norm if `raw`."""

    def __init__(self, *, raw, bias=True, shared=False):
        super().__init__()
        self.first, self.norm, self.raw = nn.Linear(D, D), nn.LayerNorm(D), raw
        self.gate = nn.Linear(D, D) if raw else nn.Identity()
        self.inner = nn.Linear(D, D, bias=bias)
        self.last, self.head = nn.LayerNorm(D), nn.Linear(D, 3)
        self.shared = shared

    def forward(self, x):
        x = self.first(x)
        y = self.inner(self.norm(x))
        if self.raw:
            y = y * self.gate(x).sigmoid()
        if self.shared:
            y = self.inner(y)
        return self.head(self.last(x + y))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"raw": True}, "linear in gate reads the sum with first.weight"),
        ({"raw": False, "shared": True}, "inner.weight is also read by linear in inner"),
    ],
)
def test_a_norm_whose_folding_would_change_the_output_is_not_folded(settings, said):
    model = shaken(Branch(**settings))
    table = {row.site: row for row in normlab.fold_norms(model, X).table}
    assert said in f"{table['norm'].mean}; {table['norm'].gain}"
    assert table["last"].gain.folded


def test_folding_a_bias_adds_one_to_a_linear_layer_without_a_bias():
    folded = normlab.fold_norms(shaken(Branch(raw=False, bias=False)), X)
    assert all(row.mean.folded and row.gain.folded for row in folded.table)
    assert isinstance(folded.model.norm, FoldedRMSNorm) and folded.model.inner.bias is not None
    assert "gains folded: 2 of 2; layer norms that are RMS norms now: 2 of 2" in str(folded)


def test_a_layer_norm_with_an_unfoldable_gain_becomes_an_rms_norm():
    model = shaken(nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D)))
    folded = normlab.fold_norms(model, X)
    (row,) = folded.table
    assert row.mean.folded and row.gain.why_not == "its output is an output of the model"
    torch.testing.assert_close(folded.model(X), model(X))
    assert torch.equal(folded.model[1].bias, model[1].bias)


class Patches(nn.Module):
    """A vision transformer: convolutional patches, a class token, positions, padding, a mean.

    With `mixed`, a second convolution reads the first one's output; with `across`, a norm pools
    over the positions of the patches.
    """

    def __init__(self, *, mixed=False, across=False):
        super().__init__()
        self.cut, self.mixed, self.across = nn.Conv2d(3, D, 2, stride=2), mixed, across
        self.token, self.places = nn.Parameter(torch.ones(1, 1, D)), nn.Parameter(torch.ones(5, D))
        self.norm, self.inner, self.head = nn.LayerNorm(D), nn.Linear(D, D), nn.Linear(D, 3)
        self.last, self.other = nn.LayerNorm(D), nn.Conv2d(D, D, 1) if mixed else nn.Identity()
        self.along = nn.LayerNorm(4)

    def forward(self, x):
        cut = self.cut(x)
        x = cut.flatten(2)
        shift = self.along(x).mean() if self.across else 0.0
        x = torch.cat([self.token.expand(len(x), -1, -1), x.transpose(1, 2)], 1) + self.places
        x = nn.functional.pad(x, (0, 0, 0, 2))
        x = x + self.inner(self.norm(x))
        y = self.head(self.last(x).mean(1)) + shift
        return y + self.other(cut).mean() if self.mixed else y


IMAGES = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(3))


def test_folding_a_vision_transformer_centers_its_patch_convolution():
    model = shaken(Patches())
    folded = normlab.fold_norms(model, IMAGES)
    assert all(row.mean.folded and row.gain.folded for row in folded.table)
    assert folded.model.cut.weight.mean(0).abs().max() < 1e-6 < model.cut.weight.mean(0).abs().max()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mixed": True}, "conv2d in other reads the sum with cut.weight"),
        ({"across": True}, "whose channels are not last reads the sum with cut.weight"),
    ],
)
def test_a_convolution_with_a_second_reader_is_not_centered(settings, said):
    model = shaken(Patches(**settings))
    table = {row.site: row for row in normlab.fold_norms(model, IMAGES).table}
    assert table["norm"].gain.folded and said in table["norm"].mean.why_not


class DepthwiseBlock(nn.Module):
    """A ConvNeXt block: a depthwise convolution, and a norm over all channels."""

    def __init__(self):
        super().__init__()
        self.depthwise = nn.Conv2d(D, D, 3, padding=1, groups=D)
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, 3)

    def forward(self, x):
        return self.head(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))


def test_a_depthwise_convolution_is_not_centered():
    (row,) = normlab.fold_norms(shaken(DepthwiseBlock()), torch.randn(2, D, 4, 4)).table
    assert row.gain.folded and "contains the result of permute" in row.mean.why_not


class Scaled(nn.Module):
    """A norm that also returns its scale, and one that takes a dictionary."""

    class AdaNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(D)

        def forward(self, x):
            return self.norm(x), torch.ones(1)

    class DictNorm(nn.Module):
        def forward(self, features):
            return {"x": features["x"] / features["x"].norm(dim=-1, keepdim=True)}

    class TupleNorm(nn.Module):
        def forward(self, x):
            return x / x.norm(dim=-1, keepdim=True), x

    def __init__(self):
        super().__init__()
        self.first, self.ada, self.last = nn.Linear(D, D), self.AdaNorm(), nn.Linear(D, D)
        self.groups, self.dict, self.pair = nn.GroupNorm(2, D), self.DictNorm(), self.TupleNorm()

    def forward(self, x):
        y, scale = self.ada(self.first(x))
        y = self.groups(self.last(y).mT).mT * scale
        return self.pair(self.dict({"x": y})["x"])[0]


def test_only_the_layer_norm_folds_among_other_norms_and_norms_with_unusual_inputs():
    model = shaken(Scaled())
    (row,) = normlab.fold_norms(model, [X]).table
    assert (row.site, row.kind) == ("ada.norm", "layer norm")
    assert row.mean.folded and row.gain.folded


def test_a_torch_encoder_layer_uses_the_folded_norms_in_evaluation():
    layer = nn.TransformerEncoderLayer(D, 2, 16, norm_first=True, batch_first=True, dropout=0)
    model = shaken(nn.Sequential(nn.Linear(D, D), layer, nn.LayerNorm(D), nn.Linear(D, 2))).eval()
    folded = normlab.fold_norms(model, X)
    assert all(row.mean.folded and row.gain.folded for row in folded.table)
    with torch.no_grad():
        torch.testing.assert_close(folded.model(X), model(X))


def test_norms_of_normlab_models_fold():
    small = ("model.num_layers=1", "model.dim=16", "model.ffn_dim=32", "model.num_heads=2")
    config = to_dict(compose(["task=lm", "model=gpt2", "model.tied=false", "norm=ln", *small]))
    model = shaken(build_model(config, Words()))

    def forward(model, ids):
        return model.project(model(ids, normlab.Tokens()))

    folded = normlab.fold_norms(model, IDS["input_ids"], forward=forward)
    assert all(row.mean.folded and row.gain.folded for row in folded.table)


def test_the_command_prints_the_number_of_folded_gains(tmp_path, capsys):
    llama().save_pretrained(tmp_path / "llama")
    assert main(["swap", "--hf", str(tmp_path / "llama"), "--fold"]) == 0
    assert "gains folded: 5 of 5" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argument", ["norm=rms", "--sites=a", "--steps=5", "--lr=1", "--taper=3", "--train=all"]
)
def test_arguments_that_folding_does_not_use_are_refused(argument, capsys):
    with pytest.raises(SystemExit):
        main(["swap", "--hf", "x", "--fold", argument])
    assert "--fold can be combined only with" in capsys.readouterr().err


class Headless(nn.Module):
    """A layer norm and a linear layer, whose integer outputs cannot verify a fold."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(D), nn.Linear(D, D)

    def forward(self, x):
        return self.linear(self.norm(x)).argmax(-1)


def test_a_model_without_floating_point_outputs_is_refused():
    with pytest.raises(ValueError, match="no floating-point tensor, so folding cannot be verified"):
        normlab.fold_norms(Headless(), X)


def test_a_later_output_that_becomes_nan_counts_as_a_difference():
    one, later = torch.ones(2), torch.tensor([1.0, torch.nan])
    assert math.isnan(_difference([one, one], [one, later]))


@dataclass
class Output:
    hidden: torch.Tensor


class InDataclass(nn.Module):
    """Returns the output of a norm in a dataclass."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, 3)

    def forward(self, x):
        hidden = self.norm(x)
        return self.head(hidden), Output(hidden)


def test_a_norm_whose_output_is_returned_in_a_dataclass_stays():
    (row,) = normlab.fold_norms(InDataclass(), X).table
    assert row.gain.why_not == "its output is an output of the model"


def test_outputs_in_a_dataclass_are_compared():
    model = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 3))
    folded = normlab.fold_norms(model, X, forward=lambda model, x: Output(model(x)))
    assert folded.table[0].gain.folded and folded.error < EXACT


def test_instance_norm_is_not_taken_for_a_layer_norm_over_positions():
    model = nn.Sequential(nn.Conv1d(3, D, 1), nn.InstanceNorm1d(D))
    with pytest.raises(ValueError, match="no layer or RMS norm"):
        normlab.fold_norms(model, torch.randn(2, 3, 5))


class NanoLayerNorm(nn.Module):
    """nanoGPT's layer norm, whose eps is in the code, or one that adds eps to the deviation."""

    def __init__(self, *, to_deviation=False):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(D)), nn.Parameter(torch.zeros(D))
        self.to_deviation = to_deviation

    def forward(self, x):
        if self.to_deviation:
            centered = x - x.mean(-1, keepdim=True)
            return self.weight * centered / (centered.std(-1, False, keepdim=True) + 1e-3)
        return nn.functional.layer_norm(x, (D,), self.weight, self.bias, 1e-3)


def test_an_eps_that_is_not_an_attribute_is_measured():
    model = shaken(nn.Sequential(nn.Linear(D, D), NanoLayerNorm(), nn.Linear(D, 3)))
    folded = normlab.fold_norms(model, X)
    assert folded.table[0].mean.folded and folded.model[1].eps == 1e-3


def test_a_layer_norm_with_an_unknown_eps_stays_and_its_gain_is_folded():
    norm = NanoLayerNorm(to_deviation=True)
    model = shaken(nn.Sequential(nn.Linear(D, D), norm, nn.Linear(D, 3)))
    norm.bias = None
    (row,) = normlab.fold_norms(model, X).table
    assert row.mean.why_not == "its eps is unknown" and row.gain.folded


def test_a_folded_norm_keeps_a_gain_of_ones():
    model = shaken(nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D), nn.Linear(D, 3)))
    norm = normlab.fold_norms(model, X).model[1]
    assert norm.weight.tolist() == [1] * D and norm.bias is None


class CachedPositions(nn.Module):
    """Adds a table of positions, which it computes in its first pass."""

    def __init__(self):
        super().__init__()
        self.norm, self.head, self.table = nn.LayerNorm(D), nn.Linear(D, 3), None

    def forward(self, x):
        if self.table is None:
            self.table = torch.arange(x.shape[1]).to(x)[:, None].cos()
        return self.head(self.norm(x) * self.table)


def test_a_folded_model_that_caches_a_table_can_be_trained():
    model = CachedPositions()
    folded = normlab.fold_norms(model, X).model
    folded(X).sum().backward()
    assert model.table is None and folded.table.dtype == torch.float32


def test_a_compiled_or_parallel_model_is_unwrapped_before_its_norms_are_folded():
    model = nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D), nn.Linear(D, D))
    for wrapped in (nn.DataParallel(model), torch.compile(model)):
        folded = normlab.fold_norms(wrapped, X)
        assert type(folded.model) is nn.Sequential
        assert [(norm.site, norm.mean.folded) for norm in folded.table] == [("1", True)]


def test_a_folded_norm_accepts_its_input_under_any_name():
    class ByKeyword(Branch):
        def forward(self, x):
            return self.head(self.last(input=self.first(x)))

    model = shaken(ByKeyword(raw=False)).eval()
    del model.inner, model.norm
    folded = normlab.fold_norms(model, X)
    assert folded.table[0].mean.folded and folded.table[0].gain.folded
    torch.testing.assert_close(folded.model(X), model(X))


def test_an_exception_of_the_model_is_a_user_error():
    model = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 3))
    for change in (normlab.fold_norms, lambda m, x: normlab.swap(m, "rms", calibrate=x)):
        with pytest.raises(normlab.UserError, match="the model cannot run a batch: RuntimeError"):
            change(model, X[..., :-1])


def test_a_model_that_cannot_run_in_float64_cannot_be_verified():
    class OnlyFloat32(nn.Sequential):
        def forward(self, x):
            y = super().forward(x)
            if y.dtype == torch.float64:
                raise RuntimeError("value cannot be converted")
            return y

    model = OnlyFloat32(nn.LayerNorm(D), nn.Linear(D, 3))
    with pytest.raises(normlab.UserError, match="folding cannot be verified in float64"):
        normlab.fold_norms(model, X)


class Functional(nn.Module):
    """Calls layer norm as a function."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(D, 3)

    def forward(self, x):
        return self.head(nn.functional.layer_norm(x, (D,)))


def test_norms_that_are_functions_are_named_if_there_are_no_norm_modules():
    message = r"it calls norms as functions \(layer_norm\), and only modules can be changed"
    with pytest.raises(normlab.UserError, match=message):
        normlab.fold_norms(Functional(), X)
    with pytest.raises(normlab.UserError, match=message):
        normlab.swap(Functional(), "rms", calibrate=X)


def test_a_forward_function_that_runs_the_original_is_named():
    model = Branch(raw=False)
    forward = model.forward
    model.forward = lambda x: forward(x)  # as torch.compile(model.forward) does
    with pytest.raises(normlab.UserError, match="the model has a forward function that runs the"):
        normlab.fold_norms(model, X)
    with pytest.raises(normlab.UserError, match="restore its own forward, or set inplace=True"):
        normlab.swap(model, "rms", calibrate=X)
    assert [fit.new for fit in normlab.swap(model, "rms", calibrate=X, inplace=True).table]
