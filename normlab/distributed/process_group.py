"""Communication between processes. Only this module imports `torch.distributed`.

Every function also works in a single process. The functions sum and never average: the caller
divides by a summed count, which is correct even if shards differ in size.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from threading import Timer
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from normlab.config.launch import Launch, launch
from normlab.errors import UserError

T = TypeVar("T")
_RENDEZVOUS_MINUTES = 3.0  # processes started by torchrun connect within seconds
_NOTICE_SECONDS = 5.0
_TRANSPORTS = ("gloo", "NCCL", "Connection closed", "Timed out")


class Shard(NamedTuple):
    """A process's share of the work, which is divided into `size` parts, one per rank."""

    rank: int
    size: int


def initialize(*, timeout_minutes: float = 30.0) -> Shard:
    """Join the process group that `torchrun` describes in the environment, if there is one.

    Uses gloo on the CPU and, if CUDA is available, NCCL on GPUs. A rank waits up to
    `timeout_minutes` for the others, and at the start at most 3 minutes. Raises UserError if some
    ranks do not connect.
    """
    process = launch()
    if process.size > 1 and not dist.is_initialized():
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(process.local_rank)
        store = _rendezvous(process, min(timeout_minutes, _RENDEZVOUS_MINUTES))
        timeout = timedelta(minutes=timeout_minutes)
        store.set_timeout(timeout)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo",
            store=store,
            rank=process.rank,
            world_size=process.size,
            timeout=timeout,
        )
    return world()


def _rendezvous(process: Launch, minutes: float) -> Any:
    """Wait for all processes and return their common store; raise UserError if one is missing."""
    variables = f"{process.variables} in the environment"
    waiting = f"{variables}: waiting up to {minutes:g} min for all {process.size} processes"
    notice = Timer(_NOTICE_SECONDS, print, (waiting,), {"file": sys.stderr, "flush": True})
    notice.start()
    try:
        timeout = timedelta(minutes=minutes)
        store, _, _ = next(rendezvous("env://", timeout=timeout))
        names = [f"normlab/{rank}" for rank in range(process.size)]
        store.set(names[process.rank], "here")
        store.wait(names, timeout)
    except (ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0].partition(". This")[0]
        raise UserError(
            f"{variables}, but the {process.size} processes cannot connect ({reason:.200}); start "
            "all of them with torchrun, or unset RANK and WORLD_SIZE to train in one process"
        ) from error
    finally:
        notice.cancel()
    return store


def shutdown() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def lost_ranks_reported() -> Iterator[None]:
    """Turn a transport error caused by a lost rank into a one-line UserError."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not any(t in str(error) for t in _TRANSPORTS):
            raise
        rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        raise UserError(
            f"rank {rank} of {size}: another rank has ended or is not responding; run the same "
            "command again to resume from the last checkpoint"
        ) from error


def world() -> Shard:
    """Return this process's rank and the number of processes, (0, 1) without a process group."""
    if dist.is_available() and dist.is_initialized():
        return Shard(dist.get_rank(), dist.get_world_size())
    return Shard(0, 1)


def is_main() -> bool:
    """Return whether this process prints and writes files, which only rank 0 does."""
    return world().rank == 0


def sum_over_ranks(x: Tensor) -> Tensor:
    """Return the sum of `x` over processes, with a gradient; for one process, return `x` itself."""
    if world().size == 1:
        return x
    from torch.distributed.nn.functional import all_reduce  # absent in some builds of torch

    return all_reduce(x)


@torch.no_grad()
def sum_gradients(params: Iterable[nn.Parameter]) -> None:
    """Sum gradients over processes in place. All ranks need gradients of the same parameters."""
    grads = [param.grad for param in params if param.grad is not None]
    if world().size > 1 and grads:
        flat = torch.cat([grad.reshape(-1) for grad in grads])  # one call for all parameters
        dist.all_reduce(flat)
        for grad, part in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
            grad.copy_(part.view_as(grad))


def sum_scalars(values: list[float]) -> list[float]:
    """Sum Python numbers across processes, in float64, without waiting for a GPU."""
    if world().size == 1:
        return list(values)
    return sum_over_ranks(torch.tensor(values, dtype=torch.float64)).tolist()


def gather_objects(obj: T) -> list[T]:
    """Return every rank's object, in rank order, on every rank."""
    gathered: list[Any] = [obj] * world().size
    if len(gathered) > 1:
        dist.all_gather_object(gathered, obj)
    return gathered


def check_agreement(local: Mapping[str, object]) -> None:
    """Raise UserError on every rank if any two ranks disagree on a value."""
    ranks = gather_objects({name: str(value) for name, value in local.items()})
    for rank, other in enumerate(ranks):
        for name, value in other.items():
            if value != ranks[0][name]:
                raise UserError(
                    f"{name}: {ranks[0][name]:.200} on rank 0, and {value:.200} on rank {rank}, "
                    "but all ranks need the same code, the same data and a shared runs_dir"
                )
