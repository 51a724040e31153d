"""What a norm pools over: which outputs change with one value of its input."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from normlab.any_model.batches.example import Example
from normlab.any_model.tracing.axis_roles import (
    BATCH,
    FEATURE,
    POSITION,
    Roles,
    counts_by_axis,
)
from normlab.any_model.tracing.calls import Call
from normlab.any_model.tracing.norm_trial import Trial
from normlab.norms.axes import axes_in_words, in_order


@dataclass(frozen=True)
class Reach:
    """Which outputs of a norm one input value affects through the statistics.

    `features` has the number of affected features and the total. `padding` is whether a padded
    value affects real positions; None if the norm was not called with a padded row.
    """

    pools: tuple[str, ...]
    features: tuple[int, int]
    padding: bool | None

    def in_words(self) -> str:
        """Return the axes, with the number of features if it is only a group of them."""
        reached, everything = self.features
        axes = axes_in_words(self.pools)
        if self.pools[-1:] == ("feature",) and 1 < reached < everything:
            axes += f" ({reached} of {everything})"
        return f"{axes}, padding included" if self.padding else axes


def reach_of(
    trials: Sequence[Trial], calls: Sequence[Call], example: Example, axes: Roles, training: bool
) -> Reach:
    """Return what the first real value of row 0 affects, and whether row 0's padding affects it."""
    trial, on_the_left, padding = trials[0], example.side == "left", None
    first = [-on_the_left if role == POSITION else 0 for role in axes]
    changed = trial.changed_outputs(first, training)
    counts = counts_by_axis(changed)
    pools = {r for a, role in enumerate(axes) for r in role if counts[a] > 1}
    flattened = [axis for axis, role in enumerate(axes) if role == BATCH | POSITION]
    if any(_in_one_row(changed, axis, example) for axis in flattened):
        pools -= BATCH
    features = [a for a, role in enumerate(axes) if role == FEATURE]
    reached, everything = (math.prod(n[a] for a in features) for n in (counts, trial.x.shape))
    for padded in trials[1:]:
        alone = calls[1].output.shape
        for axis, (real, size) in enumerate(zip(alone, padded.x.shape, strict=True)):
            if real < size:  # change the outermost padding
                last = [-1 if a == axis and not on_the_left else 0 for a in range(len(alone))]
                start = (size - real) * on_the_left
                reaches = padded.changed_outputs(last, training).narrow(axis, start, real)
                padding = bool(reaches.any())
    return Reach(tuple(in_order(pools)), (reached, everything), padding)


def _in_one_row(changed: Tensor, axis: int, example: Example) -> bool:
    """Return whether all changes along a flattened axis of rows and positions are in row 0."""
    length, rest = divmod(changed.shape[axis], example.size)
    places = changed.movedim(axis, 0).flatten(1).any(1).nonzero()
    return not rest and bool((places < length).all())
