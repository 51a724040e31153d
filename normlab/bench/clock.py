"""What a measurement counts as time.

Wall time is what a user waits for. On a CPU with one thread the processor time of this process is
kept beside it: it leaves out what other programs took, and a comparison by it is fair on a machine
that is not quiet. With several threads, which wait for each other by spinning, and on a GPU it says
nothing, and wall time stands in for it.
"""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Span:
    """Seconds of wall time, and seconds this process was at work (see above)."""

    wall: float
    busy: float


class Clock:
    """A stopwatch for work on one device."""

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


def seconds_since_process_start() -> float | None:
    """Return the age of this process in wall time; None where the system does not tell."""
    if not sys.platform.startswith("linux"):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    started = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / ticks
    return float(Path("/proc/uptime").read_text().split()[0]) - started
