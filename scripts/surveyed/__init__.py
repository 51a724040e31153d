"""Small models of libraries, with random weights and inputs that fit them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn


@dataclass
class Subject:
    """A model, its inputs, and further arguments of `normlab.inspect`."""

    model: nn.Module
    batches: Sequence[Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
