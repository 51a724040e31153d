"""Norms that use batch statistics in training, and running statistics at inference."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.distributed.process_group import world
from normlab.errors import UserError
from normlab.norms import fast
from normlab.norms.base import Affine, Norm, uncompiled
from normlab.norms.moments import AllReduce, Moments, Pool, Values, unchanged, widen
from normlab.norms.ramp import Clock
from normlab.norms.tokens import ALL, Tokens

EvalStats = Literal["running", "batch", "recalibrated"]


class PendingMoments:
    """The moments that a norm measures during an update, and adds to its tables when it ends.

    Outside a run, moments are added immediately.
    """

    def __init__(self) -> None:
        self.begun = False
        # emptied after each micro-batch, because compiled code has a guard on it
        self.arrived: list[Moments] = []
        self.collected: list[Moments] = []

    def begin(self) -> None:
        """Start an update: from now on, collect moments instead of adding them immediately."""
        self.begun, self.arrived, self.collected = True, [], []

    @property
    def empty(self) -> bool:
        """Whether no moments are pending."""
        return not (self.arrived or self.collected)

    def collect(self) -> None:
        """Add the moments of a micro-batch to the collected ones."""
        self.collected += self.arrived
        self.arrived = []

    def end(self) -> Moments | None:
        """End the update. Return the moments of all its micro-batches, pooled as one batch.

        Returns None if there are no moments.
        """
        self.collect()
        batches, self.begun, self.collected = self.collected, False, []
        if not batches[1:]:
            return batches[0] if batches else None
        sums = torch.stack([moments.sums() for moments in batches]).sum(0)
        return Moments.pooled(sums, batches[0].mean.dtype)


@dataclass(eq=False, repr=False, kw_only=True)
class BatchStatistics(Norm):
    """A norm that uses the batch's statistics in training.

    `formula` normalizes, in training and at inference. A norm that normalizes differently in
    training overrides `training_formula` and sets `same_in_training = False`. Both take plain
    tensors: `x` is `[N, D]`, the real tokens of the batch, or `[B, P, D]`; `mean` and `var` have
    the same number of dimensions and broadcast.

    `eval_stats` chooses the statistics used in eval mode. With `sync`, batch statistics span all
    processes in training. `ghost` is the number of sequences per ghost batch, or None for the whole
    batch.
    """

    dim: int = field(kw_only=False)
    eps: float
    momentum: float
    affine: Affine
    eval_stats: EvalStats
    sync: bool
    padding: Any  # which tokens enter the statistics: a Literal in each subclass
    ghost: int | None = None

    same_in_training: ClassVar[bool] = True
    """Whether training outputs equal the outputs of inference with the batch's own statistics.

    If not, they must at least agree once the running statistics have converged to the batch's.
    """

    def __post_init__(self) -> None:
        super().__init__(self.dim, scale=bool(self.affine), shift=self.affine is True)
        self.pool = Pool(self.pools, self.ghost, self.sync)
        self.frozen = False  # if True, training uses running statistics; gain and shift still learn

    def prepare(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
        """Return the values to measure and to normalize, by default `x` itself."""
        return x

    @abstractmethod
    def formula(self, x: Tensor, mean: Tensor, var: Tensor, /) -> Tensor:
        """Return `x` normalized with `mean` and `var`, before gain and shift."""

    def training_formula(self, x: Tensor, mean: Tensor, var: Tensor, /) -> Tensor:
        """Return `x` normalized with the batch's own statistics, by default with `formula`.

        This is used in training, unless the norm is frozen, and in evaluation with
        `eval_stats=batch`.
        """
        return self.formula(x, mean, var)

    def output(self, z: Tensor, x: Tensor) -> Tensor:
        """Return the norm's output, given the normalized values `z` and the prepared values `x`."""
        return self.gain_and_shift(z)

    def moments(self, values: Values) -> Moments:
        """Return the statistics of each group of a batch."""
        return self.pool.moments(values, self.over_group)

    def rows_of(self, start: int, length: int) -> slice:
        """Return the rows of the statistics for `length` positions starting at `start`."""
        return slice(0, 1)

    @property
    def over_processes(self) -> AllReduce:
        """The function that sums a table over all processes in training.

        In evaluation it returns the table, because processes evaluate different numbers of batches.
        """
        return self.pool.over_processes if self.training else unchanged

    @property
    def over_group(self) -> AllReduce:
        """The function that sums a table over the processes that share their statistics.

        In evaluation, each process uses the statistics of its own batches.
        """
        return self.pool.over_group if self.training else unchanged

    @property
    def regime(self) -> Literal["train", "batch", "running"]:
        """The statistics in use: `running`, or the batch's. `train` also updates the tables."""
        if self.training:
            return "running" if self.frozen else "train"
        return "batch" if self.eval_stats == "batch" else "running"

    @property
    def batch_independent(self) -> bool:
        return self.eval_stats != "batch"

    @property
    def sees_future(self) -> bool:
        return "position" in self.pools and not self.batch_independent


