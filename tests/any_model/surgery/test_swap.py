"""`normlab.swap` fits new norms to old ones, in any model."""

import copy
import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import normlab
from normlab.any_model.surgery.swapped import Swapped
from normlab.norms.layer import LayerNorm
from normlab.norms.make import make_norm
from normlab.norms.rms import RMSNorm

D = 8


def shaken(model):
    """Return the model with random gains, biases and running statistics, as after training."""
    generator = torch.Generator().manual_seed(0)
    for name, values in [*model.named_parameters(), *model.named_buffers()]:
        if values.is_floating_point():
            noise = torch.randn(values.shape, generator=generator)
            values.data += 0.3 * (noise.abs() if name.endswith("var") else noise)
    return model


def tokens(*shape, seed=1):
    x = torch.randn(*shape, D, generator=torch.Generator().manual_seed(seed))
    return (x + torch.linspace(-1, 2, D)) * torch.linspace(0.5, 3, shape[-1])[:, None]


def square(output, batch):
    return output.square().mean()


class MyRMSNorm(nn.Module):
    """RMS norm as in transformers, not a torch class; with `offset` the gain is 1 + w."""

    def __init__(self, offset=0):
        super().__init__()
        self.weight, self.offset = nn.Parameter(torch.ones(D) - offset), offset
        self.variance_epsilon = 1e-6

    def forward(self, x):
        z = x * (x.square().mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()
        return (self.weight + self.offset) * z


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, D, 3), nn.BatchNorm2d(D)
        self.conv2, self.norm2 = nn.Conv2d(D, D, 3), nn.BatchNorm2d(D)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(self.norm2(self.conv2(self.act(self.norm1(self.conv1(x))))))


IMAGES = torch.randn(6, 3, 9, 9, generator=torch.Generator().manual_seed(3))


def encoder(norms=(nn.LayerNorm, nn.LayerNorm), out=nn.LayerNorm):
    layers = [layer for norm in norms for layer in (nn.Linear(D, D), norm(D), nn.GELU())]
    return shaken(nn.Sequential(*layers, out(D)))


@pytest.mark.parametrize("new", ["rms", "dyt", "none"])
def test_gain_and_bias_are_fitted_by_least_squares(new):
    model, x = encoder(), tokens(4, 5)
    swapped = normlab.swap(model, new, calibrate=[x[:2], x[2:]])
    assert [fit.site for fit in swapped.table] == ["1", "4", "6"]  # in the order of execution
    inputs = swapped.model[0](x)
    norm, y = swapped.model[1], model[1](inputs)
    z = norm.normalized(inputs)
    rest = []
    for number in range(D):
        columns = torch.stack([z[..., number].flatten(), torch.ones(20)], 1).detach().numpy()
        target = y[..., number].flatten().detach().numpy()
        best, *_ = np.linalg.lstsq(columns, target)
        np.testing.assert_allclose(
            best, [norm.weight[number].item(), norm.bias[number].item()], 2e-4
        )
        rest.append(columns @ best - target)
    error = np.sqrt(np.square(rest).mean()) / y.square().mean().sqrt().item()
    assert swapped.table[0].error == pytest.approx(error, rel=1e-3)


def test_a_larger_or_smaller_alpha_of_dyt_fits_worse():
    model, x = encoder(), tokens(4, 5)
    found = normlab.swap(model, "dyt", sites="1", calibrate=x).table[0]
    for factor in (0.9, 1.1):
        (other,) = normlab.swap(
            model, "dyt", sites="1", calibrate=x, alpha=found.alpha * factor
        ).table
        assert other.alpha == pytest.approx(found.alpha * factor) and other.error > found.error


@pytest.mark.parametrize(("offset", "new"), [(0, "ln"), (1, "ln"), (0, "dyt")])
def test_rms_norms_are_recognized_by_their_outputs(offset, new):
    model = encoder((lambda width: MyRMSNorm(offset),) * 2, nn.LayerNorm)
    found = normlab.swap(model, new, sites=["1", "4"], calibrate=tokens(4, 5))
    assert [(fit.site, fit.old, fit.new) for fit in found.table] == [
        ("1", "rms", new),
        ("4", "rms", new),
    ]
    assert type(found.model[6]) is nn.LayerNorm


