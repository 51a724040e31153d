"""Several runs of `normlab train` on one machine, each a process of its own, some at a time.

Decides how many at once, which share of the machine each has, and what becomes of one that fails:
it costs itself. Cells are begun in order; each writes what it says into a file of its own. Sweeps
that are at work at once in one folder of runs have folders of their own for these.
"""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

INTERRUPTED = 130
"""Exit status of a run that was told to stop, and has saved."""
_NVIDIA = Path("/proc/driver/nvidia/gpus")
_LOOK = 0.5  # seconds between two questions whether a cell is hopeless
_PARENT = "NORMLAB_SWEEP"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class Cell:
    """A cell that has ended: its overrides, exit status, last line, seconds and number."""

    overrides: tuple[str, ...]
    status: int
    said: str
    seconds: float
    number: int = 0

    @property
    def interrupted(self) -> bool:
        """Tell whether it was told to stop, rather than failed."""
        return self.status in (INTERRUPTED, -signal.SIGINT, -signal.SIGTERM)


@dataclass(frozen=True)
class Place:
    """A share of the machine: the overrides and variables that keep a process within it."""

    overrides: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


def places(processes: int | None) -> list[Place]:
    """Divide the machine among `processes` at once; None is one a GPU, or one a core without GPUs.

    Raises ValueError for none.
    """
    gpus = visible_gpus()
    cores = _cores()
    count = len(gpus) or cores if processes is None else processes
    if count < 1:
        raise ValueError(f"processes={count} must be above 0")
    threads = f"observe.threads={max(1, cores // count)}"
    if not gpus:
        return [Place((threads,))] * count
    devices = [(("CUDA_VISIBLE_DEVICES", gpus[number % len(gpus)]),) for number in range(count)]
    return [Place((threads,), device) for device in devices]