@dataclass(eq=False, repr=False, kw_only=True)
class RunningNorm(BatchStatistics):
    """A norm that stores running statistics in tables.

    A subclass registers its tables as persistent buffers. It defines how to compute
    `running_moments` from them, and how a batch's moments `enter` them. `momentum` is the weight of
    the newest batch, as in torch. With `once_an_update`, the moments of an update's micro-batches
    are kept in `pending` until the training loop calls `commit`.
    """

    foldable: ClassVar[bool] = True
    once_an_update: ClassVar[bool] = False
    """Whether the moments of all calls in an update are added to the tables together at its end.

    For recurrent positions that share a row, they always are.
    """
    fewest: ClassVar[int] = 2  # minimum number of values: two for a variance, one for a mean square
    updates: Int[Tensor, ""] = field(init=False)
    """How often the tables have been updated. Only `SquareNorm` counts this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pending = PendingMoments()
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64), persistent=False)
        self.last_batch: Callable[[], Moments] | None = None  # moments of the last training batch
        self.last_batch_row = 0  # the row of the tables where those moments start
        self.last_counts: Tensor | int = 0  # number of values in each statistic of that batch
        self.watchers: list[Callable[[Moments, int], None]] = []  # called with each batch's moments

    def forward(self, x: Float[Tensor, "B P D"], tokens: Tokens = ALL) -> Float[Tensor, "B P D"]:
        """Normalize `x` with batch statistics or running statistics, depending on `regime`.

        Raises UserError if the batch has too few tokens, or more positions than the tables.
        """
        rows = self.rows_of(tokens.start, x.shape[1])
        tokens = ALL if self.padding == "include" else tokens
        if (quick := fast.output(self, x, tokens)) is not None:
            return quick
        wide = self.prepare(*widen(x))
        if self.regime == "running":
            mean, var = (moment[rows].to(wide) for moment in self.running_moments())
            return self.output(self.formula(wide, mean, var), wide).to(x.dtype)
        require_tokens(self, tokens.known(x))
        values = self.pool.cut(wide, tokens, self.padding)
        moments = self.moments(values)
        local = moments.at(values.x.shape[-2]) if self.pool.rows > 1 else moments
        z = self.training_formula(values.x, local.mean, local.var)
        y = self.output(z, values.x)
        self.remember(moments, rows.start)
        if (loss := self.loss_of(moments)) is not None:
            self.extra_loss = loss
        return self.pool.join(y, values, tokens, like=x)

    @abstractmethod
    def running_moments(self) -> tuple[Tensor, Tensor]:
        """Return the mean and variance used at inference, `[rows, columns]` each."""

    @abstractmethod
    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor, /) -> None:
        """Move table rows towards a mean and a variance by the fraction `share`, from 0 to 1."""

    @property
    def tables(self) -> dict[str, Tensor]:
        """The running statistics by name: the buffers themselves, not copies."""
        constants = self._non_persistent_buffers_set
        return {name: table for name, table in self.named_buffers() if name not in constants}

    @torch.no_grad()
    def remember(self, groups: Moments, first: int = 0) -> None:
        """Pass the moments of the whole batch to watchers and, in training, add them to the tables.

        `first` is the row of the tables where the moments start.
        """
        moments = self.pool.whole(groups, self.over_processes)
        if self.watchers:
            show(self.watchers, moments, first)
        if self.regime == "train":
            self.last_batch, self.last_batch_row = partial(Moments, *moments), first
            self.last_counts = groups.count
            waits = self.once_an_update or (self.by_position and self.pool.rows == 1)
            if waits and self.pending.begun:
                self.pending.arrived.append(moments)
            else:
                self.update(moments, first)

    def loss_of(self, groups: Moments) -> Tensor | None:
        """Return the loss term for a batch's moments, with its gradient, or None for no term."""
        return None

    def commit(self) -> None:
        """End an update: add the pending moments to the running statistics."""
        if (moments := self.pending.end()) is not None:
            self.update(moments)

    def update(self, moments: Moments, first: int = 0) -> None:
        """Update the tables, from row `first` on, where the batch has enough values."""
        mean, var = self.estimates(moments)
        share = self.momentum * (moments.count >= self.fewest).to(mean)
        self.enter(slice(first, first + mean.shape[0]), mean, var, share)

    def estimates(self, moments: Moments) -> tuple[Tensor, Tensor]:
        """Return the mean and variance to update the tables with, `[rows, columns]` each."""
        mean, _ = self.running_moments()
        return moments.mean.to(mean), moments.var.to(mean)

    def batch_divisor(self) -> Tensor | None:
        """Return the standard deviation, `[columns]`, that the last training batch was divided by.

        Return None if there is no single one (ghost batches, batch renorm, RepBN).
        """
        return None

    def get_extra_state(self) -> Tensor:
        """Return the step, the run's number of steps (-1 if unknown), and `updates`.

        This does not wait for the device.
        """
        step, total = self.clock
        numbers = (step, -1 if total is None else total)
        return torch.stack([*(torch.full_like(self.updates, n) for n in numbers), self.updates])

    def set_extra_state(self, state: Tensor) -> None:
        step, total, updates = (int(number) for number in state.tolist())
        self.begin_step(Clock(step, None if total < 0 else total))
        self.updates.fill_(updates)


