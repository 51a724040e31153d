"""Speed of training: single steps of a run, timed, and the machine's own peak."""

import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from os import sysconf
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from normlab.tasks.base import Task
from normlab.tasks.images import Classification
from normlab.train.build import build_model, build_task, build_trainer, make_fast
from normlab.train.checkpoint import Checkpoints
from normlab.train.loop import Trainer
from normlab.train.runtime import Runtime

_NEVER = 1 << 62
_ROWS = 2048  # of the matrix products that measure the machine's peak
_WARM_UP, _MEASUREMENTS, _STEPS = 3, 5, 4  # of `measure`
_ATTEMPT = 32  # products between two readings of the clock on a GPU, which runs behind


@dataclass(frozen=True)
class Span:
    """Seconds of wall time, and seconds of processor time (see `Clock`)."""

    wall: float
    busy: float


class Clock:
    """A stopwatch for work on one device.

    On a CPU with one thread `busy` is the processor time of this process, which leaves out what
    other programs took. Threads that wait for each other spin, and a GPU works outside the
    process: there `busy` is wall time.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self.counts_processor_time = device.type == "cpu" and torch.get_num_threads() == 1
        self.restart()

    def restart(self) -> None:
        """Start at zero, with the device idle."""
        self._wait()
        self._wall, self._busy = time.perf_counter(), time.process_time()

    def read(self) -> Span:
        """Return the time since `restart`, once the device is done."""
        self._wait()
        wall = time.perf_counter() - self._wall
        busy = time.process_time() - self._busy
        return Span(wall, busy if self.counts_processor_time else wall)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


@dataclass(frozen=True)
class Steps:
    """A run of which single training steps are taken; nothing is written.

    `first_step_seconds` is the age of the process after the first step, None where the system does
    not tell it.
    """

    name: str
    config: Mapping[str, Any]
    trainer: Trainer
    first_step_seconds: float | None

    @property
    def unit(self) -> str:
        """What its speed is counted in."""
        return "images" if isinstance(self.trainer.task, Classification) else "tokens"

    def step(self) -> None:
        """Take one step."""
        self.trainer.step()

    def take(self, steps: int, clock: Clock) -> tuple[Span, int]:
        """Take steps; return their time and the target tokens (or images) of all processes."""
        before = self.trainer.progress.tokens
        clock.restart()
        for _ in range(steps):
            self.step()
        return clock.read(), self.trainer.progress.tokens - before


def start(
    name: str, config: Mapping[str, Any], runtime: Runtime, *, task: Task | None = None
) -> Steps:
    """Build a run on prepared data and take its first step; `task` replaces that of the config."""
    age = _process_age()
    task = build_task(config) if task is None else task
    task.describe()  # prepares the data, which is not to be measured
    clock = Clock(runtime.device)
    trainer = _trainer(config, task, runtime)
    trainer.start()
    trainer.step()
    took = clock.read().wall
    return Steps(name, config, trainer, None if age is None else age + took)


def _trainer(config: Mapping[str, Any], task: Task, runtime: Runtime) -> Trainer:
    torch.manual_seed(config["seed"])
    model = build_model(config, task).to(runtime.device, runtime.parameter_dtype)
    if config["observe"]["fast"]:
        make_fast(model, task, runtime.device)
    endless = {
        **config,
        "budget": {"steps": _NEVER},
        "divergence_factor": float("inf"),
        "validate": {**config["validate"], "every": _NEVER},
        "observe": {**config["observe"], "checkpoint_every": _NEVER, "targets": {}},
    }
    checkpoints = Checkpoints(Path(gettempdir()), writes=False)
    return build_trainer(endless, task, model, runtime, checkpoints=checkpoints)


def flop_per_token(trainer: Trainer, runtime: Runtime) -> float:
    """Return the floating-point operations of training on one target token (or image).

    torch counts those of a forward pass of a few validation examples; forward and backward are
    three times as many.
    """
    task, model = trainer.task, trainer.model
    batch = task.batch("valid", range(min(8, len(task.lengths("valid"))))).to(runtime.device)
    with torch.no_grad(), runtime.autocast(), FlopCounterMode(display=False) as counter:
        task.losses(model.eval(), batch)
    model.train()
    return 3 * counter.get_total_flops() / batch.tokens


class Peak:
    """The fastest matrix product of a model's weights, in FLOP/s, in the precision of the run."""

    def __init__(self, model: nn.Module, runtime: Runtime):
        bf16 = runtime.precision == "bf16"
        how: dict[str, Any] = {"device": runtime.device}
        how["dtype"] = torch.bfloat16 if bf16 else runtime.parameter_dtype
        weights = [weight for weight in model.parameters() if weight.dim() >= 2]
        sizes = {(weight[0].numel(), len(weight)) for weight in weights}
        self._clock = Clock(runtime.device)
        self._batch = _ATTEMPT if runtime.device.type == "cuda" else 1
        self._work = [
            (torch.randn(_ROWS, inner, **how), torch.randn(columns, inner, **how))
            for inner, columns in sorted(sizes)
        ]

    @torch.no_grad()
    def measure(self, *, seconds: float = 0.05) -> float:
        """Time every product for some seconds; return the rate of the best."""
        return max(self._rate(left, right, seconds) for left, right in self._work)

    def _rate(self, left: torch.Tensor, right: torch.Tensor, seconds: float) -> float:
        torch.nn.functional.linear(left, right)
        self._clock.restart()
        count, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(self._batch):
                torch.nn.functional.linear(left, right)
            count += self._batch
        return count * 2 * left.numel() * len(right) / self._clock.read().busy


def measure(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return tokens (or images) per second of training a run, and its share of the peak."""
    runtime = Runtime.start(
        device=config["device"],
        precision=config["precision"],
        threads=config["observe"]["threads"],
    )
    steps = start("run", config, runtime)
    clock, peak = Clock(runtime.device), Peak(steps.trainer.model, runtime)
    steps.take(_WARM_UP, clock)
    rates, peaks = [], []
    for _ in range(_MEASUREMENTS):
        peaks.append(peak.measure())
        span, tokens = steps.take(_STEPS, clock)
        rates.append(tokens / span.busy)
    best = statistics.median(peaks)
    flop = flop_per_token(steps.trainer, runtime)
    environment = runtime.environment()
    return {
        "unit": steps.unit,
        "tokens_per_second": spread(rates),
        "share_of_peak": statistics.median(rates) * flop / best,
        "peak_gflop_per_second": best / 1e9,
        "params": sum(p.numel() for p in steps.trainer.parameters),
        "memory_bytes": runtime.peak_memory_bytes(),
        **{name: environment[name] for name in ("device", "threads", "precision")},
    }


def spread(values: list[float]) -> dict[str, Any]:
    """Return the median, the range and the number of values."""
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {**found, "n": len(values)}


def _process_age() -> float | None:
    """Return the age of this process in wall time; None where the system does not tell."""
    if not sys.platform.startswith("linux"):
        return None
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return float(Path("/proc/uptime").read_text().split()[0]) - float(stat[19]) / sysconf(
        "SC_CLK_TCK"
    )
