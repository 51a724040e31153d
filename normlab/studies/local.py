"""The runner of this machine: each run is a process of its own, within its share of the machine."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

INTERRUPTED = 130
"""Exit status of a run that was told to stop and has saved."""
_NVIDIA = Path("/proc/driver/nvidia/gpus")
_PARENT = "NORMLAB_SWEEP"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Cell(NamedTuple):
    """A run to carry out: its name for people, its overrides, and its folder."""

    name: str
    overrides: tuple[str, ...]
    folder: Path


class Ended(NamedTuple):
    """A run that has ended: its exit status, the last line of its log, and its seconds."""

    cell: Cell
    status: int
    said: str
    seconds: float
    log: Path

    @property
    def interrupted(self) -> bool:
        """Tell whether it was told to stop, rather than failed."""
        return self.status in (INTERRUPTED, -signal.SIGINT, -signal.SIGTERM)


class Place(NamedTuple):
    """A share of the machine: the override and the variables that keep a process within it."""

    threads: str
    variables: dict[str, str]


def places(processes: int | None) -> list[Place]:
    """Divide the machine among `processes` at a time; None is one per GPU, else one per core.

    Raises ValueError below one.
    """
    gpus = visible_gpus()
    affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    number = len(gpus) or cores if processes is None else processes
    if number < 1:
        raise ValueError(f"processes={number} must be above 0")
    threads = f"observe.threads={max(1, cores // number)}"
    return [
        Place(threads, {"CUDA_VISIBLE_DEVICES": gpus[each % len(gpus)]} if gpus else {})
        for each in range(number)
    ]


def visible_gpus() -> list[str]:
    """Return the numbers of the NVIDIA GPUs that this process may use."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [part for part in named.split(",") if part]
    return [str(number) for number, _ in enumerate(_NVIDIA.iterdir())] if _NVIDIA.is_dir() else []


class _Job(NamedTuple):
    cell: Cell
    process: "subprocess.Popen[bytes]"
    log: Path
    place: Place
    begun: float


def each_once(overrides: Sequence[str]) -> list[str]:
    """Return overrides with each key once, as `train` takes them: of a study, the last counts."""
    return [*{override.split("=")[0]: override for override in overrides}.values()]


class Local:
    """Runs as processes on this machine, each with its share and its log.

    Args:
        processes: how many at a time, as `places` has it.
        logs: the folder of the logs; if another sweep uses it, the first free one of `logs/2`,
            `logs/3`, ... is taken.
        module: what `python -m` starts for each run.
    """

    def __init__(
        self, processes: int | None, logs: Path, module: Sequence[str] = ("normlab", "train")
    ) -> None:
        self._free = places(processes)
        self.logs, self._module = logs, module
        self._jobs: list[_Job] = []
        self._stack = ExitStack()

    def __enter__(self) -> "Local":
        self.logs = self._stack.enter_context(own_folder(self.logs))
        return self

    def __exit__(self, *_: object) -> None:
        for job in self._jobs:
            job.process.wait()
        self._stack.close()

    def has_room(self) -> bool:
        """Tell whether another run can be started."""
        return bool(self._free)

    def start(self, cell: Cell, number: int) -> None:
        """Start a run; `number` names its log."""
        place = self._free.pop(0)
        given = each_once(cell.overrides)
        if not any(override.startswith("observe.threads=") for override in given):
            given.append(place.threads)
        log = self.logs / f"run{number}.log"
        log.unlink(missing_ok=True)  # a run that outlived a killed sweep may still write into it
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", *self._module, *given],
                env={**os.environ, **place.variables, _PARENT: str(os.getpid())},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._jobs.append(_Job(cell, process, log, place, time.monotonic()))

    def poll(self) -> list[Ended]:
        """Return the runs that have ended since the last call."""
        found: list[Ended] = []
        for job in list(self._jobs):
            if (status := job.process.poll()) is None:
                continue
            self._jobs.remove(job)
            self._free.append(job.place)
            lines = job.log.read_text("utf-8", errors="replace").split("\n")
            said = next((line.strip() for line in reversed(lines) if line.strip()), "")
            found.append(Ended(job.cell, status, said, time.monotonic() - job.begun, job.log))
        return found

    def stop(self, cell: Cell) -> None:
        """Tell a run to save and end."""
        for job in self._jobs:
            if job.cell == cell:
                job.process.terminate()


@contextmanager
def own_folder(folder: Path) -> Generator[Path]:
    """Yield a folder that no other sweep writes into: this one, or the first free one below."""
    from filelock import FileLock, Timeout

    for number in count(1):
        own = folder if number == 1 else folder / str(number)
        own.mkdir(parents=True, exist_ok=True)
        lock = FileLock(own / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            continue
        try:
            yield own
        finally:
            lock.release()
        return


def end_with_the_sweep() -> None:
    """In a run of a sweep: die when the sweep is killed, so that it can be started again (Linux).

    Otherwise the run would keep running and hold the lock of its folder.
    """
    parent = os.environ.pop(_PARENT, None)
    if parent is None or sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it was killed before this call
        os.kill(os.getpid(), signal.SIGKILL)
