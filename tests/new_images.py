"""Pictures, a convolution and a recurrent cell nobody has heard of: a file and a config each."""

NEW_SOURCE = '''
"""Stripes, upright or lying."""

import numpy as np

from normlab.data.images import Images, ImageSource


class Stripes(ImageSource):
    """Pictures of 6 by 5 pixels whose rows or whose columns are alike."""

    licence = "none"
    classes = ("upright", "lying")
    label = "stripes"

    def __init__(self, *, valid_size: int) -> None:
        self.valid_size = valid_size

    def published(self):
        """Return them."""
        return {"train": _drawn(80, seed=1), "test": _drawn(40, seed=2)}

    def description(self):
        """Say nothing more."""
        return {"source": "drawn"}


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

NEW_CELL = '''
"""A state that leaks, and that a norm of its own looks at."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from normlab.models.cells import Cell, CellShape
from normlab.models.recurrent import RecurrentArchitecture


@dataclass(frozen=True, kw_only=True)
class LeakyShape(CellShape):
    """What it needs to know."""

    leak: float


class Leaky(Cell):
    """s = s + leak (tanh(u + N_h(W h)) - s), and h = N_c(s)."""

    blocks: ClassVar[int] = 1
    states: ClassVar[int] = 2

    def __init__(self, shape, norms, in_features):
        super().__init__(shape, norms, in_features)
        self.leak = shape.leak
        self.input_norm = norms.at("input", shape.dim)
        self.hidden_norm = norms.at("hidden", shape.dim)
        self.cell_norm = norms.at("cell", shape.dim)

    @property
    def input_norms(self):
        """The one norm of the input product."""
        return (self.input_norm,)

    def step(self, u, state, stream):
        """Return the normalized state and the state after one position."""
        hidden, inner = state
        product = F.linear(hidden, self.hidden_weight)
        inner = inner.lerp(torch.tanh(u + self.hidden_norm(product, stream)), self.leak)
        return self.cell_norm(inner, stream), inner


@dataclass(frozen=True, kw_only=True)
class LeakyArchitecture(RecurrentArchitecture, LeakyShape):
    """Sizes."""

    cell = Leaky
'''
NEW_CELL_CONFIG = """# normlab train task=stripes model=leaky norm=bn_position
# A state that leaks.
_target_: normlab.models.leaky.LeakyArchitecture
dim: 8
num_layers: 2
leak: 0.5
dropout: 0.0
input_statistics: step
norm_shifts: false
gain: null
recurrent_init: orthogonal
learned_start: true
initial_noise: 0.0
read: rows
permutation_seed: 1
"""
