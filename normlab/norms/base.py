"""What a norm is: a set of axes to pool statistics over, called on a stream of tokens.

Everything about a norm that other code may ask follows from its axes: whether a token depends on
its batch, and whether tokens may be decoded one at a time. `RunningNorm` adds what pooling over
the batch needs, statistics that stand in for a batch when there is none, and the two ways of
replacing them from outside: recalibration and averaging over processes. `ModelNorms` is what a
run asks of all norms of its model.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from normlab.distributed import average_
from normlab.norms.moments import Moments, merge
from normlab.norms.stream import Stream
from normlab.norms.tally import Tally

uncompiled = _disable_dynamo
"""Leaves a method out of compiled graphs. `torch.compiler.disable` does so too, and loads the
compiler with the class: seconds, of every command."""
Axis = Literal["batch", "position", "feature"]
EvalStats = Literal["running", "batch", "recalibrated"]
Regime = Literal["train", "batch", "running"]
"""What a norm with statistics of its own does: train; the same without a trace; inference."""


class Norm(nn.Module, ABC):
    """A normalization of `[B, P, D]`: statistics over `pools`, then a scale and shift per feature.

    `weight` and `bias` are parameters where they are learned, else the constants 1 and 0.
    """

    pools: ClassVar[frozenset[Axis]]
    weight: Tensor
    bias: Tensor
    exact_gradient: ClassVar[bool] = True
    """Whether the backward pass gives the gradient of what training computes."""
    blended: bool = False
    """Whether evaluation, too, mixes in what training does (`blend`)."""
    most_positions: int | None = None
    """The positions that one call may have; None for any number."""
    by_position: bool = False
    """Whether a recurrence calls it with one position at a time, from the first on."""
    center_weights: bool = False
    """Whether the rows of the products before it are to lose their means."""

    def __init__(self, dim: int, *, scale: bool, shift: bool) -> None:
        super().__init__()
        self.dim = dim
        self._affine("weight", torch.ones(dim), learned=scale)
        self._affine("bias", torch.zeros(dim), learned=shift)

    def _affine(self, name: str, value: Tensor, *, learned: bool) -> None:
        if learned:
            self.register_parameter(name, nn.Parameter(value))
        else:
            self.register_buffer(name, value, persistent=False)

    @abstractmethod
    def forward(self, x: Float[Tensor, "B P D"], stream: Stream) -> Float[Tensor, "B P D"]:
        """Return `x` normalized, in its own dtype. What stands at padding is unspecified."""

    @property
    def batch_independent(self) -> bool:
        """Whether, in eval, a sequence comes out the same whatever its batch."""
        return "batch" not in self.pools

    @property
    def incremental(self) -> bool:
        """Whether, in eval, tokens may come one at a time: none depends on another."""
        return self.pools.isdisjoint({"batch", "position"})

    def begin_step(self, step: int, total: int | None) -> None:
        """Take notice that step `step` of `total` comes: for schedules of a norm's own."""

    def take_positions(self) -> None:
        """Take notice that it is called with one position at a time, from the first on."""
        self.by_position = True

    def forgo_shift(self) -> None:
        """Learn no shift, where a bias beside the norm does its work."""
        if isinstance(self.bias, nn.Parameter):
            value = torch.zeros_like(self.bias)
            del self.bias
            self._affine("bias", value, learned=False)

    def milestones(self, total: int | None) -> dict[str, int]:
        """Return by name the last step of each part of a schedule of its own, in a run of `total`.

        Raises ValueError where it is a share of a number of steps that is not known.
        """
        return {}

    @property
    def blend(self) -> float:
        """The share of something else that training mixes in, and evaluation leaves out."""
        return 0.0

    def penalty(self) -> Float[Tensor, ""] | None:
        """Return what the last training forward adds to the summed loss; None for nothing."""
        return None

    def fixed_map(self) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]] | None:
        """Return scale and shift in float64 if, in eval, each feature is only scaled and shifted.

        None where the output depends on more than the value at hand, its feature and constants.
        """
        return None

    def extra_repr(self) -> str:
        """Name the width and the axes."""
        return f"{self.dim}, pools={{{', '.join(sorted(self.pools))}}}"


