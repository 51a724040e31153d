"""What this machine computes with: its GPU, its instruction set, what `precision=auto` becomes.

Read without torch, so that a command can name a run's folder at once.
"""

import ctypes
import os
import platform
import re
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_DRIVER = "libcuda.so.1"
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CUdevice_attribute of the CUDA driver API
_BF16_GENERATION = 8  # compute capability of the first GPUs with bf16 products (Ampere)
_FAST_AT_BF16 = frozenset({"avx512_bf16", "amx_bf16"})
# The first that a processor has names it; these are the features that torch's kernels use.
_INSTRUCTION_SETS = (
    ("AMX-BF16", {"amx_bf16"}),
    ("AVX512-BF16", {"avx512_bf16"}),
    ("AVX512", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    ("AVX2", {"avx2", "fma"}),
    ("SVE-BF16", {"sve", "bf16"}),
    ("SVE", {"sve"}),
    ("NEON", {"asimd"}),
)
# Variables by which the libraries below torch leave instructions out, or round otherwise.
_LIMITS = (
    *("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE"),
    *("MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"),
)

MOST_THREADS = 4 * (os.cpu_count() or 1)
"""The most threads of a run, and the most runs at a time; more is a typing mistake."""

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
        return "bf16" if processor_features() & _FAST_AT_BF16 else "fp32"
    return "bf16" if (gpu() or (0, 0))[0] >= _BF16_GENERATION else "fp32"


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


@lru_cache(maxsize=1)
def processor_features() -> frozenset[str]:
    """Return the features of the processor as Linux names them, such as `avx512_bf16`."""
    if sys.platform == "darwin":
        return frozenset({"asimd"} if platform.machine() == "arm64" else ())
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


@lru_cache(maxsize=1)
def gpu() -> Gpu | None:
    """Return the compute capability of the NVIDIA GPU that torch would use; None without one."""
    if not _torch_has_cuda():
        return None
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return None
    device = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGet(
        ctypes.byref(device), int(os.environ.get("LOCAL_RANK", "0"))
    ):
        return None
    found = [ctypes.c_int(0), ctypes.c_int(0)]
    for part, attribute in zip(found, (_CAPABILITY_MAJOR, _CAPABILITY_MINOR), strict=True):
        if driver.cuDeviceGetAttribute(ctypes.byref(part), attribute, device):
            return None
    return found[0].value, found[1].value


def _torch_has_cuda() -> bool:
    """Tell whether the installed torch is built for CUDA, without importing it."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    found = re.search(r"^cuda\b[^=\n]*= *(.+?) *$", text, re.MULTILINE)
    return found is not None and found[1] != "None"
