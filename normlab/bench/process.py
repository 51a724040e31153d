"""How long commands take, each in a process of its own: as people wait for them."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from normlab.bench.spread import spread


@dataclass
class Timed:
    """One command: its arguments, by round its seconds and the processor's, its lines."""

    argv: tuple[str, ...]
    seconds: list[float] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)
    lines: int = 0

    def take(self) -> None:
        """Run it once; ValueError with what it complained of where it fails."""
        before, start = os.times(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "normlab", *self.argv], capture_output=True, text=True
        )
        self.seconds.append(time.perf_counter() - start)
        after = os.times()
        user = after.children_user - before.children_user
        self.processor_seconds.append(user + after.children_system - before.children_system)
        if done.returncode:
            raise ValueError(f"normlab {' '.join(self.argv)} failed: {done.stderr[:500]}")
        self.lines = done.stdout.count("\n")


def in_turns(commands: Sequence[Sequence[str]], *, rounds: int) -> list[Timed]:
    """Run `normlab ARGV` of all commands, `rounds` times one after the other."""
    found = [Timed(tuple(argv)) for argv in commands]
    for _ in range(rounds):
        for command in found:
            command.take()
    return found


def summary(found: Sequence[Timed]) -> list[dict[str, Any]]:
    """Return what was measured as plain values."""
    return [
        {
            "command": " ".join(item.argv),
            "seconds": spread(item.seconds),
            "processor_seconds": spread(item.processor_seconds),
            "lines": item.lines,
        }
        for item in found
    ]