@uncompiled
def show(watchers: list[Callable[[Moments, int], None]], moments: Moments, first: int) -> None:
    """Pass a batch's moments, and the row of the tables where they start, to watchers."""
    for watcher in watchers:
        watcher(moments, first)


def require_tokens(norm: RunningNorm, known: int | None) -> None:
    """Raise UserError if a single process trains a norm on a batch with too few tokens."""
    fewest = 1 if norm.by_position or "position" not in norm.pools else norm.fewest
    if norm.training and known is not None and known < fewest and world().size == 1:
        raise UserError(
            f"{type(norm).__name__} cannot train on a batch of {known} token(s) because it needs "
            f"at least {('one', 'two')[fewest - 1]}; raise batch_size or max_tokens"
        )


def running_norms(model: nn.Module) -> list[RunningNorm]:
    """Return the model's norms that keep running statistics."""
    return [module for module in model.modules() if isinstance(module, RunningNorm)]


@contextmanager
def normalized_by(
    model: nn.Module, eval_stats: EvalStats, norms: Iterable[RunningNorm] | None = None
) -> Iterator[None]:
    """Put the model in eval mode, with `norms` (None for all) using batch or running statistics.

    With `batch`, the model computes what it does in training, but without dropout and without
    updating the tables. All modes are restored on exit.
    """
    with ExitStack() as stack:
        for module in model.modules():
            stack.callback(setattr, module, "training", module.training)
        for norm in running_norms(model) if norms is None else norms:
            stack.callback(setattr, norm, "eval_stats", norm.eval_stats)
            norm.eval_stats = eval_stats
        model.eval()
        yield


@contextmanager
def statistics_kept(model: nn.Module) -> Iterator[None]:
    """Restore the running statistics of the model's norms on exit."""
    with ExitStack() as stack:
        for norm in running_norms(model):
            stack.callback(norm.load_state_dict, deepcopy(norm.state_dict()))
        yield