def test_an_edited_formula_is_swapped_in_and_does_not_affect_recognition(
    monkeypatch,
):
    for kind in (LayerNorm, RMSNorm):
        monkeypatch.setattr(kind, "formula", lambda self, x: 7 * x.sign())
    model, batches = nn.Sequential(nn.LayerNorm(6)), [torch.randn(2, 5, 6)]
    swapped = normlab.swap(model, "rms", calibrate=batches)
    assert [(fit.old, fit.new) for fit in swapped.table] == [("ln", "rms")]
    norm = swapped.model[0].norm
    torch.testing.assert_close(norm(batches[0]), 7 * batches[0].sign())


def test_swapping_to_none_removes_the_division_of_the_old_norm():
    x, torchs = tokens(4, 5), shaken(nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D)))
    (fit,) = (found := normlab.swap(torchs, "none", calibrate=x)).table
    norm, inputs = found.model[1], torchs[0](x)
    y = norm.weight * (inputs - inputs.mean(-1, keepdim=True)) + norm.bias
    torch.testing.assert_close(found.model(x), y)
    (fit,) = (found := normlab.swap(nn.Sequential(MyRMSNorm()), "none", calibrate=x)).table
    z, y = x.flatten(0, -2), MyRMSNorm()(x).flatten(0, -2)
    torch.testing.assert_close(found.model[0].weight, (z * y).sum(0) / z.square().sum(0))
    error = (found.model(x).flatten(0, -2) - y).square().mean().sqrt() / y.square().mean().sqrt()
    assert fit.error == pytest.approx(error.item(), rel=1e-4)
    assert [name for name, _ in found.model.named_parameters()] == ["0.weight"]


def test_a_calibration_pass_stops_at_the_norm_that_is_fitted():
    model, passes = encoder(), itertools.count()  # a list would be restored with the model
    model[3].register_forward_hook(lambda *_: (next(passes), None)[1])
    normlab.swap(model, "rms", calibrate=tokens(4, 5))
    assert next(passes) == 4  # to find the norms, to fit 4 and 6, and to run the finished model


def test_a_constant_feature_keeps_its_gain():
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = MyRMSNorm(1)

        def forward(self, x):
            return self.norm(x * torch.tensor([0.0] * 3 + [1.0] * (D - 3)))

    model = shaken(Constant())
    new = normlab.swap(model, "none", calibrate=tokens(4, 5)).model.norm
    gain = 1 + model.norm.weight
    torch.testing.assert_close(new.weight[:3], gain[:3], rtol=1e-3, atol=0)
    assert not torch.isclose(new.weight[3:], gain[3:], rtol=1e-3).any()


def test_swapping_batch_norm_to_none_keeps_the_outputs():
    model = shaken(Images()).eval()
    found = normlab.swap(model, "none", calibrate=[IMAGES[:3], IMAGES[3:]], loss=square)
    assert max(fit.error for fit in found.table) < 1e-6
    torch.testing.assert_close(found.model(IMAGES), model(IMAGES))
    assert found.before == pytest.approx(found.after) and found.before > 0


def test_group_norm_pools_over_an_image_or_within_each_token():
    images = normlab.swap(shaken(Images()), "gn", sites="norm1", calibrate=IMAGES, groups=2)
    x, norm = torch.randn(2, D, 4, 4), images.model.norm1
    torch.testing.assert_close(norm(x), F.group_norm(x, 2, norm.weight, norm.bias, norm.eps))
    sequence = shaken(nn.Sequential(nn.Conv1d(3, D, 1), nn.BatchNorm1d(D)))
    norm = normlab.swap(sequence, "gn", calibrate=torch.randn(5, 3, 7), groups=2).model[1].eval()
    x = torch.randn(2, D, 4)
    y = F.group_norm(x.mT.reshape(-1, D), 2, norm.weight, norm.bias, norm.eps)
    torch.testing.assert_close(norm(x), y.view(2, 4, D).mT)


def test_only_batch_norms_after_a_new_norm_get_new_statistics():
    model = shaken(Images())
    first = normlab.swap(model, "ln", sites="norm1", calibrate=[IMAGES[:3], IMAGES[3:]]).model
    inputs = first.conv2(first.act(first.norm1(first.conv1(IMAGES)))).movedim(1, -1).flatten(0, -2)
    torch.testing.assert_close(first.norm2.running_mean, inputs.mean(0))
    torch.testing.assert_close(first.norm2.running_var, inputs.var(0))
    last = normlab.swap(model, "ln", sites="norm2", calibrate=IMAGES).model
    torch.testing.assert_close(last.norm1.running_mean, model.norm1.running_mean, rtol=0, atol=0)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D)

    def forward(self, x, attention_mask):
        return self.norm(x)


