"""How long commands take, each in a process of its own: as people wait for them."""

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from normlab.bench.spread import spread


@dataclass
class Timed:
    """One command: its arguments, by round its seconds and the processor's, its lines.

    `first_...` is the same until anything is shown, the standard error being a terminal.
    `<` and a file behind the arguments are its standard input, which is else empty.
    """

    argv: tuple[str, ...]
    seconds: list[float] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)
    first_seconds: list[float] = field(default_factory=list)
    first_processor_seconds: list[float] = field(default_factory=list)
    lines: int = 0

    def take(self) -> None:
        """Run it once; ValueError with what it complained of where it fails."""
        words, _, source = "\0".join(self.argv).partition("\0<\0")
        before, start = os.times(), time.perf_counter()
        with Path(source or os.devnull).open("rb") as stdin:
            first, out, errors, status = _watched(words.split("\0"), stdin)
        self.seconds.append(time.perf_counter() - start)
        after = os.times()
        user = after.children_user - before.children_user
        self.processor_seconds.append(user + after.children_system - before.children_system)
        if status:
            raise ValueError(f"normlab {' '.join(self.argv)} failed: {errors[:500].decode()}")
        if first is not None:
            self.first_seconds.append(first[0] - start)
            self.first_processor_seconds.append(first[1])
        self.lines = out.count(b"\n")


def _watched(
    words: Sequence[str], stdin: IO[bytes]
) -> tuple[tuple[float, float] | None, bytes, bytes, int]:
    """Run a command to its end, its standard error a terminal.

    Returns when it first showed anything and the processor seconds it had then, None for nothing;
    what it wrote to the standard output and error; its status.
    """
    terminal, end = os.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "normlab", *words], stdin=stdin, stdout=subprocess.PIPE, stderr=end
    )
    os.close(end)
    assert child.stdout is not None
    said = {child.stdout.fileno(): b"", terminal: b""}
    first = None
    with selectors.DefaultSelector() as waiting, child:
        for source in said:
            waiting.register(source, selectors.EVENT_READ)
        while waiting.get_map():
            for ready, _ in waiting.select():
                part = _read(ready.fd)
                if not part:
                    waiting.unregister(ready.fd)
                elif first is None:
                    first = time.perf_counter(), _processor_seconds(child.pid)
                said[ready.fd] += part
    os.close(terminal)
    out, errors = said.values()
    return first, out, errors, child.returncode


def _read(descriptor: int) -> bytes:
    """Return what there is, nothing at the end, which a terminal on Linux tells by an error."""
    try:
        return os.read(descriptor, 2**16)
    except OSError:
        return b""


def _processor_seconds(process: int) -> float:
    """Return the processor seconds of a process that runs, NaN where the system does not say."""
    try:
        values = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


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
            **(_first(item) if item.first_seconds else {}),
        }
        for item in found
    ]


def _first(item: Timed) -> dict[str, Any]:
    return {
        "first_seconds": spread(item.first_seconds),
        "first_processor_seconds": spread(item.first_processor_seconds),
    }
