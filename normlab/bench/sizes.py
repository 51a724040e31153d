"""How cost grows with size: `normlab bench train` at many sizes, each in a process of its own.

One size is changed at a time; what stays is the small model on 20,000 pairs. Each process tells its
own memory, which in one process would be that of the largest.
"""

import json
import statistics
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
    "runs": (1, 2, 4),
}
"""What is changed, and to what: settings of `normlab train`, and three of the benchmark itself.

`ranks` are processes of one run, `runs` are runs side by side that share the machine or its GPU, as
the cells of a sweep do (`observe.processes`).
"""


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
            "runs": [],
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


def take(point: Point, overrides: Sequence[str], *, steps: int) -> list[dict[str, Any]]:
    """Return the reports of one size, several where runs are side by side.

    Raises ValueError with what was complained of where that fails.
    """
    with TemporaryDirectory() as folder:
        count = point.value if point.axis == "runs" else 1
        paths = [Path(folder) / f"{number}.json" for number in range(count)]
        started = [
            subprocess.Popen(
                point.command(overrides, path, steps),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for path in paths
        ]
        complaints = [process.communicate()[1] for process in started]
        for process, complaint in zip(started, complaints, strict=True):
            if process.returncode:
                raise ValueError(f"{point.axis}={point.value}: {complaint[-500:]}")
        return [json.loads(path.read_text("utf-8")) for path in paths]


def figures(point: Point, reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is compared between sizes; of runs side by side tokens and memory in sum."""
    runs = [run for report in reports for run in report["runs"]]
    return {
        "axis": point.axis,
        "value": point.value,
        "tokens_per_second": _added([run["tokens_per_second"] for run in runs]),
        "tokens_per_busy_second": _added([run["tokens_per_busy_second"] for run in runs]),
        "share_of_peak": statistics.mean(run["share_of_peak"] for run in runs),
        "useful_mflop_per_token": runs[0]["useful_mflop_per_token"],
        "padding_share": runs[0]["padding_share"],
        "peak_memory_bytes": sum(report["peak_memory_bytes"] for report in reports),
    }


def _added(rates: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of medians and of ranges; each is over the same number of turns."""
    sums = {name: sum(rate[name] for rate in rates) for name in ("median", "min", "max")}
    return {**sums, "n": rates[0]["n"]}
