"""Pictures, and a model with a convolution, that nobody has heard of: a file and a config each."""

NEW_SOURCE = '''
"""Stripes, upright or lying."""

import numpy as np

from normlab.data.pictures.source import Pictures, PictureSource


class Stripes(PictureSource):
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


def _drawn(count: int, *, seed: int) -> Pictures:
    rng = np.random.default_rng(seed)
    pixels = np.empty((count, 6, 5, 1), np.uint8)
    pixels[::2] = rng.integers(256, size=(count // 2, 1, 5, 1))
    pixels[1::2] = rng.integers(256, size=(count // 2, 6, 1, 1))
    return Pictures(pixels, np.arange(count) % 2)
'''
NEW_TASK_CONFIG = """# normlab train task=stripes model=one_layer norm=bn
# Stripes, upright or lying.
defaults:
  - override /model@_global_.model: one_layer
  - override /optim@_global_.optim: sgd
  - _self_
_target_: normlab.tasks.pictures.Classification
source: {_target_: normlab.data.pictures.stripes.Stripes, valid_size: 20}
augmentation: {_target_: normlab.data.pictures.augment.Augmentation, shift: 0, flip: false}
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

from normlab.models.convolution import ConvNorm, Convolution
from normlab.models.linear import Linear
from normlab.models.spec import Image, ModelArchitecture


@dataclass(frozen=True, kw_only=True)
class OneLayerArchitecture(ModelArchitecture):
    """Sizes."""

    takes = Image
    filters: int

    def make(self, spec, encoder, decoder):
        """Build it."""
        return OneLayer(self, spec, encoder)


class OneLayer(nn.Module):
    """Filters, their norm, the mean over pixels, classes."""

    def __init__(self, sizes, spec, placement):
        super().__init__()
        filters = Convolution(spec.channels, sizes.filters, size=3)
        self.layer = ConvNorm(filters, placement.norm(sizes.filters))
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
