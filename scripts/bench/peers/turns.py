"""The side of a measured program: it stays alive, and works when it is its turn.

A program is started once and says that it is ready when all is loaded. Then, for each line on its
standard input, `{"seconds": 10}`, it works for that much processor time, to the end of a step, and
answers with a line of what it did. In between it waits and takes no time. It ends with its input.

The programs have training loops of their own, so turns are taken where those loops draw a batch: a
step is all that happens from asking for one batch to asking for the next, its loading included.

Only the standard library: this file runs in the environment of every program.
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
        packages: whose versions are reported.
        differs: what of the work is done otherwise here and could not be made equal.
    """

    def __init__(self, *, packages: Sequence[str], differs: Sequence[str]):
        self._facts = {
            "versions": {name: version(name) for name in packages},
            "differs": list(differs),
        }
        # Libraries print: standard output becomes standard error, answers keep what it was.
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._ready = False
        self._seconds: float | None = None  # of the turn that runs
        self._steps = 0
        self._counts: Counter[str] = Counter()
        self._wall = self._busy = 0.0

    def paced(self, items: Iterable[T], count: Callable[[T], Mapping[str, int]]) -> Iterator[T]:
        """Yield items while turns last, and wait between turns.

        `count` returns the contents of an item by name; their sums are part of the answer. It may
        be called again for each epoch.
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
    # At once: the loop around must not go on to validate, save or report.
    sys.stderr.flush()
    os._exit(0)
