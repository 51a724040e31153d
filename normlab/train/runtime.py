"""The machine a run is on: device, precision, threads, memory, environment.

Runs settle what is `auto` in their config, by `normlab.machine`; what is `auto` still, as of a
benchmark, is settled here in the same way. The record says what it became.
"""

import ctypes
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, cast

import torch

from normlab import distributed
from normlab.machine import instruction_set, settled_device, settled_precision
from normlab.records.store import RECORD_FILE

Precision = Literal["auto", "fp32", "bf16", "fp64"]

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # glibc's names of the settings
_FLOAT32_ERROR = 1e-5  # of the product below; in float32 it is 1.5e-6, in bf16 0.06
_CODE = ("normlab", "configs", "pyproject.toml")  # what makes a run, of a checkout
_RECORDED_PACKAGES = ("normlab", "torch", "numpy", "tokenizers", "sacrebleu", "sacremoses")


@dataclass(frozen=True)
class Runtime:
    """A settled device and precision.

    Attributes:
        precision: `fp32`, `bf16` (autocast: bf16 products, float32 weights, statistics and
            residual stream) or `fp64` (for golden values).
    """

    device: torch.device
    precision: Precision
    world: distributed.Shard

    @classmethod
    def start(
        cls, *, device: str, precision: Precision, threads: int | None, rank_timeout: float = 30.0
    ) -> "Runtime":
        """Join the process group if there is one, and settle what is `auto`.

        Threads default to `OMP_NUM_THREADS`, and without it to the physical cores, shared among the
        processes of this machine.
        `rank_timeout` are the minutes that a process of several waits for another one.

        Raises ValueError for a GPU that torch does not find.
        """
        world = distributed.initialize(timeout_minutes=rank_timeout)
        precision = cast("Precision", settled_precision(precision, device=device))
        device = _found_by_torch(device)
        if device == "cuda":
            device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
            torch.cuda.set_device(device)
        local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        given = threads or _threads_of_openmp(local_ranks)
        torch.set_num_threads(given or max(1, _physical_cores() // local_ranks))
        keep_freed_memory()
        if device == "cpu":
            choose_float32_library()
        return cls(torch.device(device), precision, world)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which the model runs."""
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    @property
    def parameter_dtype(self) -> torch.dtype:
        """Return the precision of the weights."""
        return torch.float64 if self.precision == "fp64" else torch.float32

    def peak_memory_bytes(self) -> int:
        """Return the most memory the run has held: of the GPU where there is one, else resident."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def environment(self) -> dict[str, Any]:
        """Return what a record says of the commit, the versions and the machine."""
        commit, dirty = _git_state()
        on_gpu = self.device.type == "cuda"
        return {
            "commit": commit,
            "dirty": dirty,
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in _RECORDED_PACKAGES},
            "device": torch.cuda.get_device_name(self.device) if on_gpu else _processor(),
            "device_type": self.device.type,
            "instruction_set": instruction_set(self.device.type),
            "threads": torch.get_num_threads(),
            "precision": self.precision,
            "world_size": self.world.size,
        }


def keep_freed_memory() -> None:
    """Ask glibc to keep freed memory for the next step instead of giving it back.

    Training allocates and frees the same large tensors at every step; by default each of them is
    mapped anew and its pages cleared, which can take longer than computing their content.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(_M_TOP_PAD, 64 << 20)


def choose_float32_library() -> None:
    """Let oneDNN multiply float32 matrices where that keeps their precision.

    torch's default on a CPU is MKL, which runs some processors at half their speed. Leave to use
    oneDNN is given as leave to round to bf16, which it does on some processors: a product shows.
    """
    torch.set_float32_matmul_precision("medium")
    matrix = torch.arange(256.0 * 256).sin().view(256, 256)
    exact = matrix.double() @ matrix.double()
    if (matrix @ matrix - exact).abs().max() > _FLOAT32_ERROR * exact.abs().max():
        torch.set_float32_matmul_precision("highest")


def cpu_capabilities() -> dict[str, Any]:
    """Return what torch knows of the processor, empty in versions that cannot tell."""
    tell = getattr(torch.cpu, "get_capabilities", None)
    return dict(tell()) if tell is not None else {}


def _threads_of_openmp(local_ranks: int) -> int | None:
    """Return what `OMP_NUM_THREADS` asks for; torchrun sets 1 by itself for several processes."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if not given.isdecimal() or (given == "1" and local_ranks > 1):
        return None
    return int(given) or None


def _physical_cores() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = cpu_capabilities().get("num_physical_cores") or usable or 1
    return max(1, min(int(cores), usable or 1))


def _found_by_torch(device: str) -> str:
    """Return `cpu` or `cuda` for what is asked for, if torch has it."""
    settled, has_gpu = settled_device(device), torch.cuda.is_available()
    if device == "auto" and (settled == "cuda") != has_gpu:
        raise ValueError(
            f"device=auto: torch finds {'a' if has_gpu else 'no'} GPU and the driver says "
            f"otherwise; use device=cpu, or mend the driver (see nvidia-smi)"
        )
    if settled == "cuda" and not has_gpu:
        raise ValueError("device=cuda: torch finds no GPU here; use device=cpu or auto")
    return settled


def _processor() -> str:
    return str(cpu_capabilities().get("cpu_name") or platform.processor() or platform.machine())


def _git_state() -> tuple[str | None, bool | None]:
    """Return commit and whether code or configs differ from it; None outside a checkout.

    Results may: they are published while a study goes on.
    """
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None, None
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        status = ("status", "--porcelain", "--untracked-files=no")
        return commit, bool(_git(folder, *status, "--", *_CODE))
    except (OSError, subprocess.SubprocessError):
        return None, None


def _git(folder: Path, *arguments: str) -> str:
    result = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    return result.stdout.strip()


def check_same_place(folder: Path, code: object, state: Path) -> None:
    """Raise ValueError on all ranks unless all read from one folder and run the same code.

    `state` is the checkpoint that the run would resume from.
    """
    places = {"lock": folder / ".lock", "record": folder / RECORD_FILE, "state": state}
    distributed.check_agreement(
        {f"the {name} in {folder}": _size(path) for name, path in places.items()},
        cure="runs_dir must be a folder that all ranks share",
    )
    distributed.check_agreement(
        {"the code": str(code)}, cure="install the same version for all ranks"
    )


def check_same_data(checksums: object) -> None:
    """Raise ValueError on all ranks unless all have read the same data."""
    digest = hashlib.sha256(json.dumps(checksums, sort_keys=True).encode()).hexdigest()[:10]
    distributed.check_agreement(
        {"the text of data_dir": digest}, cure="give all ranks the same data"
    )


def _size(path: Path) -> str:
    """Describe a file, so that two that differ usually have different descriptions."""
    return f"{path.stat().st_size} bytes long" if path.exists() else "missing"
