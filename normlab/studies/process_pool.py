"""Executes many runs on this machine. A queue chooses the next run, and each run is a process.

A process uses only its share of the machine, and its output goes to `log.txt` in the run's folder.
A run that fails does not affect the others. All state is in the run folders, so that the same
command resumes interrupted runs.
"""

import fcntl
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from normlab.config.launch import PARENT, check_single
from normlab.config.machine import MOST_THREADS, usable_cores
from normlab.config.registry import START_FILE
from normlab.errors import UserError
from normlab.records.files import check_writable
from normlab.records.store import PROGRESS_FILE
from normlab.training.stopping import STOP_SIGNALS, heeded_signals

INTERRUPTED = 130
"""Exit status of a run that was asked to stop."""
LOG_FILE = "log.txt"
_NVIDIA = Path("/proc/driver/nvidia/gpus")
_GPU = re.compile(r"\d+$|GPU-|MIG-")  # excludes -1 and Slurm's NoDevFiles
_KILLED = "killed, most likely because memory ran out; use a smaller batch_size or fewer processes"
_WAIT_FOR_IT = "wait for it, or stop it"
_MOST_PER_GPU = 16
_WAIT = 0.05  # seconds between polls of the running processes


class RunToStart(NamedTuple):
    """A run to start: its display name, overrides and folder."""

    name: str
    overrides: tuple[str, ...]
    folder: Path


class EndedRun(NamedTuple):
    """A run that has ended: its exit status, the last line of its log, and its duration (s)."""

    run: RunToStart
    status: int
    last_line: str
    seconds: float

    @property
    def interrupted(self) -> bool:
        """Whether the run was asked to stop rather than failed."""
        return self.status in (INTERRUPTED, *(-number for number in STOP_SIGNALS))

    @property
    def saved(self) -> bool:
        """Whether there is a state from which the run can resume."""
        return (self.run.folder / START_FILE).is_file()

    @property
    def failed(self) -> bool:
        """Whether the run ended with an error."""
        return self.status != 0 and not self.interrupted


class RunQueue(ABC):
    """Decides which run starts next."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of runs this command will execute, as far as is known now."""

    @abstractmethod
    def next(self) -> RunToStart | None:
        """Return the next run to start, or None if no run can start now."""

    @abstractmethod
    def ended(self, done: EndedRun) -> None:
        """Record that a run has ended."""


class RunsInOrder(RunQueue):
    """A queue of runs in a fixed order."""

    def __init__(self, runs: Iterable[RunToStart]) -> None:
        self._left = list(runs)
        self._count = len(self._left)

    @property
    def count(self) -> int:
        return self._count

    def next(self) -> RunToStart | None:
        return self._left.pop(0) if self._left else None

    def ended(self, done: EndedRun) -> None:
        pass


class ProgressDisplay:
    """The display of progress, updated every `every` seconds. This base class only prints lines."""

    every = math.inf

    def say(self, line: str) -> None:
        """Print a line of progress."""
        print(line, flush=True)

    def beat(
        self, running: Mapping[RunToStart, float], ended: Sequence[EndedRun], count: int
    ) -> None:
        """Show the running runs with their seconds so far, and how many of `count` have ended."""


def run_all(
    queue: RunQueue,
    processes: int | None = None,
    *,
    deadline: float = math.inf,
    show: ProgressDisplay | None = None,
) -> list[EndedRun]:
    """Execute the runs of a queue, and return them in the order in which they ended.

    `processes` is as in `machine_shares`. At `deadline` (by `time.monotonic`) no more runs are
    started, and the current runs are asked to stop and returned as interrupted. Ctrl-C reaches the
    processes directly, and other signals that ask to stop (`STOP_SIGNALS`) are passed on as
    SIGTERM. Either raises KeyboardInterrupt once every run has saved its state.
    """
    check_single("a sweep or a study starts its own processes")
    pool = _Pool(queue, show or ProgressDisplay(), machine_shares(processes))
    signals: list[int] = []  # signals received
    try:
        with _signals_into(signals):
            while True:
                now = time.monotonic()
                pool.heed(signals, late=now >= deadline)
                pool.start()
                pool.beat(now)
                any_ended = pool.take_ended()
                if not pool.running and (pool.stopped or not any_ended):
                    break
                if not any_ended:
                    time.sleep(_WAIT)
    except BaseException:
        pool.terminate()
        raise
    finally:
        for process in pool.running.values():
            process.popen.wait()
    if pool.interrupted:
        raise KeyboardInterrupt
    return pool.done


class MachineShare(NamedTuple):
    """A share of the machine: the override and environment variables that limit a process to it."""

    threads: str
    variables: dict[str, str]


