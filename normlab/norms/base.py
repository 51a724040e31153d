"""Base classes of norms: the axes they pool over, and the running statistics they keep."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from normlab.distributed.process_group import sum_over_ranks, world
from normlab.errors import UserError
from normlab.norms.pool import (
    ALL,
    AllReduce,
    Axis,
    Grouped,
    Groups,
    Moments,
    Pool,
    Stream,
    here,
    widen,
)

_Function = TypeVar("_Function", bound=Callable[..., Any])
EvalStats = Literal["running", "batch", "recalibrated"]
Affine = bool | Literal["scale"]
"""Whether a norm learns gain and shift; with `scale` it learns the gain alone."""


def uncompiled(function: _Function) -> _Function:
    """Exclude a function from compilation, without loading torch._dynamo, which takes a second."""
    disabled = _disable_dynamo(function)

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        compiles = "torch._dynamo" in sys.modules
        return (disabled if compiles else function)(*args, **named)

    return cast("_Function", call)


class Clock(NamedTuple):
    """The current step of a run (from 1; 0 outside a run), and the number of steps if known."""

    step: int = 0
    total: int | None = None


class Norm(nn.Module, ABC):
    """Normalizes a `[B, P, D]` tensor with statistics over `pools`, then applies gain and shift.

    B is the number of sequences in the batch, P of positions, D of features. `weight` and `bias`
    have one value per feature: parameters if learned, else constants 1 and 0.
    """

    pools: ClassVar[frozenset[Axis]]
    exact_gradient: ClassVar[bool] = True
    """Whether the backward pass is the exact gradient of the forward pass in training."""
    foldable: ClassVar[bool] = False
    """Whether the norm can be a fixed scale and shift per feature in eval mode; folding checks."""
    phases: ClassVar[tuple[str, ...]] = ()
    """Parts of a run in which the norm behaves differently. The setting `<phase>_share` gives a
    phase's length as a share of the run's steps; `<phase>_steps` overrides it."""
    weight: Tensor
    bias: Tensor
    clock: Clock = Clock()
    """Set by the run before each step."""
    extra_loss: Tensor | None = None
    """A term from the last training forward pass; the run adds it to the summed loss once."""
    most_positions: int | None = None  # maximum per call; None for no limit
    by_position: bool = False  # a recurrent layer calls the norm once per position
    center_weights: bool = False  # center each weight row of the linear layers before the norm

    def __init__(self, dim: int, *, scale: bool, shift: bool) -> None:
        super().__init__()
        self.dim = dim
        groups = getattr(self, "groups", None)
        if groups is not None and dim % groups:
            raise UserError(f"norm.groups={groups} does not divide the width {dim}: use a divisor")
        self._affine("weight", torch.ones(dim), learned=scale)
        self._affine("bias", torch.zeros(dim), learned=shift)

    def _affine(self, name: str, value: Tensor, *, learned: bool) -> None:
        if learned:
            self.register_parameter(name, nn.Parameter(value))
        else:
            self.register_buffer(name, value, persistent=False)

    @abstractmethod
    def forward(self, x: Float[Tensor, "B P D"], stream: Stream = ALL) -> Float[Tensor, "B P D"]:
        """Return the normalized `x` in its own dtype. The output at padding is unspecified."""

    def gain_and_shift(self, z: Tensor) -> Tensor:
        """Return `weight z + bias`."""
        return torch.addcmul(self.bias.to(z), z, self.weight.to(z))

    @property
    def batch_independent(self) -> bool:
        """Whether a sequence's output in eval mode does not depend on the rest of its batch."""
        return "batch" not in self.pools

    @property
    def sees_future(self) -> bool:
        """Whether a token's output in eval mode depends on later tokens of its sequence."""
        return "position" in self.pools

    @property
    def incremental(self) -> bool:
        """Whether eval mode can process tokens one at a time, as no token depends on another."""
        return self.batch_independent and not self.sees_future

    def forgo_shift(self) -> None:
        """Fix the shift at 0: the formula has none, or a bias next to the norm does the same."""
        self._fix_at_zero("bias")

    def _fix_at_zero(self, name: str) -> None:
        value = getattr(self, name)
        if isinstance(value, nn.Parameter):
            delattr(self, name)
            self._affine(name, torch.zeros_like(value), learned=False)

    def start_gain(self, value: float, *, key: str) -> None:
        """Start with `value` times the norm's usual output (without a shift).

        Raises UserError, naming the setting `key` that asks for it, if no gain is learned.
        """
        if not isinstance(self.weight, nn.Parameter):
            raise UserError(
                f"{key}: {type(self).__name__} learns no gain that could start at {value:g}; "
                "choose a norm with norm.affine=true or scale, or leave the setting out"
            )
        nn.init.constant_(self.weight, value)

    def last_steps(self, total: int | None) -> dict[str, int]:
        """Return the last step of each phase; UserError if that needs `total` but it is None."""
        last: dict[str, int] = {}
        for phase in self.phases:
            share, steps = getattr(self, f"{phase}_share"), getattr(self, f"{phase}_steps")
            if steps is None and total is None:
                raise UserError(
                    f"norm.{phase}_share={share} needs budget.steps: set it, or norm.{phase}_steps"
                )
            last[phase] = round(share * total) if steps is None else steps
        return last

    def during(self, phase: str) -> bool:
        """Return whether a phase has not ended at this step; always true outside a run."""
        step, total = self.clock
        return step == 0 or step <= self.last_steps(total)[phase]

    def __getstate__(self) -> dict[str, Any]:
        """Omit `extra_loss`, which belongs to the last forward pass."""
        return {**vars(self), "extra_loss": None}


