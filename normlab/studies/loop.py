"""The loop that carries out many runs: a plan says which is next, a runner starts it.

A run that fails costs only itself. All state is in the run folders, so the same command resumes
whatever was interrupted.
"""

import math
import signal
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from normlab.studies.local import Cell, Ended, Local

_WAIT = 0.05  # seconds between two looks at the running processes
_ASK = 0.5  # seconds between two questions whether a run is hopeless


@runtime_checkable
class Plan(Protocol):
    """Which runs there are, and which is next.

    `cells` are all runs that may be asked for, `count` is how many this command carries out as far
    as is known.
    """

    @property
    def cells(self) -> Sequence[Cell]: ...
    @property
    def count(self) -> int: ...

    def next(self) -> Cell | None:
        """Return the run to begin; None if there is none now."""
        ...

    def ended(self, done: Ended) -> None:
        """Learn that a run has ended, or was stopped because it is hopeless."""
        ...

    def hopeless(self, cell: Cell) -> bool:
        """Tell whether a running run is to be stopped."""
        ...


class Grid:
    """A plan of given runs, one after the other."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self.cells = list(cells)
        self.count = len(self.cells)
        self._left = iter(self.cells)

    def next(self) -> Cell | None:
        return next(self._left, None)

    def ended(self, done: Ended) -> None:
        pass

    def hopeless(self, cell: Cell) -> bool:
        return False


class Show:
    """What is shown while runs are carried out, every so many seconds; by default nothing."""

    every = math.inf

    def say(self, line: str) -> None:
        """Print a line of progress."""

    def beat(self, running: Mapping[Cell, float]) -> None:
        """Show the running runs, each with its seconds."""


def carry_out(
    plan: Plan, runner: Local, *, deadline: float = math.inf, show: Show | None = None
) -> list[Ended]:
    """Carry out the runs of a plan and return those that ended, in the order of their ends.

    At `deadline`, a time of `time.monotonic`, the running runs are told to stop and returned as
    interrupted; no other begins. Ctrl-C reaches the processes by itself, SIGTERM is passed on; both
    raise KeyboardInterrupt once all have saved.
    """
    show = show or Show()
    numbers = {cell: number for number, cell in enumerate(plan.cells)}
    running: dict[Cell, float] = {}
    dropped: set[Cell] = set()
    found: list[Ended] = []
    told: list[int] = []  # signals
    stopped = interrupted = False
    next_beat = next_ask = -math.inf

    def stop_all() -> None:
        for cell in running:
            runner.stop(cell)

    try:
        with _signals_into(told):
            while True:
                now = time.monotonic()
                if signal.SIGTERM in told or (now >= deadline and not stopped):
                    stop_all()
                interrupted = interrupted or bool(told)
                stopped = stopped or interrupted or now >= deadline
                told.clear()
                while not stopped and runner.has_room() and (cell := plan.next()) is not None:
                    show.say(f"run {numbers[cell]} begins: {' '.join(cell.overrides)}")
                    running[cell] = time.monotonic()
                    dropped.discard(cell)  # a plan may give a run again
                    runner.start(cell, numbers[cell])
                if now >= next_beat:
                    next_beat = now + show.every
                    show.beat({cell: now - begun for cell, begun in running.items()})
                if now >= next_ask:
                    next_ask = now + _ASK
                    for cell in [each for each in running if each not in dropped]:
                        if plan.hopeless(cell):
                            dropped.add(cell)
                            runner.stop(cell)
                ended = runner.poll()
                for done in ended:
                    del running[done.cell]
                    found.append(done)
                    hopeless = done.cell in dropped
                    if done.interrupted and not (hopeless or stopped):
                        interrupted = stopped = True  # somebody told this run to stop
                    if not done.interrupted or hopeless:
                        plan.ended(done)
                    said = done.said
                    if done.interrupted:
                        said = "stopped: hopeless" if hopeless else "saved, to be resumed"
                    elif done.status:
                        said = f"failed with status {done.status}: {said}"
                    show.say(
                        f"[{len(found)}/{plan.count}] run {numbers[done.cell]}, "
                        f"{done.seconds:.0f} s: {said}"
                    )
                if not running and (stopped or not ended):
                    break
                if not ended:
                    time.sleep(_WAIT)
    except BaseException:
        stop_all()
        raise
    if interrupted:
        raise KeyboardInterrupt
    return found


@contextmanager
def _signals_into(told: list[int]) -> Generator[None]:
    """Within the block, note SIGINT and SIGTERM in a list instead of what they usually do."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    former = [signal.signal(number, lambda got, _: told.append(got)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, former, strict=True):
            signal.signal(number, handler)


def summary_lines(ended: Sequence[Ended]) -> list[str]:
    """Return the last lines of a sweep: how many runs are done, and why the others failed."""
    failed = [done for done in ended if done.status]
    return [f"{len(ended) - len(failed)} of {len(ended)} runs done"] + [
        f"  failed with status {done.status}: {' '.join(done.cell.overrides)}\n"
        f"    {done.said or 'it said nothing'} ({done.log})"
        for done in failed
    ]
