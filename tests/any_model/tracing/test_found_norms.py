"""The norms of a model, and what each pools over."""

from importlib import import_module
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import normlab
from normlab import make_norm
from normlab.any_model.tracing import reach
from normlab.any_model.tracing.functional_norms import NORM_FUNCTIONS

ROWS, TOKENS, WIDTH = 3, 10, 16


class ChannelsFirst(nn.Module):
    """Takes and returns `[B, T, D]`, but calls a module on `[B, D, T]`."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.transpose(1, 2)).transpose(1, 2)


class OnePlus(nn.Module):
    """Gemma's RMS norm, with a gain of 0 at feature 3."""

    def __init__(self):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(WIDTH)), 1e-6
        self.weight.data[3] = -1

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * (1 + self.weight)


class Calling(nn.Module):
    """Calls a function in a forward pass that also does other things."""

    def __init__(self, function):
        super().__init__()
        self.function, self.linear = function, nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.linear(self.function(self.linear(x)))


def found(model, *shape):
    torch.manual_seed(0)
    report = normlab.inspect(model, torch.randn(*(shape or (ROWS, TOKENS, WIDTH))), checks="norms")
    return report.norms


@pytest.mark.parametrize(
    ("module", "pools"),
    [
        (nn.LayerNorm(WIDTH), "feature"),
        (nn.RMSNorm(WIDTH), "feature"),
        (OnePlus(), "feature"),
        (nn.LayerNorm(WIDTH, elementwise_affine=False), "feature"),
        (ChannelsFirst(nn.GroupNorm(4, WIDTH)), "position, feature (4 of 16), padding included"),
        (ChannelsFirst(nn.InstanceNorm1d(WIDTH)), "position, padding included"),
        (
            ChannelsFirst(nn.BatchNorm1d(WIDTH)),
            "batch, position, padding included (fixed in evaluation)",
        ),
        (
            ChannelsFirst(nn.BatchNorm1d(WIDTH, track_running_stats=False)),
            "batch, position, padding included",
        ),
        (make_norm("ln", WIDTH), "feature"),
        (make_norm("bn", WIDTH), "batch, position, padding included (fixed in evaluation)"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_pooled_axes_of_a_norm_are_found(module, pools):
    (norm,) = found(nn.Sequential(nn.Linear(WIDTH, WIDTH), module, nn.Softmax(-1), nn.Dropout()))
    assert (norm.pools, norm.misnomer) == (pools, None)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (nn.Sequential(nn.BatchNorm1d(TOKENS)), "batch, feature (fixed in evaluation)"),
        (ChannelsFirst(nn.LayerNorm(TOKENS)), "position"),
        (nn.Sequential(nn.LayerNorm((TOKENS, WIDTH))), "position, feature"),
    ],
)
def test_a_norm_that_pools_over_other_axes_than_its_name_suggests_is_worth_a_look(model, says):
    torch.manual_seed(0)
    finding = normlab.inspect(model, torch.randn(ROWS, TOKENS, WIDTH)).findings["norms"]
    assert finding.verdict == "look" and f"pools over {says}, but" in finding.answer


def test_an_attribute_name_that_contradicts_the_norm_is_a_misnomer():
    model = ChannelsFirst(nn.Identity())
    model.inner = nn.Sequential()
    model.inner.layer_norm = nn.GroupNorm(WIDTH, WIDTH)
    (norm,) = found(model)
    assert norm.misnomer == ("layer_norm", "pooling a token's features")


OVER_TIME = {
    "group_norm": "position, feature (4 of 16), padding included",
    "batch_norm": "batch, position, padding included (fixed in evaluation)",
    "instance_norm": "position, padding included",
}
MEAN, VAR = torch.zeros(WIDTH), torch.ones(WIDTH)
ARGUMENTS = {
    F.batch_norm: (MEAN, VAR),
    F.instance_norm: (),
    torch.batch_norm: (None, None, MEAN, VAR, False, 0.1, 1e-5, False),
    torch.instance_norm: (None, None, None, None, True, 0.1, 1e-5, False),
    **dict.fromkeys((F.group_norm, torch.group_norm), (4,)),
}


@pytest.mark.parametrize(
    "function", NORM_FUNCTIONS, ids=lambda each: f"{each.__module__}.{each.__name__}"
)
def test_functional_norms_are_found_below_the_module_that_calls_them(function):
    kind = function.__name__

    def call(x):
        y = function(x.mT if kind in OVER_TIME else x, *ARGUMENTS.get(function, ((WIDTH,),)))
        return y.mT if kind in OVER_TIME else y

    (norm,) = found(nn.Sequential(nn.GELU(), Calling(call)))
    home = "torch" if function is getattr(torch, kind) else "F"
    assert (norm.name, norm.kind) == (f"1.{kind}", f"{home}.{kind}")
    assert norm.pools == OVER_TIME.get(kind, "feature")


def test_functions_that_are_not_norms_are_not_found():
    def attention(x):
        return (x @ x.mT).softmax(-1) @ x

    for function in (torch.tanh, torch.sign, attention, lambda x: x - x.mean(-1, keepdim=True)):
        model = nn.Sequential(Calling(function))
        model[0].linear = nn.Identity()
        assert found(model) == []


def test_gains_near_0_are_counted_even_if_the_gain_is_1_plus_the_weight():
    batch = nn.BatchNorm1d(WIDTH)
    nn.init.zeros_(batch.weight)
    model = nn.Sequential(OnePlus(), nn.LayerNorm(WIDTH), ChannelsFirst(batch))
    assert [norm.gains for norm in found(model)] == [(16, 1), (16, 0), (16, 16)]
    assert [norm.eps for norm in found(model)] == [1e-6, 1e-5, 1e-5]


def test_the_pooled_axes_of_norms_on_images_are_found():
    model = nn.Sequential(nn.BatchNorm2d(8), nn.GroupNorm(2, 8), nn.LayerNorm((8, 8, 8)))
    batch, group, layer = found(model, 4, 8, 8, 8)
    assert batch.pools == "batch, position (fixed in evaluation)"
    assert group.pools == "position, feature (4 of 8)"
    assert (layer.pools, layer.misnomer) == ("position, feature", None)


@pytest.mark.parametrize(
    ("norm", "pools"),
    [
        (nn.InstanceNorm2d(8), "position"),
        (nn.BatchNorm2d(8, affine=False), "batch, position (fixed in evaluation)"),
    ],
    ids=["instance", "batch"],
)
def test_the_pooled_axes_of_an_image_norm_without_a_gain_are_found(norm, pools):
    (only,) = found(nn.Sequential(nn.Conv2d(3, 8, 3), norm), 4, 3, 8, 8)
    assert only.pools == pools


CLASSES = (
    *("llama.LlamaRMSNorm", "t5.T5LayerNorm", "gemma.GemmaRMSNorm", "gemma3.Gemma3RMSNorm"),
    *("qwen3.Qwen3RMSNorm", "olmo2.Olmo2RMSNorm", "cohere.CohereLayerNorm"),
    *("olmo.OlmoLayerNorm", "deberta.DebertaLayerNorm", "mamba2.MambaRMSNormGated"),
    *("nemotron.NemotronLayerNorm1P", "imagegpt.ImageGPTLayerNorm", "cpmant.CpmAntLayerNorm"),
)


@pytest.mark.parametrize("path", CLASSES)
def test_norm_classes_of_transformers_are_found(path):
    pytest.importorskip("transformers")
    folder, name = path.split(".")
    home = import_module(f"transformers.models.{folder}.modeling_{folder}")
    more = {"CpmAntLayerNorm": (SimpleNamespace(eps=1e-6, hidden_size=16),)}
    grouped = (WIDTH, 8) if "Gated" in name else (WIDTH,)
    module = getattr(home, name)(*more.get(name, grouped))
    for parameter in module.parameters():
        nn.init.ones_(parameter)
    (norm,) = found(nn.Sequential(module))
    expected = "feature (8 of 16)" if "Gated" in name else "feature"
    assert (norm.kind, norm.pools, norm.misnomer) == (name, expected, None)


def test_a_norm_without_a_float64_kernel_is_found():
    class Fused(OnePlus):
        def forward(self, x):
            assert x.dtype == torch.float32, "no kernel for this dtype"
            return super().forward(x)

    assert [norm.pools for norm in found(nn.Sequential(Fused()))] == ["feature"]


class Uncopied(nn.Module):
    """Keeps running statistics, but cannot be copied, so it cannot be run by itself."""

    def __init__(self):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(WIDTH))
        self.register_buffer("running_var", torch.ones(WIDTH))

    def forward(self, x):
        return (x - self.running_mean) / self.running_var.sqrt()

    def __deepcopy__(self, memo):
        raise RuntimeError("there is only one")


