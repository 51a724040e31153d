"""Finds what a norm pools over from the outputs that change with one value of its input."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from normlab.any_model.batches.example import Example
from normlab.any_model.tracing.axis_roles import (
    BATCH,
    FEATURE,
    POSITION,
    Roles,
    counts_by_axis,
)
from normlab.any_model.tracing.norm_trial import NormCalls, Trial
from normlab.norms.axes import axes_in_words, in_order


class AffectedFeatures(NamedTuple):
    """The number of a norm's features that one input value affects, and the total number."""

    number: int
    total: int


@dataclass(frozen=True)
class Reach:
    """The outputs of a norm that one input value affects through the statistics.

    `padding` is whether a padded value affects real positions. It is None if the norm was not
    called with a padded row.
    """

    pools: tuple[str, ...]
    features: AffectedFeatures
    padding: bool | None

    def in_words(self) -> str:
        """Return the axes as text, with the number of features if only a group is pooled."""
        affected, total = self.features
        axes = axes_in_words(self.pools)
        if "feature" in self.pools and 1 < affected < total:
            axes += f" ({affected} of {total})"
        return f"{axes}, padding included" if self.padding else axes


class NormTrials(NamedTuple):
    """The trials of a norm with all rows and with one padded row.

    `padded_row` is None if the norm was not called with a padded row.
    """

    all_rows: Trial
    padded_row: Trial | None


def reach_of(
    trials: NormTrials, calls: NormCalls, example: Example, axes: Roles, *, training: bool
) -> Reach:
    """Return what row 0's first real value affects, and whether padding affects real values."""
    trial, on_the_left = trials.all_rows, example.side == "left"
    first = [-on_the_left if role == POSITION else 0 for role in axes]
    changed = trial.changed_outputs(first, training)
    counts = counts_by_axis(changed)
    pools = {r for a, role in enumerate(axes) for r in role if counts[a] > 1}
    flattened = [axis for axis, role in enumerate(axes) if role == BATCH | POSITION]
    if any(_in_one_row(changed, axis, example) for axis in flattened):
        pools -= BATCH
    features = [a for a, role in enumerate(axes) if role == FEATURE]
    affected = AffectedFeatures(
        *(math.prod(sizes[a] for a in features) for sizes in (counts, trial.x.shape))
    )
    padding = None
    if trials.padded_row and calls.one_row:
        padding = _padding_reaches(
            trials.padded_row,
            calls.one_row.alone.output.shape,
            on_the_left=on_the_left,
            training=training,
        )
    return Reach(tuple(in_order(pools)), affected, padding)


def _padding_reaches(
    padded: Trial, alone: torch.Size, *, on_the_left: bool, training: bool
) -> bool | None:
    """Return whether the outermost padding of a padded row affects its real positions.

    `alone` is the shape of the row without padding. Returns None if no axis is padded.
    """
    sizes = list(zip(alone, padded.x.shape, strict=True))
    real = tuple(slice(size - n, size) if on_the_left else slice(n) for n, size in sizes)
    outermost = [
        [-1 if other == axis and not on_the_left else 0 for other in range(len(alone))]
        for axis, (n, size) in enumerate(sizes)
        if n < size
    ]
    if not outermost:
        return None
    return any(bool(padded.changed_outputs(i, training)[real].any()) for i in outermost)


def _in_one_row(changed: Tensor, axis: int, example: Example) -> bool:
    """Return whether every change lies in row 0 of the example.

    `axis` of `changed` is the flattened axis of rows and positions.
    """
    length, rest = divmod(changed.shape[axis], example.size)
    places = changed.movedim(axis, 0).flatten(1).any(1).nonzero()
    return not rest and bool((places < length).all())