def test_padding_is_left_out_of_the_fit():
    model, x, mask = shaken(Masked()), tokens(3, 6), torch.ones(3, 6, dtype=torch.long)
    mask[0, 3:] = 0
    filled = x.masked_fill(mask[..., None] == 0, 1000.0)
    weights = [
        normlab.swap(model, "none", calibrate={"x": each, "attention_mask": mask}).model.norm.weight
        for each in (x, filled)
    ]
    torch.testing.assert_close(*weights, rtol=0, atol=0)


def test_swap_changes_the_original_model_only_with_inplace():
    model, x = Images().train(), IMAGES
    model.norm2.eval()  # frozen
    before, former = copy.deepcopy(model.state_dict()), model.norm1
    random = torch.get_rng_state()
    copied = normlab.swap(model, "ln", calibrate=x).model
    assert copied is not model and model.norm1 is former
    torch.testing.assert_close(dict(model.state_dict()), dict(before), rtol=0, atol=0)
    assert normlab.swap(model, "ln", calibrate=x, inplace=True).model is model
    assert isinstance(model.norm1, Swapped) and model.norm1.norm.training
    assert not model.norm2.training and not model.norm2.norm.training
    assert torch.equal(random, torch.get_rng_state())


def test_an_error_restores_the_model():
    model = Images()
    before, modules = copy.deepcopy(model.state_dict()), [*model.modules()]
    calls = []

    def loss(output, batch):
        calls.append(batch)
        if len(calls) > 1:
            raise RuntimeError("the loss of the new model")
        return output.mean()

    with pytest.raises(RuntimeError, match="of the new model"):
        normlab.swap(model, "gn", sites="norm1", calibrate=IMAGES, loss=loss, inplace=True)
    assert [*model.modules()] == modules and model.training
    torch.testing.assert_close(dict(model.state_dict()), dict(before), rtol=0, atol=0)


def test_a_shared_norm_is_replaced_at_all_its_paths():
    norm = nn.LayerNorm(D)
    model = shaken(nn.Sequential(nn.Linear(D, D), norm, nn.Linear(D, D), norm))
    found = normlab.swap(model, "rms", calibrate=tokens(4, 5))
    assert found.model[1] is found.model[3] and isinstance(found.model[1], Swapped)
    assert len(found.table) == 1
    first = model[0](tokens(4, 5))
    z = torch.cat([first, model[2](norm(first))])
    new = found.model[1]
    errors = (new(z) - norm(z)).flatten(0, -2)
    slopes = (errors * new.normalized(z).flatten(0, -2)).mean(0)  # 0 at the least-squares fit
    torch.testing.assert_close(slopes, torch.zeros(D), rtol=0, atol=1e-5)


def test_a_torch_encoder_layer_uses_the_new_norm_in_evaluation():
    layer = nn.TransformerEncoderLayer(D, 2, 16, batch_first=True)
    model = shaken(nn.TransformerEncoder(layer, 2)).eval()
    x, padding = tokens(3, 6), torch.arange(6) >= torch.tensor([6, 4, 5])[:, None]
    new = normlab.swap(model, "dyt", calibrate=x).model
    with torch.no_grad():
        y = new(x, src_key_padding_mask=padding)
    torch.testing.assert_close(y, new.requires_grad_()(x, src_key_padding_mask=padding))
    former = model(x, src_key_padding_mask=padding)
    assert not torch.allclose(y[~padding], former[~padding], rtol=0.05)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"norm": "batch"}, "'batch' cannot replace other norms; choose from ln, rms, gn"),
        ({"calibrate": []}, "batches is empty"),
        ({"sites": "encoder.*"}, "sites='encoder.*' matches no norm; its norms include 1, 4, 6"),
        ({"sites": ["4", "norm"]}, "sites='norm' matches no norm"),
        ({"norm": "ln"}, "all norms that sites='*' matches are already ln"),
        ({"norm": "gn", "groups": 3}, "1: norm.groups=3 does not divide the width 8"),
        ({"gamma": 1}, "1: .*gamma"),
    ],
)
def test_invalid_arguments_of_swap_are_refused(change, said):
    given = {"norm": "rms", "calibrate": tokens(2, 3), **change}
    with pytest.raises(ValueError, match=said.replace("*'", r"\*'")):
        normlab.swap(encoder(), **given)