class RunningNorm(Norm):
    """A norm that pools over the batch, and keeps statistics of its own between batches.

    These are its `tables`: persistent buffers that a subclass starts with `keep`. Nobody outside
    knows them by name: `running_moments` says by which mean and variance inference normalizes,
    `enter` changes them, and `tables` is what is averaged, swapped and put back as a whole.
    Where `self.by_batch`, a subclass hands the moments of the batch to `self.observe`.

    `seen` are the moments of the last call in training, for probes, and `seen_from` is the first of
    their rows; nothing is computed from them. Norms without the mean have moments with mean 0 and
    the second moment as variance. `in_step` tells that all processes call it together out of
    training, too.
    """

    once_an_update: bool = False
    """Whether the calls of an update enter the statistics together, at its end."""

    def __init__(
        self,
        dim: int,
        *,
        eps: float,
        affine: bool,
        eval_stats: EvalStats,
        sync: bool,
        momentum: float,
    ) -> None:
        super().__init__(dim, scale=affine, shift=affine)
        if not 0 < momentum <= 1:
            raise ValueError(f"momentum={momentum}: must be above 0 and at most 1")
        self.eps = eps
        self.sync = sync
        self.momentum = momentum
        self.evaluate_with(eval_stats)
        self.tally: Tally | None = None
        self.seen: Moments | None = None
        self.seen_from = 0
        self.held: list[Moments] | None = None
        self.frozen = False
        self.in_step = False
        self._tables: list[str] = []

    def evaluate_with(self, eval_stats: EvalStats) -> None:
        """Choose the statistics of eval mode."""
        self.eval_stats: EvalStats = eval_stats
        self.eval_by_batch = _EVAL_BY_BATCH[eval_stats]

    def train(self, mode: bool = True) -> "RunningNorm":
        """Go into training, or out of it; frozen statistics let a norm stay out of it."""
        super().train(mode and not self.frozen)
        return self

    def freeze(self) -> None:
        """From now on do in training what inference does; gain and shift go on learning."""
        self.frozen = True
        self.seen = None
        self.eval()

    def keep(self, name: str, value: Tensor) -> None:
        """Start a table: a persistent buffer of that name, in the place of a former one."""
        self.register_buffer(name, value)
        if name not in self._tables:
            self._tables.append(name)

    def drop(self, name: str) -> None:
        """Give up a table that a base class keeps."""
        delattr(self, name)
        self._tables.remove(name)

    @property
    def tables(self) -> dict[str, Tensor]:
        """The statistics kept between batches, by name: the buffers themselves."""
        return {name: getattr(self, name) for name in self._tables}

    @abstractmethod
    def running_moments(self) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance by which inference normalizes, `[rows, cols]` each."""

    @abstractmethod
    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor) -> None:
        """Move the statistics of some rows by a share, 0 to 1, towards a mean and a variance."""

    def batch_divisor(self) -> Tensor | None:
        """Return what the last training batch was divided by, `[cols]`, after its mean was taken.

        None where the statistics of that batch alone did not do it.
        """
        return None

    @property
    def regime(self) -> Regime:
        """What it normalizes by."""
        if self.training:
            return "train"
        return "batch" if self.eval_by_batch else "running"

    @property
    def by_batch(self) -> bool:
        """Whether it does what training does."""
        return self.regime != "running"

    @property
    def synced(self) -> bool:
        """Whether processes sum a batch's statistics: where each calls the norm as often."""
        return self.sync and (self.training or self.in_step)

    @property
    def batch_independent(self) -> bool:
        """Whether eval takes running statistics."""
        return not self.eval_by_batch

    @property
    def incremental(self) -> bool:
        """Whether eval takes running statistics."""
        return not self.eval_by_batch

    @torch.no_grad()
    def observe(self, found: Moments, first: int = 0) -> None:
        """Let a batch's moments, `[1, P or 1, D or 1]`, into the statistics or a tally.

        They are those of the rows from `first` on. A position where fewer than two values were
        pooled leaves its row as it was.
        """
        if self.training:
            self.seen, self.seen_from = found, first
            if self.held is None:
                self.update(found, first)
            else:
                self.held.append(found)
        elif self.tally is not None:
            self.tally.add(found, first)

    def take_positions(self) -> None:
        """Let the positions of an update enter the statistics together, where these have one row.

        Each by itself would leave little of the first ones: with a momentum of 0.1 the last ten
        make two thirds of the row.
        """
        super().take_positions()
        if len(self.running_moments()[0]) == 1:
            self.once_an_update = True

    def hold(self) -> None:
        """Keep the moments of micro-batches apart until `commit`, if that is this norm's way."""
        if self.once_an_update:
            self.held = []

    def commit(self) -> None:
        """Let the moments that were kept into the statistics, as those of one batch."""
        held, self.held = self.held, None
        if held:
            self.update(merge(held))

    def update(self, found: Moments, first: int = 0) -> None:
        """Let the moments of a batch that is trained on into the rows from `first` on."""
        mean, var = self.estimates(found)
        share = self.momentum * (found.count[0] > 1).to(mean)
        self.enter(slice(first, first + mean.shape[0]), mean, var, share)

    def estimates(self, found: Moments) -> tuple[Tensor, Tensor]:
        """Return the mean and variance to keep of `found`, `[P or 1, D or 1]` each."""
        mean, var = self.running_moments()
        return found.mean[0].to(mean), found.var[0].to(var)


