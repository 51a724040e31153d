"""Communication between processes; the only module that imports `torch.distributed`.

Every function also works in a single process, where it does nothing or returns its argument.
Functions sum over processes and never average: the caller divides by a summed count, which is also
correct when shards differ in size.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch import Tensor, nn

T = TypeVar("T")
_TRANSPORTS = ("gloo", "NCCL", "Connection closed", "Timed out")


class Shard(NamedTuple):
    """One of `size` parts that work is divided into, one per process."""

    rank: int
    size: int


def initialize(*, timeout_minutes: float = 30.0) -> Shard:
    """Join the process group that `torchrun` describes in the environment, if there is one.

    Uses NCCL if CUDA is available, else gloo. A rank waits `timeout_minutes` for the others.
    """
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ and not dist.is_initialized():
        timeout = timedelta(minutes=timeout_minutes)
        dist.init_process_group("nccl" if cuda else "gloo", timeout=timeout)
    return world()


def shutdown() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def lost_ranks_named() -> Iterator[None]:
    """Turn a transport error caused by a lost rank into a one-line ValueError."""
    try:
        yield
    except RuntimeError as error:
        said = str(error)
        if not isinstance(error, dist.DistError) and not any(t in said for t in _TRANSPORTS):
            raise
        rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        # gloo's message starts with a source line in brackets and ends with advice.
        reason = said.partition("\n")[0].partition("] ")[2].partition(". ")[0] or said
        raise ValueError(
            f"rank {rank} of {size}: another rank has ended or does not answer ({reason:.100}). "
            "Start the same command again to resume from the last checkpoint"
        ) from error


def world() -> Shard:
    """Return this process's rank and the number of processes; 0 and 1 without a process group."""
    if dist.is_available() and dist.is_initialized():
        return Shard(dist.get_rank(), dist.get_world_size())
    return Shard(0, 1)


def is_main() -> bool:
    """Return whether this process prints and writes files; only rank 0 does."""
    return world().rank == 0


def sum_over_ranks(x: Tensor) -> Tensor:
    """Return the sum of `x` over processes, outside of autograd; `x` itself for one process."""
    if world().size == 1:
        return x
    total = x.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


class _AllReduceSum(torch.autograd.Function):
    """Sum over processes; gradients sum too, as each rank's input affects every rank's output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return sum_over_ranks(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return sum_over_ranks(grads[0])


def all_reduce_sum(x: Tensor) -> Tensor:
    """Return the sum of `x` over processes, differentiably; `x` itself for one process."""
    return x if world().size == 1 else _AllReduceSum.apply(x)


@torch.no_grad()
def sum_gradients(params: Iterable[nn.Parameter]) -> None:
    """Sum gradients over processes in place; all ranks must have gradients for the same params."""
    by_dtype: dict[torch.dtype, list[Tensor]] = {}  # one all-reduce per dtype
    for param in params if world().size > 1 else ():
        if param.grad is not None:
            by_dtype.setdefault(param.grad.dtype, []).append(param.grad)
    for members in by_dtype.values():
        flat = torch.cat([member.reshape(-1) for member in members])
        dist.all_reduce(flat)
        parts = flat.split([member.numel() for member in members])
        for member, part in zip(members, parts, strict=True):
            member.copy_(part.view_as(member))


def sum_scalars(values: list[float]) -> list[float]:
    """Sum plain numbers across processes, in float64."""
    if world().size == 1:
        return list(values)
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    return sum_over_ranks(torch.tensor(values, dtype=torch.float64, device=device)).tolist()


def gather_objects(obj: T) -> list[T]:
    """Return every rank's object, in rank order, on every rank."""
    if (size := world().size) == 1:
        return [obj]
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, obj)
    return gathered


def check_agreement(seen: Mapping[str, object]) -> None:
    """Raise ValueError on every rank if any two ranks disagree on a value."""
    ranks = gather_objects({name: str(value) for name, value in seen.items()})
    for rank, other in enumerate(ranks):
        for name, value in other.items():
            if value != ranks[0][name]:
                raise ValueError(
                    f"{name}: {ranks[0][name]:.200} on rank 0, and {value:.200} on rank {rank}: "
                    "all ranks need the same code, the same data and a shared runs_dir"
                )
