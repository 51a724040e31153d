"""Decides the documents' outlier: the sentence of D2 with its 999, and its attention.

Attention stands for itself here: queries and keys are the vectors as they are, so that the norm is
all that differs.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normlab.explain.subject import run
from normlab.norms.base import Norm

# D2, section 4: "I love eat", four numbers a word.
WORDS = ("I", "love", "eat")
_VECTORS = ((10.0, 20.0, 999.0, -5.0), (0.1, 0.2, 0.1, 0.1), (5.0, 5.0, 5.0, 5.0))


@dataclass(frozen=True)
class Outlier:
    """The sentence before and after the norm, and where its first word then looks.

    `attention` is softmax(x_1 x_j / sqrt(4)) over the words j; `slope` is the sum of its
    derivatives by its own score, 1 - sum p^2, which is 0 where the softmax is saturated.
    """

    words: tuple[str, ...]
    x: list[list[float]]
    y: list[list[float]]
    attention_before: list[float]
    attention_after: list[float]
    slope_before: float
    slope_after: float


def outlier(norm: Norm) -> Outlier:
    """Send the sentence through a new norm, in training mode.

    Raises what the norm raises on it.
    """
    x = torch.tensor(_VECTORS, dtype=torch.float64)
    y = run(norm, x.unsqueeze(0))[0]
    before, after = _attention(x), _attention(y)
    return Outlier(
        words=WORDS,
        x=x.tolist(),
        y=y.tolist(),
        attention_before=before.tolist(),
        attention_after=after.tolist(),
        slope_before=float(1 - before.square().sum()),
        slope_after=float(1 - after.square().sum()),
    )


def _attention(words: Tensor) -> Tensor:
    return (words @ words[0] / math.sqrt(words.shape[-1])).softmax(0)
