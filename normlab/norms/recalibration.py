"""Recalibration: running statistics of a whole model, estimated from many batches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import nn

from normlab.norms.base import RunningNorm, normalized_by, running_norms
from normlab.norms.pool import Moments, pooled
from normlab.norms.ranks import sum_over_ranks


class Tally:
    """The moments of many batches pooled in float64, as if they were one long batch."""

    def __init__(self, norm: RunningNorm) -> None:
        """Start empty, in the shape of a norm's tables."""
        mean, _ = norm.running_moments()
        self.sums = mean.new_zeros(4, *mean.shape, dtype=torch.float64)

    def add(self, found: Moments, first: int = 0) -> None:
        """Add a batch's moments to the rows from `first` on."""
        self.sums[:, first : first + len(found.mean)] += found.sums()

    def result(self) -> Moments:
        """Return the pooled moments over all batches and processes, `[rows, columns]` each."""
        return pooled(sum_over_ranks(self.sums), torch.float64)


@contextmanager
def recalibrated(model: nn.Module, run_batches: Callable[[], None]) -> Iterator[None]:
    """Use recalibrated running statistics inside the context; restore the former ones on exit.

    `run_batches` feeds batches to the model, which is in eval mode (no dropout) with its norms
    using batch statistics. The new statistics are the moments pooled over all batches of all
    processes, which may feed different numbers of batches ("precise BN", Wu and Johnson 2021).
    Rows that no batch reached keep their statistics.

    Raises:
        ValueError: `run_batches` fed no tokens to any norm.
    """
    norms = running_norms(model)
    former = [deepcopy(norm.state_dict()) for norm in norms]
    tallies = [Tally(norm) for norm in norms]
    ends = [norm.watch(tally.add) for norm, tally in zip(norms, tallies, strict=True)]
    try:
        try:
            with normalized_by(model, "batch"), torch.no_grad():
                run_batches()
        finally:
            for end in ends:
                end()
        pooled = [tally.result() for tally in tallies]
        if norms and not any(bool((found.count > 1).any()) for found in pooled):
            raise ValueError(
                "recalibration fed no tokens to any norm: give run_batches at least one batch"
            )
        for norm, found in zip(norms, pooled, strict=True):
            mean, var = norm.estimates(found)
            norm.enter(slice(None), mean, var, (found.count >= norm.fewest).to(mean))
        yield
    finally:
        for norm, state in zip(norms, former, strict=True):
            norm.load_state_dict(state)