_EVAL_BY_BATCH: dict[EvalStats, bool] = {"running": False, "batch": True, "recalibrated": False}


def running_norms(model: nn.Module) -> list[RunningNorm]:
    """Return the model's norms that keep running statistics."""
    return [module for module in model.modules() if isinstance(module, RunningNorm)]


@contextmanager
def batch_statistics(model: nn.Module, *, in_step: bool = False) -> Iterator[None]:
    """Put the model in eval mode while its norms take each batch's own statistics.

    So it computes what it does in training, without dropout and without a trace in the running
    statistics. All modes are put back on exit. Where processes go `in_step`, each with as many
    batches, synced norms take those of all processes' batches.
    """
    norms = running_norms(model)
    by_batch = [norm.eval_by_batch for norm in norms]
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        for norm in norms:
            norm.eval_by_batch, norm.in_step = True, in_step
        yield
    finally:
        for norm, was in zip(norms, by_batch, strict=True):
            norm.eval_by_batch, norm.in_step = was, False
        for module, was_training in modes:
            module.training = was_training


@contextmanager
def evaluated_with(model: nn.Module, eval_stats: EvalStats) -> Iterator[None]:
    """Let the model's norms evaluate with other statistics than their own `eval_stats` says."""
    norms = running_norms(model)
    former: list[EvalStats] = [norm.eval_stats for norm in norms]
    try:
        for norm in norms:
            norm.evaluate_with(eval_stats)
        yield
    finally:
        for norm, own in zip(norms, former, strict=True):
            norm.evaluate_with(own)


@contextmanager
def blended(model: nn.Module) -> Iterator[None]:
    """Let the model's norms evaluate what they train on, where that is a blend."""
    norms = [module for module in model.modules() if isinstance(module, Norm) and module.blend]
    try:
        for norm in norms:
            norm.blended = True
        yield
    finally:
        for norm in norms:
            norm.blended = False


@contextmanager
def recalibrated(model: nn.Module, run_batches: Callable[[], None]) -> Iterator[None]:
    """Put freshly estimated running statistics in place, the former ones back on exit.

    `run_batches` feeds batches to the model, which is in eval mode (no dropout) while its norms
    take each batch's own statistics; the estimate is the pooled moments of them all, over all
    processes, which may feed different numbers of batches ("precise BN", Wu and Johnson 2021).
    Rows that no batch reached keep their statistics.

    Raises:
        ValueError: `run_batches` fed nothing.
    """
    norms = running_norms(model)
    former = [{name: table.clone() for name, table in norm.tables.items()} for norm in norms]
    try:
        try:
            for norm in norms:
                norm.tally = Tally(norm.running_moments()[0])
            with batch_statistics(model), torch.no_grad():
                run_batches()
            pooled = [norm.tally.result() for norm in norms if norm.tally is not None]
        finally:
            for norm in norms:
                norm.tally = None
        if norms and not any(bool((found.count > 1).any()) for found in pooled):
            raise ValueError(
                "recalibration fed no tokens to any norm: give run_batches at least one batch"
            )
        for norm, found in zip(norms, pooled, strict=True):
            mean, var = norm.estimates(found)
            norm.enter(slice(mean.shape[0]), mean, var, (found.count[0] > 1).to(mean))
        yield
    finally:
        for norm, tables in zip(norms, former, strict=True):
            for name, table in norm.tables.items():
                table.copy_(tables[name])


def average_statistics_over_ranks(model: nn.Module) -> None:
    """Replace unsynced running statistics by their mean over processes.

    Due before evaluating or saving: with `sync=false` each process has its own. The variance is
    the mean variance within processes; how far their means lie apart is left out.
    """
    unsynced = [norm for norm in running_norms(model) if not norm.sync]
    average_([table for norm in unsynced for table in norm.tables.values()])
