"""Ghost batches: batch statistics over groups of sequences, smaller than the batch of a step.

Hoffer, Hubara and Soudry 2017 (algorithm 1) take them to give a large batch the noise of small
ones. Here they vary what batch norm pools over while the learning rate, the number of steps and
the batch of the optimizer stay. The running statistics are those of the whole micro-batch: the
groups' moments are merged exactly, where their average would leave out how far the groups' means
lie apart.
"""

import re
from collections.abc import Callable, Set

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from normlab.norms.moments import Moments, Pooling, Weights, merge

Ghost = int | str | None
"""The sequences of a group: `8` neighbours, `interleaved-8`, or None for the whole batch."""
_INTERLEAVED = re.compile(r"interleaved-([1-9][0-9]{0,17})")


class GhostBatches:
    """Makes a batch of each `size` sequences, whose statistics are pooled over `pools`.

    A `size` of 8 makes groups of eight neighbours, the last of what is left over. `interleaved-8`
    makes as many groups, in which every n-th sequence is: of B sequences in n = ceil(B / 8) groups,
    sequence i is in group i mod n, and groups differ by one sequence at most. That is how
    cifar10-fast (Page 2019) cuts a batch, whose groups are a view of `[B / n, n C]`.

    A group with a single value comes out as the bias. With several processes, groups are of the
    sequences of one process.

    Raises:
        ValueError: `size` is below 1, or another word.
    """

    def __init__(self, size: int | str, pools: Set[str]) -> None:
        found = _INTERLEAVED.fullmatch(str(size))
        if found is None and (isinstance(size, str) or size < 1):
            raise ValueError(
                f"norm.ghost={size} must be at least 1 sequence, or interleaved-N of at least 1, "
                "or null"
            )
        self.given = size
        self.size = int(size if found is None else found[1])
        self.interleaved = found is not None
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
        whole = weights.dense and len(x) % self.largest(len(x)) == 0
        grouped = Weights(self.cut(weights.sums), spread, weights.known, dense=whole)
        y, found = standardize(self.cut(x), grouped, self.pooling)
        rows = x.shape[1] if self.by_position else 1
        groups = Moments(*(table.unflatten(0, (-1, rows)).squeeze(2) for table in found))
        return self.join(y, like=x), merge([groups], pooling.everywhere)

    def largest(self, sequences: int) -> int:
        """Return the sequences of the largest group."""
        groups = -(-sequences // self.size)
        return -(-sequences // groups) if self.interleaved else min(self.size, sequences)

    def cut(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "R S D"]:
        """Lay what is pooled along the middle axis; groups that lack a sequence end with zeros."""
        size = self.largest(len(x))
        filled = F.pad(x, (0, 0, 0, 0, 0, -len(x) % size))
        if self.interleaved:
            groups = filled.unflatten(0, (size, -1)).transpose(0, 1)
        else:
            groups = filled.unflatten(0, (-1, size))
        return groups.transpose(1, 2).flatten(0, 1) if self.by_position else groups.flatten(1, 2)

    def join(self, y: Float[Tensor, "R S D"], *, like: Float[Tensor, "B P D"]) -> Tensor:
        """Undo `cut` for a tensor of the shape of `like`."""
        if self.by_position:
            y = y.unflatten(0, (-1, like.shape[1])).transpose(1, 2)
        if self.interleaved:
            y = y.reshape(-1, self.largest(len(like)), *like.shape[1:]).transpose(0, 1)
        return y.reshape(-1, *like.shape[1:])[: len(like)]
