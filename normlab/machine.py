"""What this machine computes with: its GPU, its instruction set, what `precision=auto` becomes.

Read without torch, so that a list or a plan names a run's folder at once; it agrees with what torch
decides. The config is settled by it before anything is hashed.
"""

import contextlib
import ctypes
import os
import platform
import re
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_CONTAINER = Path("/sys/fs/cgroup/memory.max")
_DRIVER = "libcuda.so.1"
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CUdevice_attribute of the CUDA driver API
_BF16_GENERATION = 8  # compute capability of the first GPUs with bf16 products (Ampere)
_FAST_AT_BF16 = frozenset({"avx512_bf16", "amx_bf16"})
_AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})  # what torch's kernels use
# The best that a processor has names it.
_INSTRUCTION_SETS = (
    ("AMX-BF16", frozenset({"amx_bf16"})),
    ("AVX512-BF16", frozenset({"avx512_bf16"})),
    ("AVX512", _AVX512),
    ("AVX2", frozenset({"avx2", "fma"})),
    ("SVE-BF16", frozenset({"sve", "bf16"})),
    ("SVE", frozenset({"sve"})),
    ("NEON", frozenset({"asimd"})),
)
# Variables by which the libraries below torch leave instructions out, or round otherwise.
_LIMITS = (
    *("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE"),
    *("MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"),
)

MOST_THREADS = 4 * (os.cpu_count() or 1)
"""Threads of a run, and runs at a time, that are more than a mistake of typing."""

Gpu = tuple[int, int]
"""Compute capability of a GPU, such as (9, 0)."""


def settled_device(device: str) -> str:
    """Return `cpu` or `cuda`: what `auto` becomes here, or what is asked for."""
    if device != "auto":
        return device
    return "cpu" if gpu() is None else "cuda"


def settled_precision(precision: str, *, device: str) -> str:
    """Return what `auto` becomes on a device, bf16 where that is fast; others stay as they are."""
    if precision != "auto":
        return precision
    if settled_device(device) == "cpu":
        fast = bool(processor_features() & _FAST_AT_BF16)
    else:
        found = gpu()
        fast = found is not None and found[0] >= _BF16_GENERATION
    return "bf16" if fast else "fp32"


def instruction_set(device: str) -> str:
    """Name the kernels that a device runs: `AVX512-BF16`, `AVX2`, `NEON`, `cuda sm_90`.

    Variables that keep a library from some of them are named too.
    """
    if settled_device(device) == "cuda":
        found = gpu()
        return "cuda" if found is None else f"cuda sm_{found[0]}{found[1]}"
    features = processor_features()
    names = (name for name, needed in _INSTRUCTION_SETS if needed <= features)
    limits = [f"{name}={os.environ[name]}" for name in _LIMITS if os.environ.get(name)]
    return " ".join([next(names, platform.machine()), *limits])


def memory_bytes() -> int | None:
    """Return the memory of this machine with its swap, or of its container; None if unknown."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    with contextlib.suppress(OSError, ValueError):
        swap = re.search(r"^SwapTotal:\s*(\d+) kB", _MEMINFO.read_text("ascii"), re.MULTILINE)
        found += 1024 * int(swap[1]) if swap else 0
    with contextlib.suppress(OSError, ValueError):  # without a limit it says "max"
        found = min(found, int(_CONTAINER.read_text("ascii")))
    return found


@lru_cache(maxsize=1)
def processor_features() -> frozenset[str]:
    """Return the features of the processor as Linux names them, such as `avx512_bf16`."""
    if sys.platform == "darwin":
        return _features_on_macos()
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def _features_on_macos() -> frozenset[str]:
    if platform.machine() == "arm64":
        return frozenset({"asimd"})
    known = {"hw.optional.avx2_0": "avx2", "hw.optional.fma": "fma"}
    known |= {f"hw.optional.{name}": name for name in _AVX512}
    return frozenset(feature for name, feature in known.items() if _sysctl(name))


def _sysctl(name: str) -> bool:
    """Tell whether macOS says 1 of a name."""
    value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
    call = ctypes.CDLL(None).sysctlbyname
    failed = call(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    return not failed and bool(value.value)


@lru_cache(maxsize=1)
def gpu() -> Gpu | None:
    """Return the compute capability of the GPU that torch would use; None where it has none.

    The driver is asked where torch is built for CUDA; torch itself where it is built for ROCm.
    """
    builds = _torch_builds()
    if "hip" in builds:
        return _gpu_of_torch()
    return _gpu_of_driver() if "cuda" in builds else None


def _torch_builds() -> set[str]:
    """Return which of `cuda` and `hip` the installed torch is built for, without importing it."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return set()
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    found = re.findall(r"^(cuda|hip)\b[^=\n]*= *(.+?) *$", text, re.MULTILINE)
    return {name for name, value in found if value != "None"}


def _gpu_of_driver() -> Gpu | None:
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return None
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None
    device = ctypes.c_int(0)
    if driver.cuDeviceGet(ctypes.byref(device), int(os.environ.get("LOCAL_RANK", "0"))):
        return None
    found = [ctypes.c_int(0), ctypes.c_int(0)]
    for part, attribute in zip(found, (_CAPABILITY_MAJOR, _CAPABILITY_MINOR), strict=True):
        if driver.cuDeviceGetAttribute(ctypes.byref(part), attribute, device):
            return None
    return found[0].value, found[1].value


def _gpu_of_torch() -> Gpu | None:
    import torch

    return torch.cuda.get_device_capability() if torch.cuda.is_available() else None