@dataclass(eq=False, repr=False, kw_only=True)
class RunningNorm(Norm):
    """A norm that uses batch statistics in training and running statistics at inference.

    A training pass: `Pool.cut` groups the values that share statistics; `normalize` normalizes each
    group by its moments; `see` pools the moments over the batch (`whole`) and moves the running
    statistics towards them (`update`). What must wait for the other micro-batches of the update
    waits in `held` until the training loop calls `commit`.

    A subclass registers its running statistics, the `tables`, as persistent buffers, and defines
    `normalize`, or its own `forward` that passes each batch's moments to `see` unless the `regime`
    is "running". A norm that subtracts no mean has mean 0 and the mean square as its variance.

    `momentum` is the weight of the newest batch, as in torch. `eval_stats` names the statistics for
    eval mode. With `sync`, batch statistics span all processes.
    """

    foldable: ClassVar[bool] = True
    once_an_update: ClassVar[bool] = False
    """Whether moments from all calls of an update enter the tables together at its end; those of
    recurrent positions that share a row always do."""
    fewest: ClassVar[int] = 2  # values needed: two for a variance, one for a mean square

    dim: int = field(kw_only=False)
    eps: float
    momentum: float
    affine: Affine
    eval_stats: EvalStats
    sync: bool
    padding: Any  # which tokens count: a Literal in each subclass
    ghost: int | None = None  # sequences per ghost batch; None for the whole batch

    def __post_init__(self) -> None:
        """Create the parameters and start with no batches seen."""
        super().__init__(self.dim, scale=bool(self.affine), shift=self.affine is True)
        self.pool = Pool(self.pools, self.ghost)
        self.rows = 1  # number of rows in each table
        self.batches = 0  # updates that have entered the tables; only `SquareNorm` counts them
        self.frozen = False  # training uses running statistics; gain and shift still learn
        self.held: dict[str, list[Moments]] | None = None  # wait for `commit`, by method
        self.seen: Moments | None = None  # moments of the last training batch, for probes
        self.seen_from = 0  # the table row that `seen` starts at
        self.watchers: list[Callable[[Moments, int], None]] = []  # called by `see`
        self.summed: AllReduce | None = None  # replaces the sum over processes if set

    def forward(self, x: Float[Tensor, "B P D"], stream: Stream = ALL) -> Float[Tensor, "B P D"]:
        """Normalize `x` with batch statistics or running statistics, depending on `regime`.

        Raises UserError for a batch with too few tokens, or more positions than the tables have.
        """
        rows = self.rows_of(stream.start, x.shape[1])
        if self.regime == "running":
            (wide,) = widen(x)
            return self.by_running(wide, rows).to(x.dtype)
        stream = ALL if self.padding == "include" else stream
        self.require_tokens(stream.known_tokens(x))
        groups = self.pool.cut(x, stream, self.padding)
        y, moments = self.normalize(groups)
        self.see(moments, rows.start)
        return self.pool.join(y, groups, like=x)

    def normalize(self, groups: Groups) -> tuple[Grouped, Moments]:
        """Normalize each group by its moments and apply gain and shift; also return the moments."""
        raise NotImplementedError

    def by_running(self, x: Float[Tensor, "B P D"], rows: slice) -> Float[Tensor, "B P D"]:
        """Normalize `x` with the given table rows, using one multiply-add per value."""
        mean, var = (moment[rows].to(x) for moment in self.running_moments())
        scale = self.weight.to(x) * self.inverse(var)
        return torch.addcmul(self.bias.to(x) - mean * scale, x, scale)

    def inverse(self, var: Tensor) -> Tensor:
        """Return the factor to multiply centered values by, given their variance."""
        return (var + self.eps).rsqrt()

    def rows_of(self, start: int, length: int) -> slice:
        """Return the table rows of `length` positions starting at `start`."""
        return slice(0, 1)

    @property
    def tables(self) -> dict[str, Tensor]:
        """The running statistics by name: the buffers themselves, not copies."""
        constants = self._non_persistent_buffers_set
        return {name: table for name, table in self.named_buffers() if name not in constants}

    @abstractmethod
    def running_moments(self) -> tuple[Tensor, Tensor]:
        """Return the mean and variance used at inference, `[rows, columns]` each."""

    @abstractmethod
    def enter(self, rows: slice, mean: Tensor, var: Tensor, share: Tensor) -> None:
        """Move table rows towards a mean and a variance by the fraction `share`, from 0 to 1."""

    @property
    def regime(self) -> Literal["train", "batch", "running"]:
        """The statistics in use: the batch's (updating the tables or not), or the running ones."""
        if self.training:
            return "running" if self.frozen else "train"
        return "batch" if self.eval_stats == "batch" else "running"

    @property
    def batch_independent(self) -> bool:
        return self.eval_stats != "batch"

    @property
    def sees_future(self) -> bool:
        return "position" in self.pools and not self.batch_independent

    def batch_divisor(self) -> Tensor | None:
        """Return the deviation `[columns]` that divided the last training batch.

        None if there is no such single deviation (ghost batches, batch renorm, RepBN).
        """
        return None

    @property
    def all_reduce(self) -> AllReduce:
        """A function that sums a table over processes in training, else returns it unchanged."""
        alone = here if world().size == 1 else self._sum_over_processes
        return (self.summed or alone) if self.training else here

    def _sum_over_processes(self, table: Tensor) -> Tensor:
        """Sum a table `[..., R, d]`, padded to all rows because lengths may differ by process."""
        rows = 1 if self.by_position else self.rows
        if rows > 1:
            table = F.pad(table, (0, 0, 0, rows - table.shape[-2]))
        return sum_over_ranks(table)

    @property
    def divided(self) -> bool:
        """Whether a batch is normalized in parts: ghost batches, or each process's own part."""
        return self.ghost is not None or (not self.sync and world().size > 1)

    @property
    def of_groups(self) -> AllReduce:
        """`all_reduce` if `sync` is set and there are no ghost batches, else the identity."""
        return self.all_reduce if self.sync and not self.divided else here

    def require_tokens(self, known: int | None) -> None:
        """Raise UserError if a single-process run trains on a batch with too few tokens."""
        fewest = 1 if self.by_position or "position" not in self.pools else self.fewest
        if self.training and known is not None and known < fewest and world().size == 1:
            raise UserError(
                f"{type(self).__name__} cannot train on a batch of {known} token(s): "
                f"it needs at least {('one', 'two')[fewest - 1]}; raise batch_size or max_tokens"
            )

    def whole(self, found: Moments) -> Moments:
        """Pool the groups' moments, `[G, 1, R, columns]`, over the batch to `[rows, columns]`."""
        if self.divided:
            sums = self.all_reduce(found.sums()[:, :, 0].sum(1))
            return Moments.pooled(sums, found.mean.dtype)
        return Moments(*(table.detach().flatten(0, 2) for table in found))

    @torch.no_grad()
    def see(self, groups: Moments, first: int = 0) -> None:
        """Pool the groups' moments; pass them to watchers and to the table rows from `first` on."""
        found = self.whole(groups)
        for watcher in self.watchers:
            watcher(found, first)
        if self.regime == "train":
            self.seen, self.seen_from = found, first
            if self.once_an_update or (self.by_position and self.rows == 1):
                self.enter_together("update", found)
            else:
                self.update(found, first)

    def enter_together(self, method: str, found: Moments) -> None:
        """Call a method with the moments now, or in `commit` with those of the whole update."""
        if self.held is None:
            getattr(self, method)(found)
        else:
            self.held.setdefault(method, []).append(found)

    @torch.no_grad()
    def commit(self) -> None:
        """Enter the moments held during an update into the tables, pooled as one batch."""
        held, self.held = self.held or {}, None
        for method, batches in held.items():
            found = batches[0]
            if batches[1:]:
                sums = torch.stack([moments.sums() for moments in batches]).sum(0)
                found = Moments.pooled(sums, found.mean.dtype)
            getattr(self, method)(found)

    def update(self, found: Moments, first: int = 0) -> None:
        """Update the table rows from `first` on where the batch has enough values."""
        mean, var = self.estimates(found)
        share = self.momentum * (found.count >= self.fewest).to(mean)
        self.enter(slice(first, first + mean.shape[0]), mean, var, share)

    def estimates(self, found: Moments) -> tuple[Tensor, Tensor]:
        """Return the mean and variance to update the tables with, `[rows, columns]` each."""
        mean, _ = self.running_moments()
        return found.mean.to(mean), found.var.to(mean)

    def get_extra_state(self) -> Tensor:
        """Return step, number of steps (-1 if unknown) and `batches`, as an integer tensor."""
        step, total = self.clock
        return torch.tensor([step, -1 if total is None else total, self.batches])

    def set_extra_state(self, state: Tensor) -> None:
        step, total, self.batches = (int(number) for number in state.tolist())
        self.clock = Clock(step, None if total < 0 else total)


def running_norms(model: nn.Module) -> list[RunningNorm]:
    """Return the model's norms that keep running statistics."""
    return [module for module in model.modules() if isinstance(module, RunningNorm)]


@contextmanager
def normalized_by(model: nn.Module, eval_stats: EvalStats) -> Iterator[None]:
    """Put the model in eval mode, with its norms using batch statistics or running statistics.

    With `batch` the model computes the same as in training, but without dropout and without
    updating the tables. All modes are restored on exit.
    """
    with ExitStack() as stack:
        for module in model.modules():
            stack.callback(setattr, module, "training", module.training)
        for norm in running_norms(model):
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