def test_a_norm_that_fails_by_itself_is_reported_with_its_error():
    model = nn.Sequential(Uncopied(), nn.LayerNorm(WIDTH))
    report = normlab.inspect(model, torch.randn(ROWS, TOKENS, WIDTH), checks="norms")
    finding = report.findings["norms"]
    assert [norm.name for norm in report.norms] == ["1"] and finding.verdict == "look"
    assert finding.answer.endswith(
        "not examined (they fail when run by themselves): 0 (RuntimeError: there is only one)"
    )


def test_a_module_of_an_unknown_class_that_fails_by_itself_is_not_a_norm():
    class OncePerModel(OnePlus):
        def __deepcopy__(self, memo):
            raise RuntimeError("there is only one")

    assert found(nn.Sequential(OncePerModel())) == []


def test_a_bug_in_normlab_during_a_trial_is_reported(monkeypatch):
    def faulty(*_):
        raise NameError("name 'counts' is not defined")

    monkeypatch.setattr(reach, "counts_by_axis", faulty)
    report = normlab.inspect(nn.LayerNorm(WIDTH), torch.randn(ROWS, WIDTH), checks="norms")
    finding = report.findings["norms"]
    assert finding.verdict == "failed" and "NameError: name 'counts'" in finding.answer


class MaskedNorm(nn.Module):
    """Normalizes each row over its real positions and all features, or over all positions."""

    def __init__(self, aware):
        super().__init__()
        self.aware = aware

    def forward(self, x, mask):
        real = (mask if self.aware else torch.ones_like(mask)).unsqueeze(-1).to(x)
        n = real.sum((1, 2), keepdim=True) * WIDTH
        mean = (x * real).sum((1, 2), keepdim=True) / n
        var = ((x - mean).square() * real).sum((1, 2), keepdim=True) / n
        return (x - mean) / (var + 1e-5).sqrt()


