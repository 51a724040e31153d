"""A recurrent network that reads a picture as a sequence, and names its class at the end."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.models.linear import Linear
from normlab.models.recurrent import Read, RecurrentArchitecture
from normlab.models.spec import Image
from normlab.norms.base import Stream


class RecurrentClassifier(nn.Module):
    """Steps of a picture, recurrent layers, classes of the last state (Le et al. 2015)."""

    order: Tensor

    def __init__(self, arch: RecurrentArchitecture, spec: Image):
        super().__init__()
        self.read: Read = arch.read
        pixels = spec.height * spec.width
        by_rows = arch.read == "rows"
        self.recurrent = arch.stack(spec.channels * (spec.width if by_rows else 1))
        self.classes = Linear(arch.dim, spec.classes)
        generator = torch.Generator().manual_seed(arch.permutation_seed)
        self.register_buffer("order", torch.randperm(pixels, generator=generator), persistent=False)

    def forward(self, pixels: Float[Tensor, "B H W C"]) -> Float[Tensor, "B K"]:
        """Return a logit for each class."""
        return self.classes(self.recurrent(self.sequence(pixels), Stream())[:, -1])

    def sequence(self, pixels: Float[Tensor, "B H W C"]) -> Float[Tensor, "B P F"]:
        """Return the steps of pictures: their rows, their pixels by rows, or in `order`."""
        if self.read == "rows":
            return pixels.flatten(2)
        steps = pixels.flatten(1, 2)
        return steps[:, self.order] if self.read == "permuted" else steps