class _Pool:
    """The running processes of a queue, and the runs that have ended.

    If `stopped`, no more runs are started. `interrupted` is set if the user or the system
    interrupted the queue.
    """

    def __init__(self, queue: RunQueue, show: ProgressDisplay, free: list[MachineShare]) -> None:
        self.queue, self.show, self.free = queue, show, free
        self.running: dict[RunToStart, _RunProcess] = {}
        self.done: list[EndedRun] = []
        self.stopped = self.interrupted = False
        self._next_beat = -math.inf

    def terminate(self) -> None:
        """Ask all runs to stop."""
        for process in self.running.values():
            process.popen.terminate()

    def heed(self, signals: list[int], *, late: bool) -> None:
        """Stop if it is `late` or if there are any signals, and empty the list of signals."""
        if set(signals) - {signal.SIGINT} or (late and not self.stopped):
            self.terminate()
        self.interrupted = self.interrupted or bool(signals)
        self.stopped = self.stopped or self.interrupted or late
        signals.clear()

    def start(self) -> None:
        """Start runs on the free shares of the machine."""
        while self.free and not self.stopped and (run := self.queue.next()) is not None:
            self.show.say(f"{run.name} started")
            if (lock := _locked(run.folder)) is None:
                problem = f"{run.folder} is being trained by another process; {_WAIT_FOR_IT}"
                self._end(EndedRun(run, 1, problem, 0.0))
            else:
                self.running[run] = _RunProcess(run, self.free.pop(0), lock)

    def beat(self, now: float) -> None:
        """Show the progress of the runs, unless the display's interval has not passed yet."""
        if now >= self._next_beat:
            self._next_beat = now + self.show.every
            seconds = {run: now - process.begun for run, process in self.running.items()}
            self.show.beat(seconds, self.done, self.queue.count)

    def take_ended(self) -> bool:
        """Move the runs that have ended to `done`, and return whether there were any."""
        ended = [done for process in self.running.values() if (done := process.ended()) is not None]
        for done in ended:
            self.free.append(self.running.pop(done.run).share)
            self._end(done)
        return bool(ended)

    def _end(self, done: EndedRun) -> None:
        """Add a run that has ended to `done`, and print its result."""
        result = f"failed with status {done.status}" if done.status else done.last_line
        if done.interrupted:
            # A run was stopped from outside: start no more runs.
            self.interrupted, self.stopped = self.interrupted or not self.stopped, True
            result = "saved; can be resumed" if done.saved else "stopped; nothing was saved"
            done = done._replace(last_line=result)
        else:
            self.queue.ended(done)
        self.done.append(done)
        count = f"{len(self.done)}/{self.queue.count}"
        self.show.say(f"[{count}] {done.run.name}, {done.seconds:.0f} s: {result}")


class _RunProcess:
    """The process of a run. `lock` is the descriptor that locks its folder until the run ends."""

    def __init__(self, run: RunToStart, share: MachineShare, lock: int) -> None:
        self.run, self.share, self.begun, self._lock = run, share, time.monotonic(), lock
        words = last_of_each_key(run.overrides)
        if not any(override.startswith("observe.threads=") for override in words):
            words.append(share.threads)
        log = run.folder / LOG_FILE
        log.unlink(missing_ok=True)  # a run that outlived its sweep may still write to it
        # If the last process of this run was killed, its progress is not that of the new one.
        (run.folder / PROGRESS_FILE).unlink(missing_ok=True)
        # Kept open, so that its last line is read from this file, whatever happens to the folder.
        self._log = log.open("w+b")
        self.popen = subprocess.Popen(
            [*program(), "train", *words],
            env={**os.environ, **share.variables, PARENT: str(os.getpid())},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def ended(self) -> EndedRun | None:
        """Return the ended run, or None if it is still running."""
        if (status := self.popen.poll()) is None:
            return None
        with self._log:
            self._log.seek(0)
            lines = self._log.read().decode("utf-8", errors="replace").strip().splitlines()
        os.close(self._lock)
        last_line = lines[-1].strip() if lines else "no output"
        if status == -signal.SIGKILL:
            last_line = f"{_KILLED} ({last_line})"
        return EndedRun(self.run, status, last_line, time.monotonic() - self.begun)


def _locked(folder: Path) -> int | None:
    """Lock a run's folder against other sweeps, and return the descriptor that holds the lock.

    The folder is created if needed. The lock is released when the descriptor is closed or this
    process ends. Returns None if another process has locked it. (The run's own lock, which is taken
    later, also keeps out `normlab train`, but by then two sweeps would have overwritten each
    other's log.)
    """
    check_writable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:  # on some network disks; there, the run's own lock says so
        pass
    return descriptor


def last_of_each_key(overrides: Sequence[str]) -> list[str]:
    """Return overrides with each key once and its last value, which is what `train` reads."""
    return [*{override.split("=")[0]: override for override in overrides}.values()]


def program() -> list[str]:
    """Return the command that starts normlab, importing nothing from the current folder."""
    return [sys.executable, "-P", "-m", "normlab"]


def machine_shares(processes: int | None) -> list[MachineShare]:
    """Divide the machine among `processes` (None: one per GPU or, without GPUs, one per core).

    Raises UserError if `processes` is below 1, or above both `MOST_THREADS` and 16 per GPU.
    """
    gpus, count = visible_gpus(), simultaneous_runs(processes)
    most = max(MOST_THREADS, _MOST_PER_GPU * len(gpus))
    if processes is not None and count > most:
        raise UserError(
            f"processes={count} must be at most {most}: four times the number of cores, or "
            f"{_MOST_PER_GPU} per GPU"
        )
    threads = f"observe.threads={max(1, usable_cores() // count)}"
    return [
        MachineShare(threads, {"CUDA_VISIBLE_DEVICES": gpus[each % len(gpus)]} if gpus else {})
        for each in range(count)
    ]


def simultaneous_runs(processes: int | None) -> int:
    """Return the number of simultaneous runs (None: one per GPU or, without GPUs, one per core).

    Raises UserError if `processes` is below 1.
    """
    if processes is None:
        return len(visible_gpus()) or usable_cores()
    if processes < 1:
        raise UserError(f"processes={processes} must be above 0")
    return processes


def visible_gpus() -> list[str]:
    """Return the ids of the NVIDIA GPUs that this process may use."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        ids = (part.strip() for part in listed.split(","))
        return [*takewhile(_GPU.match, ids)]  # like CUDA, stop at the first non-id
    return [str(number) for number, _ in enumerate(_NVIDIA.iterdir())] if _NVIDIA.is_dir() else []


@contextmanager
def _signals_into(received: list[int]) -> Generator[None]:
    """Within the context, append the signals that ask to stop to `received`, and do not stop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = heeded_signals()
    former = [signal.signal(number, lambda got, _: received.append(got)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, former, strict=True):
            signal.signal(number, handler)