class Passing(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x, attention_mask):
        return 2 * self.norm(x, attention_mask) + x


@pytest.mark.parametrize("left", [False, True])
def test_padding_in_the_statistics_of_a_norm_is_found_on_either_side(left):
    torch.manual_seed(0)
    mask = torch.ones(ROWS, TOKENS, dtype=torch.long)
    mask[1, slice(0, 3) if left else slice(7, None)] = 0
    batch = {"x": torch.randn(ROWS, TOKENS, WIDTH), "attention_mask": mask}
    for aware in (True, False):
        model = Passing(MaskedNorm(aware))
        (norm,) = normlab.inspect(model, batch, checks="norms").norms
        assert norm.evaluation.padding is not aware
        assert norm.evaluation.pools == ("position", "feature")


def test_the_table_has_one_row_per_kind_of_norm():
    report = normlab.inspect(
        nn.Sequential(nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), OnePlus()),
        torch.randn(ROWS, TOKENS, WIDTH),
        checks="norms",
    )
    assert report.findings["norms"].table.rows == [
        ("LayerNorm", 2, "feature", "1e-05", "0 of 32", "0"),
        ("OnePlus", 1, "feature", "1e-06", "1 of 16", "2"),
    ]
    assert "1 of 48 gains are near 0" in report.findings["norms"].answer


def test_a_feature_that_one_of_the_changes_does_not_affect_is_still_pooled():
    width = 256
    x = 3 + torch.randn(ROWS, TOKENS, width, dtype=torch.float64)
    low, high = 1.0, 5.0
    for _ in range(60):  # a value of feature 5 that stays the same if feature 0 changes
        x[0, 0, 5] = (low + high) / 2
        size = x.square().mean().sqrt()
        before = x + 0.1 * size * torch.where(x < 0, -1, 1)
        after = before.clone()
        after[0, 0, 0] += 1000 * (size + 1)
        y, changed = (F.layer_norm(each, (width,))[0, 0, 5] for each in (before, after))
        low, high = (x[0, 0, 5].item(), high) if y < changed else (low, x[0, 0, 5].item())
    assert torch.allclose(y, changed, rtol=1e-5)
    report = normlab.inspect(nn.LayerNorm(width, dtype=torch.float64), x, checks="norms")
    assert report.norms[0].pools == "feature"


def test_features_behind_a_gate_near_0_are_still_pooled():
    class Gated(OnePlus):
        def forward(self, x):
            return super().forward(x) * torch.arange(WIDTH).sub(5).mul(1e-4).tanh()

    (norm,) = found(nn.Sequential(Gated()))
    assert norm.evaluation.features == (WIDTH - 1, WIDTH)  # the gate of feature 5 is exactly 0


def test_batch_norm_of_two_rows_is_recognized_for_every_seed():
    for seed in range(8):
        torch.manual_seed(seed)
        found = normlab.inspect(nn.BatchNorm1d(6), torch.randn(2, 6), checks="norms").findings[
            "norms"
        ]
        assert found.verdict == "fine" and "BatchNorm1d over batch" in found.answer


def test_batch_norm_of_flattened_patches_pools_over_batch_and_position():
    patches = nn.Sequential(nn.Unfold(4, stride=4), nn.Flatten(0, 1))  # [B, 48, 4] to [B * 48, 4]
    model = nn.Sequential(patches, nn.BatchNorm1d(4)).train()
    report = normlab.inspect(model, torch.randn(2, 3, 8, 8), checks="norms")
    assert report.norms[0].pools == "batch, position (fixed in evaluation)"
