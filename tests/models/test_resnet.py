"""Residual networks: their published layers, shortcuts, and norms against torch's."""

import pytest
import torch
from torch import nn

from normlab.models.resnet import normalized
from normlab.norms.make import make_norm
from tests.tasks.image_models import SMALL, model_of


@pytest.mark.parametrize(
    ("option", "theirs"),
    [("bn", nn.BatchNorm2d(16)), ("gn_sample", nn.GroupNorm(8, 16)), ("seqn", nn.GroupNorm(1, 16))],
)
def test_norms_on_images_match_torchs_modules(option, theirs):
    torch.manual_seed(1)
    ours, theirs = make_norm(option, 16).double(), theirs.double()
    x = torch.randn(3, 16, 4, 5, dtype=torch.float64) * 3 + 1
    x = x.contiguous(memory_format=torch.channels_last)
    for _ in range(2):  # twice, to compare the running statistics too
        mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, z = normalized(ours, mine), theirs(other)
        torch.testing.assert_close(y, z)
        pull = torch.randn_like(y)
        y.backward(pull)
        z.backward(pull)
        torch.testing.assert_close(mine.grad, other.grad)
    torch.testing.assert_close(normalized(ours.eval(), x), theirs.eval()(x))


def test_resnet20_has_the_published_layers():
    model, _ = model_of("task=digits", "model=resnet20", "norm=bn")
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    widths = [16] * 7 + [32] * 6 + [64] * 6
    assert [m.out_channels for m in convolutions] == widths
    assert [m.stride[0] for m in convolutions].count(2) == 2
    rgb = sum(p.numel() for p in model.parameters()) + 2 * 16 * 9  # for two more input channels
    assert rgb == 269_722  # 0.27 M (He et al. 2016, table 6)


def test_a_block_without_a_shortcut_computes_only_its_branch():
    plain, _ = model_of(*SMALL, "norm=bn", "model.shortcut=none")
    with_shortcuts, _ = model_of(*SMALL, "norm=bn")
    assert plain.state_dict().keys() == with_shortcuts.state_dict().keys()
    x = torch.rand(2, 4, 8, 8, dtype=torch.float64)
    for model, shortcut in ((plain, 0.0), (with_shortcuts, x)):
        block = model.get_submodule("blocks.0").eval()
        branch = block.get_submodule("second")(block.get_submodule("first")(x).relu())
        torch.testing.assert_close(block(x), (branch + shortcut).relu())


def test_shortcut_projections_and_zero_last_gains_can_be_chosen():
    projected, _ = model_of(*SMALL, "norm=bn", "model.shortcut=projection")
    assert sum(isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1) for m in projected.modules())
    quiet, _ = model_of(*SMALL, "norm=bn", "model.zero_last_gain=true")
    block = quiet.get_submodule("blocks.0").eval()
    x = torch.rand(2, 4, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(block(x), x)
    ones = model_of(*SMALL, "norm=rms", "norm.one_plus=true", "model.zero_last_gain=true")[0]
    torch.testing.assert_close(ones.get_submodule("blocks.0")(x), x)
    with pytest.raises(ValueError, match="zero_last_gain=true: NoNorm learns no gain"):
        model_of(*SMALL, "norm=none", "model.zero_last_gain=true")
