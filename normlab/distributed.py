"""Decides how processes work together: the only importer of `torch.distributed`.

Every function is right in a single process too, where it does nothing or returns its argument,
so no caller asks whether there is more than one. Sums over processes are sums of *sums*: the
caller divides by a count that was summed the same way, which is right when shards differ in size.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor, nn

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """One part of work that is divided among `size` processes."""

    rank: int
    size: int


@dataclass(frozen=True)
class World(Shard):
    """This process among all: its part of the work and the device it works on."""

    local_rank: int
    device: torch.device


def initialize() -> World:
    """Join the process group that `torchrun` describes in the environment, if there is one.

    Takes NCCL where CUDA is present, else gloo. Calling it again changes nothing.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ and not dist.is_initialized():
        dist.init_process_group("nccl" if cuda else "gloo")
    shard = world()
    return World(shard.rank, shard.size, local_rank, device)


def shutdown() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def world() -> Shard:
    """Return this process's rank and the number of processes: 0 of 1 without a group."""
    if dist.is_available() and dist.is_initialized():
        return Shard(dist.get_rank(), dist.get_world_size())
    return Shard(0, 1)


def is_main() -> bool:
    """Tell whether this process is the one that prints and writes."""
    return world().rank == 0


def sum_over_ranks(x: Tensor) -> Tensor:
    """Return the sum of `x` over processes, outside of autograd; `x` itself for one process.

    Shapes must agree on all ranks. A new tensor comes back, `x` is left as it was.
    """
    if world().size == 1:
        return x
    total = x.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


class _AllReduceSum(torch.autograd.Function):
    """Sum over processes; each rank's input moved every rank's output, so gradients sum too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return sum_over_ranks(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return sum_over_ranks(grads[0])


def all_reduce_sum(x: Tensor) -> Tensor:
    """Return the sum of `x` over processes, differentiably; `x` itself for one process."""
    if world().size == 1:
        return x
    return _AllReduceSum.apply(x)


def _sum_in_place(tensors: Iterable[Tensor], finish: Callable[[Tensor], Tensor]) -> None:
    """Replace tensors by `finish` of their sum over processes, one message per dtype."""
    ordered = sorted(tensors, key=lambda tensor: str(tensor.dtype))
    for _, group in groupby(ordered, key=lambda tensor: tensor.dtype):
        members = list(group)
        flat = finish(sum_over_ranks(torch.cat([member.reshape(-1) for member in members])))
        parts = flat.split([member.numel() for member in members])
        for member, part in zip(members, parts, strict=True):
            member.copy_(part.view_as(member))


def reduce_gradients(params: Iterable[nn.Parameter]) -> None:
    """Sum gradients over processes in place, in one message per dtype.

    A parameter without a gradient is passed over; it must lack one on every rank.
    """
    if world().size > 1:
        grads = [param.grad for param in params if param.grad is not None]
        _sum_in_place(grads, lambda flat: flat)


@torch.no_grad()
def average_(tensors: Iterable[Tensor]) -> None:
    """Replace each floating-point tensor by its mean over processes, in place."""
    size = world().size
    if size > 1:
        _sum_in_place(tensors, lambda flat: flat / size)


def _message_device() -> torch.device:
    """Return where the backend wants its tensors."""
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def sum_scalars(values: list[float]) -> list[float]:
    """Return the sums of plain numbers over processes, in float64."""
    if world().size == 1:
        return list(values)
    message = torch.tensor(values, dtype=torch.float64, device=_message_device())
    return sum_over_ranks(message).tolist()


def gather_objects(obj: T) -> list[T]:
    """Return every rank's object, in rank order, on every rank."""
    size = world().size
    if size == 1:
        return [obj]
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, obj)
    return gathered


def broadcast_object(obj: T) -> T:
    """Return rank 0's object on every rank."""
    if world().size == 1:
        return obj
    holder = [obj]
    dist.broadcast_object_list(holder, src=0)
    return holder[0]


def barrier() -> None:
    """Wait until every process has come here."""
    if world().size > 1:
        dist.barrier()
