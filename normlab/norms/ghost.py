"""Ghost batches: batch statistics over groups of sequences, smaller than the batch of a step.

Hoffer, Hubara and Soudry 2017 (algorithm 1) take them to give a large batch the noise of small
ones. Here they vary what batch norm pools over while the learning rate, the number of steps and
the batch of the optimizer stay. Groups are of neighbouring sequences of a micro-batch, the last of
what is left over. The running statistics are those of the whole micro-batch: the groups' moments
are merged exactly, where their average would leave out how far the groups' means lie apart.
"""

from collections.abc import Callable, Set

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from normlab.norms.moments import Moments, Pooling, Weights, merge


class GhostBatches:
    """Makes a batch of each `size` sequences, whose statistics are pooled over `pools`.

    A group with a single value comes out as the bias. With several processes, groups are of the
    sequences of one process.

    Raises:
        ValueError: `size` is below 1.
    """

    def __init__(self, size: int, pools: Set[str]) -> None:
        if size < 1:
            raise ValueError(f"norm.ghost={size} must be at least 1 sequence, or null")
        self.size = size
        self.by_position = "position" not in pools
        self.pooling = Pooling({"position"} | (pools & {"feature"}))

    def apart(
        self,
        standardize: Callable[[Tensor, Weights, Pooling], tuple[Tensor, Moments]],
        x: Float[Tensor, "B P D"],
        weights: Weights,
        pooling: Pooling,
    ) -> tuple[Float[Tensor, "B P D"], Moments]:
        """Return what `standardize` makes of each group, and the moments of all groups together.

        `pooling` is that of the whole batch; only its sum over processes is used.
        """
        spread = None if weights.spread is None else self.cut(weights.spread)
        whole = weights.dense and len(x) % self.size == 0
        grouped = Weights(self.cut(weights.sums), spread, weights.known, dense=whole)
        y, found = standardize(self.cut(x), grouped, self.pooling)
        rows = x.shape[1] if self.by_position else 1
        groups = Moments(*(table.unflatten(0, (-1, rows)).squeeze(2) for table in found))
        return self.join(y, like=x), merge([groups], pooling.everywhere)

    def cut(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "R S D"]:
        """Lay what is pooled along the middle axis; the last group is filled with zeros."""
        filled = F.pad(x, (0, 0, 0, 0, 0, -len(x) % self.size))
        groups = filled.unflatten(0, (-1, self.size))
        return groups.transpose(1, 2).flatten(0, 1) if self.by_position else groups.flatten(1, 2)

    def join(self, y: Float[Tensor, "R S D"], *, like: Float[Tensor, "B P D"]) -> Tensor:
        """Undo `cut` for a tensor of the shape of `like`."""
        if self.by_position:
            y = y.unflatten(0, (-1, like.shape[1])).transpose(1, 2)
        return y.reshape(-1, *like.shape[1:])[: len(like)]
