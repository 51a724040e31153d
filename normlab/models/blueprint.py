"""What a task asks of a model, and what the sizes of a model must offer.

A task says what goes in and what comes out, a `Spec`. The model's node of the config is a
`Blueprint`: it builds the model of a spec, and refuses one that it does not take.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from normlab.placements.base import Placement


@dataclass(frozen=True)
class Image:
    """Pictures of `height` x `width` pixels of `channels` numbers, each of one of `classes`."""

    height: int
    width: int
    channels: int
    classes: int


class Blueprint(ABC):
    """Sizes and choices of a model.

    `sites` are the groups of norms that it has besides `norm`, such as `ffn_inner_norm`: those are
    handed to it as factories of these names, and a norm chosen for another is refused.
    """

    sites: ClassVar[tuple[str, ...]] = ()
    dropout: float

    @abstractmethod
    def build(self, spec: Image, placement: Placement) -> nn.Module:
        """Build the model for a task, its values not yet drawn.

        Raises ValueError naming the key where spec and sizes do not fit together.
        """
