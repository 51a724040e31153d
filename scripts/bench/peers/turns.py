"""Inside a measured program: it stays alive, and works when it is its turn.

A program is started once and reports when it has loaded. For each line on its standard input, such
as `{"seconds": 10}`, it works for that much processor time, up to the end of a step, and answers
with one line about what it did. In between it waits without using the processor. It ends when its
input ends.

The programs have their own training loops, so turns are taken where those loops draw a batch: a
step is everything between asking for one batch and asking for the next, loading included.

It uses only the standard library, because it runs in every program's environment.
"""

import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import NoReturn, TypeVar

T = TypeVar("T")


class Turns:
    """The turns of this process.

    Args:
        packages: the packages whose versions are reported.
        differs: what this program does differently and could not be made the same.
    """

    def __init__(self, *, packages: Sequence[str], differs: Sequence[str]):
        self._facts = {
            "versions": {name: version(name) for name in packages},
            "differs": list(differs),
        }
        # Libraries print to standard output, so it becomes standard error; answers go to the
        # original.
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._ready = False
        self._seconds: float | None = None  # counts of the current turn
        self._steps = 0
        self._counts: Counter[str] = Counter()
        self._wall = self._busy = 0.0

    def paced(self, items: Iterable[T], count: Callable[[T], Mapping[str, int]]) -> Iterator[T]:
        """Yield items during turns, and wait between turns.

        `count` returns counts of an item by name; their sums are part of the answer. `paced` may be
        called again for each epoch.
        """
        source = iter(items)
        while True:
            self._between_steps()
            try:
                item = next(source)
            except StopIteration:
                return
            self._steps += 1
            self._counts.update(count(item))
            yield item

    def _between_steps(self) -> None:
        if self._seconds is not None and self._steps:
            busy = time.process_time() - self._busy
            if busy < self._seconds:
                return
            wall = time.perf_counter() - self._wall
            self._seconds = None
            self._say(
                {
                    "wall": wall,
                    "busy": busy,
                    "steps": self._steps,
                    "counts": dict(self._counts),
                    "peak_memory_bytes": _peak_memory_bytes(),
                }
            )
        if self._seconds is None:
            self._wait()

    def _wait(self) -> None:
        if not self._ready:
            self._say(self._facts)
            self._ready = True
        line = sys.stdin.readline()
        if not line:
            _leave()
        self._seconds = float(json.loads(line)["seconds"])
        self._steps = 0
        self._counts.clear()
        self._wall, self._busy = time.perf_counter(), time.process_time()

    def _say(self, message: Mapping[str, object]) -> None:
        self._answers.write(json.dumps(message) + "\n")
        self._answers.flush()


def _peak_memory_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _leave() -> NoReturn:
    # Exit at once: the surrounding loop must not continue and validate, save or report.
    sys.stderr.flush()
    os._exit(0)