def test_a_group_norm_cannot_be_swapped_and_the_error_gives_its_path():
    model = nn.Sequential(nn.Conv2d(3, D, 1), nn.GroupNorm(2, D))
    with pytest.raises(
        ValueError, match=r"^1 cannot be swapped: a GroupNorm is not a batch, layer"
    ):
        normlab.swap(model, "ln", calibrate=IMAGES)


class GatedNorm(nn.LayerNorm):
    def forward(self, x, gate=1):
        return super().forward(x) * gate


class TwoNorms(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.gated, self.unused = nn.LayerNorm(D), GatedNorm(D), nn.LayerNorm(D)

    def forward(self, x):
        return self.gated(self.norm(x), gate=x)


@pytest.mark.parametrize("path", ["gated", "unused"])
def test_norms_that_are_gated_or_not_called_are_refused(path):
    assert normlab.swap(TwoNorms(), "rms", sites="norm", calibrate=tokens(2, 3)).table
    with pytest.raises(ValueError, match=f"^{path} is never called, or is called with several"):
        normlab.swap(TwoNorms(), "rms", sites=path, calibrate=tokens(2, 3))


class Standardized(nn.Linear):
    def forward(self, x):
        return F.linear(x, F.layer_norm(self.weight, (D,)), self.bias)


@pytest.mark.parametrize("of", [nn.utils.parametrizations.weight_norm, lambda linear: linear])
def test_weight_normalization_is_not_swapped(of):
    model = nn.Sequential(of(Standardized(D, D)), nn.LayerNorm(D))
    found = normlab.swap(model, "rms", calibrate=tokens(2, 3))
    assert [fit.site for fit in found.table] == ["1"]


def test_a_swap_is_printed_as_a_table_with_the_loss():
    found = normlab.swap(encoder(), "dyt", sites="4", calibrate=tokens(4, 5), loss=square)
    head, row, last = str(found).splitlines()
    assert head.split("  ")[0] == "site" and head.endswith("fit error  alpha")
    assert row.startswith("4     ln -> dyt  8") and last.startswith("loss ") and " -> " in last


def test_a_model_with_weight_norm_can_be_swapped_after_a_backward_pass():
    with pytest.warns(FutureWarning):
        normed = nn.utils.weight_norm(nn.Linear(D, D))
    model, x = nn.Sequential(normed, nn.LayerNorm(D)), tokens(4, 5)
    model(x).square().mean().backward()
    assert len(normlab.swap(model, "rms", calibrate=x).table) == 1


def test_dyt_norms_of_the_model_are_not_replaced():
    model = encoder((nn.LayerNorm, lambda width: make_norm("dyt", width)))
    x = tokens(4, 5)
    new = normlab.swap(model, "rms", calibrate=x)
    assert [fit.site for fit in new.table] == ["1", "6"]
    assert type(new.model[4]) is type(model[4])
    with pytest.raises(ValueError, match="sites='4' matches no norm; its norms include 1, 6"):
        normlab.swap(model, "rms", sites="4", calibrate=x)


def test_a_model_that_is_itself_a_norm_is_refused():
    with pytest.raises(normlab.UserError, match="the model itself is a LayerNorm; pass a module"):
        normlab.swap(nn.LayerNorm(D), "rms", calibrate=[tokens(2, 5)])


def test_a_compiled_or_parallel_model_is_unwrapped_before_its_norms_are_replaced():
    model = nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D), nn.Linear(D, D))
    for wrapped in (nn.DataParallel(model), torch.compile(model)):
        swapped = normlab.swap(wrapped, "rms", calibrate=[tokens(2, 3)])
        assert type(swapped.model) is nn.Sequential
        assert [fit.site for fit in swapped.table] == ["1"]
    assert isinstance(model[1], nn.LayerNorm)


class ByKeyword(nn.Module):
    """Calls its norm with a named argument."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D)

    def forward(self, x):
        return self.norm(input=x)


def test_a_new_norm_accepts_its_input_under_any_name():
    model = normlab.swap(ByKeyword(), "none", calibrate=tokens(4, 5)).model
    x = tokens(4, 5)
    torch.testing.assert_close(model(x), model.norm(x))


def test_a_model_that_cannot_run_with_its_new_norm_is_not_returned():
    class ReadsShape(ByKeyword):
        def forward(self, x):
            return self.norm(x).view(*x.shape[:-1], *self.norm.normalized_shape)

    with pytest.raises(Exception, match="normalized_shape"):
        normlab.swap(ReadsShape(), "rms", calibrate=tokens(4, 5))
