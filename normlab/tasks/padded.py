"""How sentences of unlike length lie in a padded batch."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor


def widened(
    ids: Tensor, lengths: np.ndarray, padding: float, *, pad_id: int, extra: int = 0
) -> Tensor:
    """Append padding to `[B, P + extra]` until P has `padding` of it."""
    width = math.ceil(int(lengths.sum()) / (len(ids) * (1 - padding)) - 1e-9) + extra
    return F.pad(ids, (0, max(0, width - ids.shape[1])), value=pad_id)


def places_of(lengths: np.ndarray, *, width: int) -> Int[Tensor, " N"]:
    """Return the flat indices of the first `lengths` positions of each row of `[B, width]`."""
    ends = np.cumsum(lengths)
    shifts = np.arange(len(lengths)) * width - (ends - lengths)
    return torch.from_numpy(np.arange(ends[-1]) + np.repeat(shifts, lengths))
