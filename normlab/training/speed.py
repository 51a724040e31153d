"""Measures training speed by timing steps of a run, and the peak speed of the machine."""

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from normlab.tasks.base import Task
from normlab.training.build import build_model, build_task, build_trainer, make_fast
from normlab.training.checkpoint import Checkpoints
from normlab.training.runtime import Runtime
from normlab.training.trainer import Trainer

_NEVER = 1 << 62
_ROWS = 2048  # rows of the matrix products that measure the machine's peak
_PEAK_SECONDS = 0.05  # per matrix shape
_ATTEMPT = 32  # products queued between clock readings on a GPU, which computes asynchronously
_WARM_UP, _MEASUREMENTS, _STEPS = 3, 5, 4  # defaults of `measure`


class Span(NamedTuple):
    """Seconds of wall time and of processor time (see `StepClock`)."""

    wall: float
    busy: float


class StepClock:
    """A stopwatch for work on one device.

    On a CPU with one thread, `busy` is processor time, which excludes other programs. Otherwise it
    is wall time, because waiting threads use processor time and a GPU's work does not count as
    such.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self.restart()

    def restart(self) -> None:
        """Wait until the device is idle, then start timing from zero."""
        self._wait()
        self._wall, self._busy = time.perf_counter(), time.process_time()

    def read(self) -> Span:
        """Wait until the device is idle, and return the time since `restart`."""
        self._wait()
        wall = time.perf_counter() - self._wall
        alone = self._device.type == "cpu" and torch.get_num_threads() == 1
        return Span(wall, time.process_time() - self._busy if alone else wall)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class Steps(NamedTuple):
    """A run that trains step by step on request and writes nothing."""

    name: str
    config: Mapping[str, Any]
    trainer: Trainer

    @property
    def unit(self) -> str:
        """The unit of speed in the run's record, such as tokens or pictures."""
        return str(self.trainer.task.describe().get("unit", "tokens"))

    def take(self, steps: int, clock: StepClock) -> tuple[Span, int]:
        """Take steps, and return their time and their target tokens (or images) over all ranks."""
        before = self.trainer.counters.tokens
        clock.restart()
        for _ in range(steps):
            self.trainer.step()
        return clock.read(), self.trainer.counters.tokens - before


def runtime_of(config: Mapping[str, Any]) -> Runtime:
    """Return the runtime for the device, precision and threads of a config."""
    threads = config["observe"]["threads"]
    return Runtime.start(device=config["device"], precision=config["precision"], threads=threads)


def start(
    name: str, config: Mapping[str, Any], runtime: Runtime, *, task: Task | None = None
) -> Steps:
    """Build a run and take its first step. `task` replaces the config's task."""
    task = build_task(config) if task is None else task
    torch.manual_seed(config["seed"])
    model = build_model(config, task).to(runtime.device, runtime.parameter_dtype)
    if config["observe"]["fast"]:
        make_fast(model)
    endless = {
        **config,
        "budget": {"steps": _NEVER},
        "divergence_factor": float("inf"),
        "validate": {**config["validate"], "every": _NEVER},
        "observe": {**config["observe"], "checkpoint_every": _NEVER, "targets": {}},
    }
    checkpoints = Checkpoints(Path(gettempdir()), writes=False)
    trainer = build_trainer(endless, task, model, runtime, checkpoints)
    trainer.start()
    trainer.step()
    return Steps(name, config, trainer)


def flop_per_token(trainer: Trainer) -> float:
    """Return the floating-point operations per target token (or image) in training.

    torch counts the operations in a forward pass over a few validation examples. The forward and
    the backward pass together take three times as many.
    """
    task, model, runtime = trainer.task, trainer.model, trainer.runtime
    batch = task.batch("valid", range(min(8, len(task.lengths("valid"))))).to(runtime.device)
    with torch.no_grad(), runtime.autocast(), FlopCounterMode(display=False) as counter:
        task.losses(model.eval(), batch)
    model.train()
    return 3 * counter.get_total_flops() / batch.tokens


@torch.no_grad()
def peak(model: nn.Module, runtime: Runtime) -> float:
    """Return the FLOP/s of the fastest matrix product at a model's shapes and precision."""
    dtype = torch.bfloat16 if runtime.precision == "bf16" else runtime.parameter_dtype
    clock, batch = StepClock(runtime.device), _ATTEMPT if runtime.device.type == "cuda" else 1
    rates = []
    for inner, columns in sorted(
        {(w[0].numel(), len(w)) for w in model.parameters() if w.dim() > 1}
    ):
        left = torch.randn(_ROWS, inner, device=runtime.device, dtype=dtype)
        right = torch.randn(columns, inner, device=runtime.device, dtype=dtype)
        torch.nn.functional.linear(left, right)
        clock.restart()
        count, end = 0, time.perf_counter() + _PEAK_SECONDS
        while time.perf_counter() < end:
            for _ in range(batch):
                torch.nn.functional.linear(left, right)
            count += batch
        rates.append(count * 2 * left.numel() * columns / clock.read().busy)
    return max(rates)


def measure(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's training speed, its share of the machine's peak, and facts about the machine.

    The speed is in target tokens or images per second (`unit`).
    """
    runtime = runtime_of(config)
    steps, clock = start("run", config, runtime), StepClock(runtime.device)
    steps.take(_WARM_UP, clock)
    rates, peaks = [], []
    for _ in range(_MEASUREMENTS):
        peaks.append(peak(steps.trainer.model, runtime))
        span, tokens = steps.take(_STEPS, clock)
        rates.append(tokens / span.busy)
    best, environment = statistics.median(peaks), runtime.environment()
    return {
        "unit": steps.unit,
        "tokens_per_second": spread(rates),
        "share_of_peak": statistics.median(rates) * flop_per_token(steps.trainer) / best,
        "peak_gflop_per_second": best / 1e9,
        "params": sum(p.numel() for p in steps.trainer.parameters),
        "memory_bytes": runtime.peak_memory_bytes(),
        **{name: environment[name] for name in ("device", "threads", "precision")},
    }


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return the median, the range and the number of values."""
    summary = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {**summary, "n": len(values)}
