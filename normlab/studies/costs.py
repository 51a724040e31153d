"""What the runs of a study cost on this machine: measured by short trial runs, kept, and added up.

A trial run trains a configuration for some seconds in a process of its own, within the share of the
machine that a run would have (`normlab.bench.cost`). The key under which a cost is kept leaves out
what cannot change it (seed, learning rate, length of the run); it has code, machine and data.
"""

import hashlib
import json
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from normlab.records.files import atomic_write, read_json
from normlab.records.record import fingerprint
from normlab.studies.local import Cell, Local, places, visible_gpus
from normlab.studies.loop import Grid, carry_out
from normlab.studies.runs import Run
from normlab.train.run import NUMERICS

FOLDER = ".plan"
"""Where costs are kept, below the folder of runs."""
NOT_MEASURED = "normlab study plan measures"
_MODULE = ("normlab.bench.cost",)
_MOST_SECONDS, _LEAST_SECONDS = 20.0, 1.0
_ALL_SECONDS = 480.0  # of all trial runs of a study, not counting how long they take to start
_SHARE = 20  # a trial run takes this part of the minutes estimated for a run
_FREE = ("budget", "schedule", "divergence_factor")
_GPUS = Path("/proc/driver/nvidia/gpus")

Cost = Mapping[str, Any]
"""What `normlab.bench.cost` found."""


class Costs:
    """Measures configurations, and keeps what it found in the folder of runs, `root`.

    `processes` are runs at a time, as `places` has it; `minutes` are those estimated for a run.
    """

    def __init__(self, root: Path, *, processes: int | None, minutes: float) -> None:
        self.places = places(processes)
        self._processes, self._root, self._minutes = processes, root, minutes
        self._known: dict[str, Cost | str] = {}
        self._surroundings = [NUMERICS, _machine(), [self.places[0].threads], len(self.places)]

    def missing(self, runs: Sequence[Run]) -> dict[str, Run]:
        """Return the runs to be measured, one per configuration, by key."""
        found: dict[str, Run] = {}
        for run in runs:
            key = self.key(run.config)
            if key in self._known or key in found:
                continue
            try:
                self._known[key] = read_json(self._root / FOLDER / f"{key}.json")
            except (OSError, ValueError):
                found[key] = run
        return found

    def measure(self, missing: Mapping[str, Run], say: Callable[[str], object]) -> None:
        """Measure runs, as many at a time as there will be runs, and say what each took."""
        number = len(missing)
        most = min(_MOST_SECONDS, 60 * self._minutes / _SHARE, _ALL_SECONDS / number)
        seconds = max(_LEAST_SECONDS, most)
        say(
            f"measuring: training {number} configuration(s) for about {seconds:.0f} s each, "
            f"{len(self.places)} at a time; nothing of these trial runs is kept but their cost"
        )
        cells = [
            Cell(
                f"{run.planned.row} {run.planned.point}".strip(),
                (*run.planned.overrides, f"--seconds={seconds:.1f}"),
                Path(key),
            )
            for key, run in missing.items()
        ]
        folder = self._root / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        with Local(self._processes, self._root / ".sweeps" / "plan", module=_MODULE) as runner:
            for done in carry_out(Grid(cells), runner):
                key, name = str(done.cell.folder), done.cell.name
                try:
                    found = json.loads(done.said) if done.status == 0 else done.said
                except ValueError:
                    found = done.said
                self._known[key] = found
                if isinstance(found, str):
                    say(f"  {name}: not measured: {found}")
                    continue
                with atomic_write(folder / f"{key}.json") as file:
                    file.write(done.said)
                took = f"{1e3 * found['update_seconds']:.0f} ms per update"
                say(f"  {name}: {took}, {found['updates_measured']} updates measured")

    def cost(self, config: Mapping[str, Any]) -> Cost | str:
        """Return what was measured of a config, or why it was not."""
        return self._known.get(self.key(config), NOT_MEASURED)

    def key(self, config: Mapping[str, Any]) -> str:
        """Return the key under which the cost of a config is kept."""
        kept = {name: value for name, value in config.items() if name not in _FREE}
        kept["optim"] = {name: value for name, value in config["optim"].items() if name != "lr"}
        kept["validate"] = config["validate"]["recalibration_batches"]
        observe = config["observe"]
        seen = {name: observe[name] for name in ("probe", "log_every", "fast", "threads")}
        whole = [fingerprint(kept), seen, config["data_dir"], config["device"], self._surroundings]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:20]


def _machine() -> list[str]:
    """Name processor and GPUs without torch."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    kinds = {line for line in lines if line.startswith(("model name", "flags"))}
    models = [path.read_text("utf-8", errors="replace") for path in _GPUS.glob("*/information")]
    gpus = [line for text in models for line in text.splitlines() if line.startswith("Model")]
    return [platform.machine(), str(os.cpu_count()), *sorted(kinds), *gpus, *visible_gpus()]


def planned_updates(config: Mapping[str, Any], cost: Cost | None = None) -> int | None:
    """Return the updates of a config's budget; limits in other units need a measured cost."""
    budget = config["budget"]
    others = [budget["epochs"], budget["tokens"], budget["minutes"]]
    limits = [budget["steps"]]
    if cost is not None:
        per = [
            cost["updates_per_epoch"],
            1 / cost["tokens_per_update"],
            60 / cost["update_seconds"],
        ]
        pairs = zip(others, per, strict=True)
        limits += [math.ceil(limit * each) for limit, each in pairs if limit is not None]
    elif any(limit is not None for limit in others):
        return None
    return min((int(limit) for limit in limits if limit is not None), default=None)


def estimate(config: Mapping[str, Any], cost: Cost) -> float:
    """Return how many seconds a run of a config takes at most, by a measured cost."""
    updates = planned_updates(config, cost)
    assert updates is not None, "a budget has a limit"
    validations = math.ceil(updates / config["validate"]["every"])
    return (
        cost["start_seconds"]
        + cost["update_seconds"] * updates
        + cost["validation_seconds"] * validations
        + cost["test_seconds"]
    )


def duration(seconds: float | int) -> str:
    """Return seconds, minutes, hours or days, as people say them."""
    for unit, size, below in (("s", 1, 100), ("min", 60, 100 * 60), ("h", 3600, 100 * 3600)):
        if seconds < below:
            return f"{seconds / size:.{1 if seconds < 10 * size and unit != 's' else 0}f} {unit}"
    return f"{seconds / 86400:.1f} days"


def memory(size: float | int) -> str:
    """Return bytes in GiB, or in MiB below one GiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
