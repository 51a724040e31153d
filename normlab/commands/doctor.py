"""`normlab doctor`: what this machine has for normlab, what is missing, and what to do about it."""

import argparse
import dataclasses
import json
import os
import re
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from normlab.commands._help import HelpFormatter
from normlab.records.text import printable

HELP = "check this machine: device, precision, W&B login, data, network"

_EXAMPLES = """examples:
  normlab doctor              a line for each check: ok, warn or fail, and what to do
  normlab doctor --json       the same for programs
The exit status is 1 when a check fails.
"""
_FREE_GIB = 5.0  # prepared data and the checkpoints of a small sweep
_GAIN = 1.2  # bf16 products that are faster by less do not pay for their rounding
_SIDE = 1024
_WIDTH = 80

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One finding; `advice` says what to do, empty where there is nothing to do."""

    name: str
    status: Status
    found: str
    advice: str = ""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab doctor",
        description="Check this machine: device, precision, W&B login, data, network.",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument("--json", action="store_true", help="print JSON")
    result.add_argument("--timeout", type=float, default=3.0, help="seconds a server is given")
    return result


def main(argv: list[str]) -> int:
    """Print the checks; return 1 when one fails, else 0."""
    arguments = parser().parse_args(argv)
    checks = run_checks(timeout=arguments.timeout)
    if arguments.json:
        print(json.dumps([dataclasses.asdict(check) for check in checks], indent=1))
    else:
        print("\n".join(line for check in checks for line in lines(check)))
    return int(any(check.status == "fail" for check in checks))


def lines(check: Check) -> list[str]:
    """Return a check as lines of at most 80 columns: status, name, what was found, what to do."""
    indent = " " * 20
    head = f"{check.status:<6}{check.name:<13} "
    texts = [(head, check.found)] + ([(f"{indent}-> ", check.advice)] if check.advice else [])
    return [
        line
        for first, text in texts
        for line in textwrap.wrap(
            printable(text),
            _WIDTH,
            initial_indent=first,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def run_checks(*, timeout: float) -> list[Check]:
    """Make all checks; one that breaks is itself a failed check."""
    hub = _Asked("hub", lambda: _hub(timeout), timeout)
    parts: dict[str, Callable[[], Iterable[Check]]] = {
        "software": _software,
        "compute": _compute,
        "wandb": lambda: _wandb(timeout),
        "data": _data,
        "hub": hub.answer,
    }
    return [check for name, part in parts.items() for check in _made(name, part)]


def _made(name: str, part: Callable[[], Iterable[Check]]) -> list[Check]:
    try:
        return list(part())
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        return [Check(name, "fail", message, "mend the installation")]


class _Asked:
    """A check that waits for a server while others are made; finding its name may take minutes."""

    def __init__(self, name: str, part: Callable[[], Iterable[Check]], timeout: float) -> None:
        self._name, self._found = name, list[Check]()
        self._until = time.monotonic() + timeout
        self._thread = threading.Thread(
            target=lambda: self._found.extend(_made(name, part)), daemon=True
        )
        self._thread.start()

    def answer(self) -> list[Check]:
        """Return what was found; a warning where nothing has come in time."""
        self._thread.join(max(0.0, self._until - time.monotonic()))
        if self._found:
            return self._found
        return [Check(self._name, "warn", "no answer in time", "more time: --timeout 30")]


def _software() -> Iterator[Check]:
    yield Check("python", "ok", ".".join(map(str, sys.version_info[:3])))
    missing = list(_missing_packages())
    if missing:
        yield Check("packages", "fail", f"missing: {', '.join(missing)}", "pip install normlab")
    else:
        yield Check("packages", "ok", f"normlab {_version('normlab')}, all it needs is installed")


def _missing_packages() -> Iterator[str]:
    for requirement in metadata.requires("normlab") or []:
        name = re.split(r"[ ;<>=!~\[]", requirement, maxsplit=1)[0]
        if "extra ==" not in requirement and _version(name) is None:
            yield name


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _compute() -> Iterator[Check]:
    import torch

    from normlab.records.arithmetic import arithmetic_of
    from normlab.train.runtime import Runtime

    yield Check("torch", "ok", torch.__version__)
    runtime = Runtime.start(device="auto", precision="auto", threads=None)
    environment = runtime.environment()
    processor = str(environment["device"])
    if runtime.device.type == "cuda":
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        yield Check("device", "ok", ", ".join(names))
    elif torch.version.cuda is not None:
        yield Check(
            "device",
            "warn",
            f"{processor}; torch is built for CUDA {torch.version.cuda} but finds no GPU",
            "look at nvidia-smi, or go on",
        )
    else:
        yield Check("device", "ok", processor)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Check("threads", "ok", f"{torch.get_num_threads()} for a run, of {usable} cores")
    yield Check("arithmetic", "ok", judge_arithmetic(arithmetic_of(environment)))
    device = str(runtime.device)
    fp32, bf16 = product_speed(device, "float32"), product_speed(device, "bfloat16")
    yield judge_precision(runtime.precision, fp32=fp32, bf16=bf16)


def judge_arithmetic(settled: tuple[str, ...]) -> str:
    """Say what `auto` becomes here, and where else a run that is begun here can go on."""
    device, precision, instructions = settled
    return (
        f"auto: device={device} precision={precision}; instruction set {instructions}: runs begun "
        f"here go on, and pair, where these are the same"
    )


def product_speed(device: str, dtype: Literal["float32", "bfloat16"]) -> float:
    """Measure the best speed of five square matrix products, in floating-point operations/s."""
    import torch

    a = torch.ones(_SIDE, _SIDE, device=device, dtype=getattr(torch, dtype))
    best = float("inf")
    for _ in range(6):  # the first warms up and is never the best
        start = time.perf_counter()
        float((a @ a)[0, 0])  # waits for a GPU
        best = min(best, time.perf_counter() - start)
    return 2 * _SIDE**3 / best


def judge_precision(settled: str, *, fp32: float, bf16: float) -> Check:
    """Compare what `precision=auto` becomes here with measured speeds of products."""
    gain = bf16 / fp32
    found = (
        f"precision=auto is {settled}; products: fp32 {fp32 / 1e9:,.0f} GFLOP/s, "
        f"bf16 {bf16 / 1e9:,.0f} ({gain:.1f}x)"
    )
    if settled == "bf16" and gain < _GAIN:
        return Check("precision", "warn", found, "bf16 gains nothing here: precision=fp32")
    if settled == "fp32" and gain >= _GAIN:
        return Check("precision", "warn", found, "try precision=bf16")
    return Check("precision", "ok", found)


def _wandb(timeout: float) -> Iterator[Check]:
    from normlab.train.sinks.wandb_login import find_login, reach, resolve_mode

    login = find_login()
    mode = resolve_mode("auto", login)
    if mode != "online":
        found = f"mode auto is {mode}" + ("" if login.source else ": no login")
        yield Check("wandb", "ok", found, "" if login.source else "to send runs: wandb login")
        return
    try:
        reach(login.host, timeout)
    except OSError as error:
        yield Check(
            "wandb",
            "warn",
            f"login in {login.source}; {login.host}: {error}",
            "runs are kept offline; normlab wandb sync sends them later",
        )
    else:
        yield Check("wandb", "ok", f"online at {login.host}, login in {login.source}")


def _data() -> Iterator[Check]:
    from normlab.data.cache import cache_root

    folder = os.environ.get("NORMLAB_DATA")
    if not folder:
        yield Check("NORMLAB_DATA", "ok", "not set: tests on real data are skipped")
    elif Path(folder).is_dir():
        yield Check("NORMLAB_DATA", "ok", folder)
    else:
        yield Check("NORMLAB_DATA", "warn", f"{folder} is no folder", "set it to one, or unset it")
    yield check_folder("cache", cache_root(), "set NORMLAB_CACHE to a folder with room")
    yield check_folder("runs", Path("runs").absolute(), "set runs_dir=PATH to a folder with room")


def check_folder(name: str, folder: Path, advice: str) -> Check:
    """Look whether a folder, which need not exist yet, can be written and has room."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        return Check(name, "fail", f"{folder} cannot be written", advice)
    free = shutil.disk_usage(existing).free / 2**30
    found = f"{folder}, {free:,.1f} GiB free"
    return Check(name, "ok", found) if free >= _FREE_GIB else Check(name, "warn", found, advice)


def _hub(timeout: float) -> Iterator[Check]:
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    from normlab.data.archive import is_offline

    host = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    advice = "task=toy needs no network; else give files by data_dir=PATH"
    if is_offline():
        yield Check("hub", "warn", "HF_HUB_OFFLINE is set", advice)
        return
    try:
        with urlopen(Request(host, method="HEAD"), timeout=timeout):
            yield Check("hub", "ok", f"{host} answers")
    except HTTPError as error:
        yield Check("hub", "ok", f"{host} answers ({error.code})")
    except (OSError, ValueError) as error:
        yield Check("hub", "warn", f"{host}: {error}", advice)