def _cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """Return the numbers of the NVIDIA GPUs that this process may use."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [part for part in named.split(",") if part]
    return [str(number) for number, _ in enumerate(_NVIDIA.iterdir())] if _NVIDIA.is_dir() else []


class Order:
    """Which cell is begun next: here one after the other, as they are given.

    The sweep asks and tells one thread at a time.
    """

    def __init__(self, count: int) -> None:
        self._left = list(range(count))
        self._count = count

    @property
    def count(self) -> int:
        """Return how many cells are to be made, those that have ended among them."""
        return self._count

    def take(self) -> int | None:
        """Return the number of the cell to begin, None where there is none now."""
        return self._left.pop(0) if self._left else None

    def ended(self, number: int, cell: Cell) -> None:
        """Learn that a cell has ended, or was told to stop because it is hopeless."""

    def hopeless(self, number: int) -> bool:
        """Tell whether a cell at work is to be stopped."""
        return False


class Sweep:
    """Cells to carry out, and those that have ended, in the order of their numbers.

    `logs` is the folder for what cells say; where another sweep is at work in it, `run` takes the
    first free one below (`logs/2`, `logs/3`, ...) instead.
    `tell` is given a line of progress whenever a cell begins or ends. `order` says which is next.
    At `deadline`, a time of `time.monotonic`, the cells at work are told to stop, and none is begun
    any more. `beat` is called every `every` seconds from the start on (None: `BEAT`).
    """

    BEAT = 60.0

    def __init__(
        self,
        cells: Sequence[Sequence[str]],
        *,
        processes: int | None,
        logs: Path,
        tell: Callable[[str], object],
        order: Order | None = None,
        deadline: float = math.inf,
        beat: Callable[[Mapping[int, float]], object] | None = None,
        every: float | None = None,
    ) -> None:
        self.cells = [tuple(overrides) for overrides in cells]
        self.places = places(processes)
        self.logs = logs
        self.tell = tell
        self.order = order or Order(len(self.cells))
        self.deadline = deadline
        self.out_of_time = False
        self._beat, self._every = beat, self.BEAT if every is None else every
        self._ended: dict[int, Cell] = {}
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._begun: dict[int, float] = {}
        self._dropped: set[int] = set()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def run(self) -> list[Cell]:
        """Carry out the cells; KeyboardInterrupt when told to stop, after all have saved.

        Ctrl-C reaches the cells by itself, SIGTERM is passed on. Cells that the deadline stopped
        are among those returned; `out_of_time` then holds.
        """
        with (
            own_folder(self.logs) as self.logs,
            _handled(signal.SIGINT, self._stopped.set),
            _handled(signal.SIGTERM, self._terminate),
            ThreadPoolExecutor(len(self.places)) as pool,
        ):
            working = [pool.submit(self._work, place) for place in self.places]
            # In slices, so that a signal is handled while the main thread waits.
            try:
                while not all(future.done() for future in working):
                    self._watch()
                    time.sleep(0.05)
                    if any(future.done() and future.exception() for future in working):
                        break
            except BaseException:
                self._terminate()
                raise
            if any(future.done() and future.exception() for future in working):
                self._terminate()
        for future in working:
            future.result()
        interrupted = any(
            cell.interrupted for number, cell in self._ended.items() if number not in self._dropped
        )
        if (self._stopped.is_set() or interrupted) and not self.out_of_time:
            raise KeyboardInterrupt
        return [self._ended[number] for number in sorted(self._ended)]

    def _watch(self) -> None:
        now = time.monotonic()
        if now >= self.deadline and not self._stopped.is_set():
            self.out_of_time = True
            self._terminate()
        if self._beat is not None and now >= self._next_beat:
            self._next_beat = now + self._every
            self._beat({number: now - begun for number, begun in list(self._begun.items())})
        if now >= self._next_look:
            self._next_look = now + _LOOK
            with self._turn:
                for number, process in list(self._running.items()):
                    if number not in self._dropped and self.order.hopeless(number):
                        self._dropped.add(number)
                        process.terminate()

    _next_beat = _next_look = -math.inf

    def _work(self, place: Place) -> None:
        """Carry out cells at a place until there is none left."""
        while not self._stopped.is_set():
            with self._turn:
                number = self.order.take()
                if number is not None:
                    self._begun[number] = time.monotonic()
                    self._dropped.discard(number)  # an order may give a cell again
                elif not self._begun:
                    return
            if number is None:  # what is at work may allow another when it ends
                time.sleep(0.05)
                continue
            cell = self._carry_out(number, place)
            with self._turn:
                del self._begun[number]
                if not cell.interrupted or number in self._dropped:
                    self.order.ended(number, cell)

    def _carry_out(self, number: int, place: Place) -> Cell:
        overrides = self.cells[number]
        given = {override.split("=")[0] for override in overrides}
        own = [setting for setting in place.overrides if setting.split("=")[0] not in given]
        log = self.logs / f"cell{number}.log"
        command = [sys.executable, "-m", "normlab", "train", *overrides, *own]
        self._say(f"cell {number} begins: {' '.join(overrides)}")
        started = time.monotonic()
        log.unlink(missing_ok=True)  # a cell that outlived a killed sweep may still write into it
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                env={**os.environ, **dict(place.variables), _PARENT: str(os.getpid())},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            with self._lock:
                self._running[number] = process
            if self._stopped.is_set():  # while it was begun
                process.terminate()
            status = process.wait()
        cell = Cell(overrides, status, _last_line(log), time.monotonic() - started, number)
        if cell.interrupted and number not in self._dropped:
            self._stopped.set()
        with self._lock:
            del self._running[number]
            self._ended[number] = cell
            done = len(self._ended)
        outcome = cell.said if status == 0 else f"failed with status {status}: {cell.said}"
        if cell.interrupted and number in self._dropped:
            outcome = "stopped: hopeless"
        elif cell.interrupted and self.out_of_time:
            outcome = "saved, goes on another time"
        self._say(f"[{done}/{self.order.count}] cell {number}, {cell.seconds:.0f} s: {outcome}")
        return cell

    def _say(self, line: str) -> None:
        with self._lock:  # threads would print into each other's lines
            self.tell(line)

    def _terminate(self) -> None:
        self._stopped.set()
        # Only the main thread handles signals, and it may hold no lock when it is interrupted.
        for process in list(self._running.values()):
            process.terminate()


@contextmanager
def own_folder(folder: Path) -> Iterator[Path]:
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
    """In a cell: die when the sweep is killed, so that the same sweep can be started again (Linux).

    Else it would go on alone and hold the lock of its run.
    """
    parent = os.environ.pop(_PARENT, None)
    if parent is None or sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it was killed before this was said
        os.kill(os.getpid(), signal.SIGKILL)


def summary_lines(cells: Sequence[Cell], logs: Path) -> list[str]:
    """Return the last lines of a sweep: how many cells are done, and the others with reasons."""
    failed = [cell for cell in cells if cell.status]
    lines = [f"{len(cells) - len(failed)} of {len(cells)} cells done"]
    lines += [
        f"  failed with status {cell.status}: {' '.join(cell.overrides)}\n"
        f"    {cell.said or 'it said nothing'} ({logs / f'cell{cell.number}.log'})"
        for cell in failed
    ]
    return lines


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


@contextmanager
def _handled(number: signal.Signals, action: Callable[[], object]) -> Iterator[None]:
    """Within the block, do `action` at a signal instead of what is usual."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(number, lambda *_: action())
    try:
        yield
    finally:
        signal.signal(number, former)
