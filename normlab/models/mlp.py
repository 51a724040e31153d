"""A multilayer perceptron for rows of features, with a norm on its input and after each layer.

    features -> norm -> [linear -> norm -> ReLU] x num_layers -> linear -> classes

The first norm sees the features in their original units. Batch norm scales each feature by its own
statistics over the batch, whereas layer norm uses one mean and variance for features of different
kinds.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from normlab.models.base import Anatomy, Features, ModelArchitecture, Stack
from normlab.models.layers import Linear, OutputLayer
from normlab.norms.base import Norm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Norms, Placement


@dataclass(frozen=True, kw_only=True)
class MlpArchitecture(ModelArchitecture):
    """Architecture settings of a multilayer perceptron.

    Attributes:
        width: number of units per hidden layer.
        num_layers: number of hidden layers.
    """

    takes = Features
    own_norms: ClassVar[str | None] = "a perceptron has its norms on its input and after its layers"
    width: int
    num_layers: int

    def make(self, spec: Features, placement: Placement, norms: Norms) -> "Mlp":
        return Mlp(self, spec, norms)


class HiddenLayer(nn.Module):
    """A linear layer, a norm and a ReLU."""

    def __init__(self, inputs: int, norm: Norm, width: int):
        super().__init__()
        self.linear = Linear(inputs, width)
        self.norm = norm

    def forward(self, x: Float[Tensor, "B 1 F"], tokens: Tokens) -> Float[Tensor, "B 1 D"]:
        """Return the layer's output."""
        return F.relu(self.norm(self.linear(x), tokens))


class Mlp(Stack):
    """A multilayer perceptron: a norm, hidden layers and a classifier."""

    def __init__(self, sizes: MlpArchitecture, spec: Features, norms: Norms):
        super().__init__()
        self.input_norm = norms.required("input", spec.count)
        widths = [spec.count, *[sizes.width] * sizes.num_layers]
        self.layers = nn.ModuleList(
            HiddenLayer(inputs, norms.required(f"layers.{number}", sizes.width), sizes.width)
            for number, inputs in enumerate(widths[:-1])
        )
        self.dropout = nn.Dropout(sizes.dropout)
        self.classes = OutputLayer(widths[-1], spec.classes)

    def forward(self, features: Float[Tensor, "B F"]) -> Float[Tensor, "B K"]:
        """Return a logit for each class. Norms see each row as a sequence of one token."""
        tokens = Tokens()
        x = self.input_norm(features[:, None], tokens)
        for layer in self.layers:
            x = layer(x, tokens)
        return self.classes(self.dropout(x[:, 0]))

    def anatomy(self) -> Anatomy:
        return Anatomy(
            entry=self.input_norm,
            first=self.layers[0],
            last=self.layers[-1],
            both_ways=True,
            max_positions=None,
            blocks=self.layers,
        )
