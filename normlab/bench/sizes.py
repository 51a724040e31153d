"""How cost grows with size: `normlab bench train` at many sizes, each in a process of its own.

One size is changed at a time; what stays is the small model on 20,000 pairs. Each process tells its
own memory, which in one process would be that of the largest.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

AXES: dict[str, tuple[int, ...]] = {
    "model.dim": (128, 256, 512, 1024),
    "model.depth": (1, 3, 6, 12),
    "max_tokens": (512, 2048, 8192),
    "pairs": (1_000, 10_000, 100_000, 1_000_000),
    "ranks": (1, 2),
}
"""What is changed, and to what: settings of `normlab train`, and two of the benchmark itself."""


@dataclass(frozen=True)
class Point:
    """One size: the axis, its value, and how `normlab bench train` is told of it."""

    axis: str
    value: int

    def command(self, overrides: Sequence[str], path: Path, steps: int) -> list[str]:
        """Return the command that measures it and writes JSON to `path`."""
        start = ["-m", "normlab"]
        if self.axis == "ranks" and self.value > 1:
            ranks = str(self.value)
            start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
            start += ["-m", "normlab"]
        own = {
            "pairs": ["--pairs", str(self.value)],
            "ranks": [],
        }.get(self.axis, [f"{self.axis}={self.value}"])
        if self.axis == "model.dim":
            own.append(f"model.ffn_dim={4 * self.value}")
        measured = ["--steps", str(steps), "--intervals", "3", "--warmup", "2"]
        command = [sys.executable, *start, "bench", "train", *overrides, *own]
        return [*command, *measured, "--json", str(path)]


def points(axes: Sequence[str]) -> Iterator[Point]:
    """Yield the sizes of some axes; ValueError for an axis that there is not."""
    for axis in axes:
        if axis not in AXES:
            raise ValueError(f"no size {axis!r}: there are {', '.join(AXES)}")
        for value in AXES[axis]:
            yield Point(axis, value)


def take(point: Point, overrides: Sequence[str], *, steps: int) -> dict[str, Any]:
    """Return the report of one size; ValueError with what was complained of where that fails."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        command = point.command(overrides, path, steps)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"{point.axis}={point.value}: {done.stderr[-500:]}")
        return json.loads(path.read_text("utf-8"))


def figures(point: Point, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is compared between sizes."""
    (run,) = report["runs"]
    return {
        "axis": point.axis,
        "value": point.value,
        "tokens_per_second": run["tokens_per_second"],
        "tokens_per_busy_second": run["tokens_per_busy_second"],
        "share_of_peak": run["share_of_peak"],
        "useful_mflop_per_token": run["useful_mflop_per_token"],
        "padding_share": run["padding_share"],
        "peak_memory_bytes": report["peak_memory_bytes"],
    }
