"""Decides how processes work together: the only importer of `torch.distributed`.

Every function is right in a single process too, where it does nothing or returns its argument,
so no caller asks whether there is more than one. Sums over processes are sums of *sums*: the
caller divides by a count that was summed the same way, which is right when shards differ in size.

A rank that is lost, killed or out of reach, ends the others too: each says so and exits, at the
latest after the time that `initialize` was given. Starting the same command again goes on.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor, nn

T = TypeVar("T")

_BUCKET_BYTES = 8 << 20  # of gradients in one message
_LOOK = 0.5  # seconds between two looks at whether the launcher is there
_TRANSPORTS = ("gloo", "NCCL", "Connection closed", "Timed out")


class RankLostError(ValueError):
    """Another rank has ended, or has not answered in time; nothing can be computed without it."""


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


def initialize(*, timeout_minutes: float = 30.0) -> World:
    """Join the process group that `torchrun` describes in the environment, if there is one.

    Takes NCCL where CUDA is present, else gloo. A rank waits `timeout_minutes` for another one,
    here and in all that follows. Calling it again changes nothing.

    Raises RankLostError where the others do not come.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ and not dist.is_initialized():
        _stop_with_the_launcher()
        with _answered():
            dist.init_process_group(
                "nccl" if cuda else "gloo", timeout=timedelta(minutes=timeout_minutes)
            )
    shard = world()
    return World(shard.rank, shard.size, local_rank, device)


@cache
def _stop_with_the_launcher() -> None:
    """Be told to stop, as by the user, when `torchrun` itself is killed.

    Else the ranks would go on alone and hold the lock of their run. Linux could tell (PDEATHSIG),
    but does so once for each thread of the launcher, and a second signal ends a run unsaved.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(_LOOK)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _answered() -> Iterator[None]:
    """Turn what the transport says of a rank that does not answer into one line."""
    try:
        yield
    except RuntimeError as error:
        said = str(error)
        if not isinstance(error, dist.DistError) and not any(t in said for t in _TRANSPORTS):
            raise
        rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        # gloo begins with the line of its source in brackets, and ends with advice.
        reason = said.partition("\n")[0].partition("] ")[2].partition(". ")[0] or said
        raise RankLostError(
            f"rank {rank} of {size}: another rank has ended or does not answer ({reason:.100}); "
            "its own message, if it left one, says why. Start the same command again: it goes on "
            "from the last checkpoint"
        ) from error


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
    with _answered():
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


@dataclass(frozen=True)
class _Sum:
    """Tensors of one dtype that are being replaced by their sums over processes, in one message."""

    members: Sequence[Tensor]
    flat: Tensor
    work: dist.Work | None

    @classmethod
    def begin(cls, members: Sequence[Tensor]) -> _Sum:
        """Send the tensors; a single one is summed where it lies."""
        alone = len(members) == 1 and members[0].is_contiguous()
        flat = members[0] if alone else torch.cat([member.reshape(-1) for member in members])
        with _answered():
            return cls(members, flat, dist.all_reduce(flat, async_op=True))

    def finish(self) -> None:
        """Wait for the sums and put them in place."""
        if self.work is not None:
            with _answered():
                self.work.wait()
        if self.flat is not self.members[0]:
            parts = self.flat.split([member.numel() for member in self.members])
            for member, part in zip(self.members, parts, strict=True):
                member.copy_(part.view_as(member))


class _GradientSums:
    """The messages of one backward pass; all ranks send them in the same order."""

    def __init__(self, params: Sequence[nn.Parameter]):
        self._buckets = _buckets(params)
        self._missing = [len(bucket) for bucket in self._buckets]
        self._number: dict[Tensor, int] = {
            param: number for number, bucket in enumerate(self._buckets) for param in bucket
        }
        self._next = 0
        self._sums: list[_Sum] = []

    def arrived(self, param: Tensor) -> None:
        """Count the gradient of a parameter, and send what is complete."""
        self._missing[self._number[param]] -= 1
        while self._next < len(self._buckets) and self._missing[self._next] == 0:
            self._send()

    def finish(self) -> None:
        """Send what is left, and put all sums in place."""
        while self._next < len(self._buckets):
            self._send()
        for each in self._sums:
            each.finish()

    def _send(self) -> None:
        grads = [param.grad for param in self._buckets[self._next] if param.grad is not None]
        self._next += 1
        if grads:
            self._sums.append(_Sum.begin(grads))


@contextmanager
def summed_gradients(params: Sequence[nn.Parameter]) -> Iterator[None]:
    """Sum gradients over processes in place while the backward pass inside makes the others.

    Parameters share messages in the reverse of their order, which is about the order in which their
    gradients are made; a message leaves when its gradients and those of all before it are there.
    A parameter without a gradient is passed over; it must lack one on every rank.
    """
    if world().size == 1:
        yield
        return
    sums = _GradientSums(params)
    hooks = [param.register_post_accumulate_grad_hook(sums.arrived) for param in params]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    sums.finish()


def _buckets(params: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Cut the parameters, the last one first, into messages of one dtype."""
    buckets: list[list[nn.Parameter]] = []
    room = 0
    for param in reversed(params):
        if room <= 0 or param.dtype != buckets[-1][0].dtype:
            buckets.append([])
            room = _BUCKET_BYTES
        buckets[-1].append(param)
        room -= param.nbytes
    return buckets


@torch.no_grad()
def average_(tensors: Iterable[Tensor]) -> None:
    """Replace each floating-point tensor by its mean over processes, in place."""
    size = world().size
    if size == 1:
        return
    ordered = sorted(tensors, key=lambda tensor: str(tensor.dtype))
    for _, group in groupby(ordered, key=lambda tensor: tensor.dtype):
        members = list(group)
        _Sum.begin(members).finish()
        for member in members:
            member.div_(size)


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
    with _answered():
        dist.all_gather_object(gathered, obj)
    return gathered


def broadcast_object(obj: T) -> T:
    """Return rank 0's object on every rank."""
    if world().size == 1:
        return obj
    holder = [obj]
    with _answered():
        dist.broadcast_object_list(holder, src=0)
    return holder[0]


def barrier() -> None:
    """Wait until every process has come here."""
    if world().size > 1:
        with _answered():
            dist.barrier()


def check_agreement(seen: Mapping[str, object], *, cure: str) -> None:
    """Raise ValueError on every rank, with `cure`, where ranks see different values of a name.

    Values are compared by what they print.
    """
    shown = [{name: str(value) for name, value in seen.items()} for seen in gather_objects(seen)]
    for rank, other in enumerate(shown):
        for name, value in other.items():
            if value != shown[0][name]:
                raise ValueError(
                    f"{name} is {shown[0][name]} on rank 0 and {value} on rank {rank}: {cure}"
                )
