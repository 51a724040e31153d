"""A norm, images, a task and a model nobody has heard of, as text: a file and a config each."""

NEW_STATEFUL_NORM = '''
"""Divide by a running peak, by a gradient of its own and at a price."""

from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import Axis, RunningNorm, Stream
from normlab.norms.pool import Moments, widen


class RunningPeak(RunningNorm):
    """Each feature over a running mean square, which the batch enters first."""

    pools: ClassVar[frozenset[Axis]] = frozenset({"batch", "position"})
    exact_gradient: ClassVar[bool] = False

    def __init__(self, dim: int, *, price: float) -> None:
        super().__init__(
            dim,
            eps=1e-5,
            affine=True,
            eval_stats="running",
            sync=True,
            momentum=0.1,
            padding="exclude",
        )
        self.price = price
        self.register_buffer("square", torch.ones(1, dim))
        self.register_buffer("gradient", torch.zeros(1, dim))

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x` over the running root mean square."""
        if self.regime != "running":
            real = stream.real(x)[..., None].to(x)
            count = real.sum((0, 1))[None]
            mean_square = (x.square() * real).sum((0, 1)) / count
            found = mean_square.detach()
            self.see(Moments(torch.zeros_like(found), found, count, count))
            if self.training and x.requires_grad:
                step, total = self.clock
                self.extra_loss = self.price * step / (total or step or 1) * mean_square.sum()
        wide, square, weight, bias = widen(x, self.square, self.weight, self.bias)
        z = wide * (square.clone() + self.eps).rsqrt()
        if z.requires_grad and self.training:
            z.register_hook(partial(self.through, real=stream.real(z)[..., None].to(z)))
        return (z * weight + bias).to(x.dtype)

    def through(self, grad: Tensor, real: Tensor) -> Tensor:
        """Take the running mean of the gradient out of it."""
        before = self.gradient.clone()
        mean = (grad * real).sum((0, 1)) / real.sum()
        self.gradient.lerp_(mean[None].to(before), 0.1)
        return (grad - before) * real

    def running_moments(self) -> tuple[Tensor, Tensor]:
        """Return the running mean square as variance."""
        return torch.zeros_like(self.square), self.square

    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor) -> None:
        """Move the running mean square by a share."""
        self.square[rows].lerp_(var, share)
'''
NEW_STATEFUL_CONFIG = """# normlab train norm=running_peak
# Each feature over a running mean square.
_target_: normlab.norms.running_peak.RunningPeak
price: 1.0e-3
"""

NEW_SOURCE = '''
"""Stripes, upright or lying."""

import numpy as np

from normlab.data.images import Images, ImageSource


class Stripes(ImageSource):
    """Pictures of 6 by 5 pixels whose rows or whose columns are alike."""

    licence = "none"
    classes = ("upright", "lying")
    label = "stripes"
    origin = "drawn"

    def __init__(self, *, valid_size: int) -> None:
        self.valid_size = valid_size

    def published(self):
        """Return them."""
        return {"train": _drawn(80, seed=1), "test": _drawn(40, seed=2)}


def _drawn(count: int, *, seed: int) -> Images:
    rng = np.random.default_rng(seed)
    pixels = np.empty((count, 6, 5, 1), np.uint8)
    pixels[::2] = rng.integers(256, size=(count // 2, 1, 5, 1))
    pixels[1::2] = rng.integers(256, size=(count // 2, 6, 1, 1))
    return Images(pixels, np.arange(count) % 2)
'''
NEW_TASK_CONFIG = """# normlab train task=stripes model=one_layer norm=bn
# Stripes, upright or lying.
defaults:
  - override /model@_global_.model: one_layer
  - override /optim@_global_.optim: sgd
  - _self_
_target_: normlab.tasks.images.Classification
source: {_target_: normlab.data.stripes.Stripes, valid_size: 20}
augmentation: {_target_: normlab.data.images.Augmentation, shift: 0, flip: false}
label_smoothing: 0.0
batch_size: ${batch_size}
max_tokens: ${max_tokens}
eval_batch_size: 16
test_batch_sizes: [1]
test_eval_stats: [batch, recalibrated]
"""
NEW_MODEL = '''
"""One convolution and its norm."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import nn

from normlab.models.resnet import ConvNorm, Convolution
from normlab.models.layers import Linear
from normlab.models.base import Image, ModelArchitecture


@dataclass(frozen=True, kw_only=True)
class OneLayerArchitecture(ModelArchitecture):
    """Sizes."""

    takes = Image
    filters: int

    def make(self, spec, placement, norms):
        """Build it."""
        return OneLayer(self, spec, norms)


class OneLayer(nn.Module):
    """Filters, their norm, the mean over pixels, classes."""

    def __init__(self, sizes, spec, norms):
        super().__init__()
        filters = Convolution(spec.channels, sizes.filters, size=3)
        self.layer = ConvNorm(filters, norms.at("layer", sizes.filters))
        self.classes = Linear(sizes.filters, spec.classes)

    def forward(self, pixels):
        """Return a logit for each class."""
        return self.classes(F.relu(self.layer(pixels.permute(0, 3, 1, 2))).mean((2, 3)))
'''
NEW_MODEL_CONFIG = """# normlab train task=stripes model=one_layer
# One convolution and its norm.
_target_: normlab.models.one_layer.OneLayerArchitecture
filters: 8
dropout: 0.0
"""
