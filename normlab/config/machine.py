"""The machine's GPU and instruction set, and what `device=auto` and `precision=auto` mean on it.

Nothing here imports torch, so that a command can name a run's folder without delay.
"""

import ctypes
import os
import platform
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from normlab.config.launch import launch

MOST_THREADS = 4 * (os.cpu_count() or 1)
"""The maximum number of threads per run and of simultaneous runs. More is treated as a typo."""

_BF16_GENERATION = 8  # compute capability of the first GPUs with bf16 matrix products (Ampere)
# A processor is named after the first entry whose features it has. torch's kernels use these.
_INSTRUCTION_SETS = (
    ("AMX-BF16", {"amx_bf16"}),
    ("AVX512-BF16", {"avx512_bf16"}),
    ("AVX512", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    ("AVX2", {"avx2", "fma"}),
    ("SVE-BF16", {"sve", "bf16"}),
    ("SVE", {"sve"}),
    ("NEON", {"asimd"}),
)


def usable_cores(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the number of cores that this process may use, by its affinity and its CPU quota.

    Containers (`docker --cpus`, a Kubernetes limit) often have a quota set by the kernel's control
    groups, which the affinity does not show. A process with more threads than that is throttled.
    """
    affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min([cores, *_quotas(cgroups)]))


def _quotas(cgroups: Path) -> Iterator[int]:
    """Yield the CPU quota of each control group of this process, in whole cores."""
    try:  # such as 0::/user.slice/job_1; a container sees its own group as the root
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    below = [line.split(":", 2)[2].strip("/") for line in lines if line.count(":") >= 2]
    groups = {cgroups, *(cgroups / up for path in below for up in (path, *Path(path).parents))}
    for group in groups:
        try:  # control groups, version 2
            quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
            yield int(quota) // int(period)
        except (OSError, ValueError):  # none, or "max"
            pass
    files = [cgroups / "cpu" / f"cpu.cfs_{name}_us" for name in ("quota", "period")]
    try:  # version 1
        quota, period = (int(file.read_text(encoding="utf-8")) for file in files)
        if quota > 0:
            yield quota // period
    except (OSError, ValueError):
        pass


def settled_device(device: str) -> str:
    """Return the device, `cpu` or `cuda`. `auto` is `cuda` if this machine has a GPU."""
    if device != "auto":
        return device
    return "cpu" if gpu() is None else "cuda"


def settled_precision(precision: str, *, device: str) -> str:
    """Return the precision. `auto` is bf16 if that is fast on the device, otherwise fp32."""
    if precision != "auto":
        return precision
    if settled_device(device) == "cpu":
        fast = processor_features() & {"avx512_bf16", "amx_bf16"}
    else:
        fast = (gpu() or (0, 0))[0] >= _BF16_GENERATION
    return "bf16" if fast else "fp32"


def instruction_set(device: str) -> str:
    """Return the instruction set of a device: `AVX512-BF16`, `AVX2`, `NEON`, `cuda sm_90`."""
    if settled_device(device) == "cuda":
        capability = gpu()
        return "cuda" if capability is None else f"cuda sm_{capability[0]}{capability[1]}"
    features = processor_features()
    names = (name for name, needed in _INSTRUCTION_SETS if needed <= features)
    return next(names, platform.machine())


@lru_cache(maxsize=1)
def processor_features() -> frozenset[str]:
    """Return the processor's features by their Linux names, such as `avx512_bf16`."""
    if sys.platform == "darwin":
        return frozenset({"asimd"} if platform.machine() == "arm64" else ())
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(match[1].split()) if match else frozenset()


@lru_cache(maxsize=1)
def gpu() -> tuple[int, int] | None:
    """Return the compute capability of the process's GPU, such as (9, 0), or None without a GPU."""
    torch = find_spec("torch")
    if torch is None or not list(Path(str(torch.origin)).parent.glob("lib/*torch_cuda.*")):
        return None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, major, minor = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), launch().local_rank):
        return None
    for part, attribute in ((major, 75), (minor, 76)):  # CUdevice_attribute of the CUDA driver API
        if driver.cuDeviceGetAttribute(ctypes.byref(part), attribute, device):
            return None
    return major.value, minor.value
