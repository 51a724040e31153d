"""The machine that a run uses: device, precision, threads, memory and environment."""

import ctypes
import os
import platform
import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal, cast

import torch

from normlab.config.launch import Launch, launch
from normlab.config.machine import instruction_set, settled_device, settled_precision, usable_cores
from normlab.distributed.process_group import Shard, world
from normlab.errors import UserError
from normlab.openmp import TOO_LATE, warn_of_spinning
from normlab.records.code import checkout_state

Precision = Literal["auto", "fp32", "bf16", "fp64"]

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # glibc's M_TRIM_THRESHOLD and so on
_FLOAT32_ERROR = 1e-5  # limit of the test product's relative error: 1.5e-6 in float32, 0.06 in bf16
_RECORDED_PACKAGES = ("normlab", "torch", "numpy", "tokenizers", "sacrebleu", "sacremoses")


def dropout_seed(seed: int, rank: int) -> int:
    """Return the seed of a process's random numbers in training. No two processes share one."""
    return seed * 1_000_003 + rank


@dataclass(frozen=True)
class Runtime:
    """The device and precision of a run, with `auto` resolved.

    Attributes:
        precision: `fp32`, `bf16` (autocast: bf16 products, float32 weights, statistics and
            residual stream) or `fp64` (for golden values).
    """

    device: torch.device
    precision: Precision
    world: Shard
    threads: int | None = None  # None keeps torch's default

    @classmethod
    def start(cls, *, device: str, precision: Precision, threads: int | None) -> "Runtime":
        """Resolve `auto` settings for this process, which may be one of a process group.

        The default number of threads is `OMP_NUM_THREADS` or, if that is not set, this machine's
        physical cores divided by its processes. Raises UserError if torch does not find the GPU.
        """
        process = launch() if world().size > 1 else Launch()
        precision = cast("Precision", settled_precision(precision, device=device))
        device = settled_device(device)
        if device == "cuda":
            if not torch.cuda.is_available():
                raise UserError("device=cuda: torch finds no GPU here; use device=cpu")
            device = f"cuda:{process.local_rank}"
            torch.cuda.set_device(device)
        number = threads or _threads_of_openmp(process.local_size)
        number = number or max(1, _physical_cores() // process.local_size)
        if TOO_LATE and number > 1:
            warn_of_spinning()
        keep_freed_memory()
        runtime = cls(torch.device(device), precision, world(), number)
        runtime.set_torch()
        return runtime

    def set_torch(self) -> None:
        """Set torch's threads and its library for float32 products, for the whole process."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        if self.device.type == "cpu":
            choose_float32_library()

    def autocast(self) -> AbstractContextManager[Any]:
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    @property
    def parameter_dtype(self) -> torch.dtype:
        return torch.float64 if self.precision == "fp64" else torch.float32

    def peak_memory_bytes(self) -> int:
        """Return the run's peak memory: GPU memory on a GPU, otherwise resident memory."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def environment(self) -> dict[str, Any]:
        """Return the commit, the package versions and the machine, for the record."""
        commit, dirty = checkout_state()
        on_gpu = self.device.type == "cuda"
        processor = cpu_capabilities().get("cpu_name") or platform.processor() or platform.machine()
        return {
            "commit": commit,
            "dirty": dirty,
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in _RECORDED_PACKAGES},
            "device": torch.cuda.get_device_name(self.device) if on_gpu else str(processor),
            "device_type": self.device.type,
            "instruction_set": instruction_set(self.device.type),
            "threads": torch.get_num_threads(),
            "precision": self.precision,
            "world_size": self.world.size,
        }


@contextmanager
def torch_settings_kept() -> Iterator[None]:
    """Restore the caller's number of torch threads and float32 precision on exit."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)


def keep_freed_memory() -> None:
    """Ask glibc to keep freed memory for the next step instead of returning it to the system.

    Training allocates and frees the same large tensors at every step. By default the system maps
    and clears their pages every time, which can take longer than the computation.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # the C library is not glibc
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(_TOP_PAD, 64 << 20)


def choose_float32_library() -> None:
    """Let oneDNN multiply float32 matrices if that keeps their precision.

    torch's default on a CPU is MKL, which is half as fast on some processors. The setting that
    allows oneDNN also allows it to round to bf16, and a test product shows whether it does so on
    this processor.
    """
    torch.set_float32_matmul_precision("medium")
    matrix = torch.arange(256.0 * 256).sin().view(256, 256)
    exact = matrix.double() @ matrix.double()
    if (matrix @ matrix - exact).abs().max() > _FLOAT32_ERROR * exact.abs().max():
        torch.set_float32_matmul_precision("highest")


def cpu_capabilities() -> dict[str, Any]:
    """Return torch's description of the processor, or an empty dict if torch has none."""
    return dict(getattr(torch.cpu, "get_capabilities", dict)())


def _threads_of_openmp(local_ranks: int) -> int | None:
    """Return `OMP_NUM_THREADS`, unless it is the 1 that torchrun sets for several processes."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    if not text.isdecimal() or (text == "1" and local_ranks > 1):
        return None
    return int(text) or None


def _physical_cores() -> int:
    usable = usable_cores()
    cores = cpu_capabilities().get("num_physical_cores") or usable or 1
    return max(1, min(int(cores), usable or 1))
