"""The examples that the five articles work through: a tensor, two sets of words, and marks."""

import torch
from jaxtyping import Float
from torch import Tensor

TENSOR = (
    ((1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0), (9.0, 10.0, 11.0, 12.0)),
    ((-1.0, 0.0, 1.0, 2.0), (3.0, 4.0, 5.0, 6.0), (7.0, 8.0, 9.0, 10.0)),
)
"""The articles' example tensor: two samples of three tokens with four features."""
SHAPE = (2, 3, 4)
TENSOR_WIDTH = SHAPE[2]
LAST_IS_PADDING = torch.tensor([[True, True, True], [True, True, False]])
"""A mask of the tensor in which the last token of the second sample is padding."""

WORDS_WITH_999 = ((10.0, 20.0, 999.0, -5.0), (0.1, 0.2, 0.1, 0.1), (5.0, 5.0, 5.0, 5.0))
"""Article 3's example "I love eat": three tokens with four features."""
WORD_WIDTHS = (4, 16, 64, 256, 768)
"""The widths to which article 3's words are extended."""

BATCH_OF_THREE = ("Hello", "I love AI", "The quick brown fox jumps")
"""Article 1's batch of three sentences."""

PUPILS, SUBJECTS = ("Ming", "Hong", "Gang"), ("maths", "English", "physics")
CLASS_MARKS = ((95.0, 60.0, 85.0), (75.0, 90.0, 60.0), (55.0, 75.0, 80.0))
"""The marks of three pupils (rows) in three subjects, made up because the articles give none."""


def example_tensor() -> Float[Tensor, "2 3 4"]:
    """Return the articles' example tensor in float64."""
    return torch.tensor(TENSOR, dtype=torch.float64)


def marks_of_a_class() -> Float[Tensor, "1 3 3"]:
    """Return the marks as a batch of one sample: its tokens are pupils, its features subjects."""
    return torch.tensor([CLASS_MARKS], dtype=torch.float64)
