"""`normlab doctor`: check this machine, and with --speed measure training on it."""

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from normlab.commands._arguments import command_parser
from normlab.commands._terminal import at_work, print_prose

_EXAMPLES = """examples:
  normlab doctor         one line per check: ok, warn or fail; what to do
  normlab doctor --json  the same as JSON
  normlab doctor --speed norm=bn task=multi30k data_dir=FOLDER
The exit status is 1 when a check fails.
"""
_FREE_GIB = 5.0  # prepared data and the checkpoints of a small sweep
_GAIN = 1.2  # bf16 products that are faster by less do not pay for their rounding
_SIDE = 1024

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One finding; `advice` says what to do, empty where there is nothing to do."""

    name: str
    status: Status
    found: str
    advice: str = ""


def main(argv: list[str]) -> int:
    """Print the checks, or the speed of a run; return 1 when a check fails, else 0."""
    does = "Check this machine: device, precision, data, W&B login."
    parser = command_parser("doctor", does, _EXAMPLES)
    add = parser.add_argument
    add("--json", action="store_true", help="print JSON")
    add("--timeout", type=float, default=3.0, help="seconds for W&B to answer")
    text = "measure tokens per second of training and the share of the machine's peak"
    add("--speed", action="store_true", help=text)
    text = "with --speed: as of `normlab train`"
    add("overrides", nargs="*", metavar="key=value", help=text)
    arguments = parser.parse_intermixed_args(argv)
    if arguments.speed:
        return _speed(arguments.overrides, as_json=arguments.json)
    if arguments.overrides:
        raise ValueError(f"{arguments.overrides[0]}: settings are for --speed")
    checks = run_checks(timeout=arguments.timeout)
    if arguments.json:
        print(json.dumps([dataclasses.asdict(check) for check in checks], indent=1))
    else:
        for check in checks:
            print_prose(f"{check.status:<6}{check.name:<13} {check.found}", hang=20)
            if check.advice:
                print_prose(f"-> {check.advice}", indent=" " * 20)
    return int(any(check.status == "fail" for check in checks))


def _speed(overrides: list[str], *, as_json: bool) -> int:
    from normlab.bench.speed import measure
    from normlab.config.compose import compose, to_dict

    config = to_dict(compose(overrides))
    with at_work("training some steps"):
        found = measure(config)
    if as_json:
        print(json.dumps(found, indent=1))
        return 0
    rate = found["tokens_per_second"]
    print(
        f"{rate['median']:,.0f} {found['unit']} per second of training "
        f"({rate['min']:,.0f} to {rate['max']:,.0f} in {rate['n']} measurements)\n"
        f"{found['share_of_peak']:.0%} of this machine's peak of "
        f"{found['peak_gflop_per_second']:,.0f} GFLOP/s, by its fastest matrix product\n"
        f"{found['device']}, {found['threads']} thread(s), {found['precision']}; "
        f"{found['params']:,} parameters, {found['memory_bytes'] / 2**30:.1f} GiB of memory"
    )
    return 0


def run_checks(*, timeout: float) -> list[Check]:
    """Make all checks; one that breaks is itself a failed check."""
    parts: dict[str, Callable[[], Iterable[Check]]] = {
        "compute": _compute,
        "wandb": lambda: _wandb(timeout),
        "data": _data,
    }
    found: list[Check] = []
    for name, part in parts.items():
        try:
            found += list(part())
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            found.append(Check(name, "fail", said, "fix the installation"))
    return found


def _compute() -> Iterator[Check]:
    import torch

    from normlab.records.pairs import arithmetic_of
    from normlab.train.runtime import Runtime

    runtime = Runtime.start(device="auto", precision="auto", threads=None)
    environment = runtime.environment()
    processor = str(environment["device"])
    if runtime.device.type == "cuda":
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        yield Check("device", "ok", ", ".join(names))
    elif torch.version.cuda is not None:
        found = f"{processor}; torch is built for CUDA {torch.version.cuda} but finds no GPU"
        yield Check("device", "warn", found, "run nvidia-smi to see why, or use the processor")
    else:
        threads = torch.get_num_threads()
        yield Check("device", "ok", f"{processor}, {threads} threads for a run")
    _, precision, instructions = arithmetic_of(environment)
    device = str(runtime.device)
    fp32, bf16 = product_speed(device, "float32"), product_speed(device, "bfloat16")
    yield judge_precision(precision, instructions, fp32=fp32, bf16=bf16)


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


def judge_precision(settled: str, instructions: str, *, fp32: float, bf16: float) -> Check:
    """Compare what `precision=auto` becomes here with measured speeds of products."""
    gain = bf16 / fp32
    found = (
        f"precision=auto is {settled} ({instructions}); products: fp32 {fp32 / 1e9:,.0f} "
        f"GFLOP/s, bf16 {bf16 / 1e9:,.0f} ({gain:.1f}x)"
    )
    if settled == "bf16" and gain < _GAIN:
        return Check("precision", "warn", found, "bf16 gains nothing here: precision=fp32")
    if settled == "fp32" and gain >= _GAIN:
        return Check("precision", "warn", found, "try precision=bf16")
    return Check("precision", "ok", found)


def _wandb(timeout: float) -> Iterator[Check]:
    from normlab.train.sinks.wandb_server import find_login, reach, resolve_mode

    login = find_login()
    mode = resolve_mode("auto", login)
    if mode != "online":
        found = f"mode auto is {mode}" + ("" if login.source else ": no login")
        yield Check("wandb", "ok", found, "" if login.source else "to send runs: wandb login")
        return
    try:
        reach(login.host, timeout)
    except OSError as error:
        found = f"login in {login.source}; {login.host}: {error}"
        yield Check("wandb", "warn", found, "runs are kept offline; wandb sync sends them later")
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
    """Check that a folder, which need not exist yet, can be written and has room."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        return Check(name, "fail", f"{folder} cannot be written", advice)
    free = shutil.disk_usage(existing).free / 2**30
    found = f"{folder}, {free:,.1f} GiB free"
    return Check(name, "ok", found) if free >= _FREE_GIB else Check(name, "warn", found, advice)
