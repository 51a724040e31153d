"""What the runs of a study cost on this machine: measured by short trial runs, kept, and added up.

A trial run trains a configuration for some seconds in a process of its own, within the share of the
machine that a run would have (`normlab.bench.cost`). What cannot change a cost (the seed, the
learning rate, the length of the run) is not part of the key under which it is kept; code, machine
and data are.
"""

import hashlib
import heapq
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normlab.records.files import atomic_write, read_json
from normlab.records.record import fingerprint
from normlab.studies.local import Local, places, visible_gpus
from normlab.studies.loop import Cell, Grid, carry_out
from normlab.studies.runs import Run
from normlab.train.numerics import NUMERICS

FOLDER = ".plan"
"""Where costs are kept, below the folder of runs."""
NO_TIME = "the budget has no time for it (study plan measures)"
NOT_MEASURED = "--no-measure was given"
_MODULE = ("normlab.bench.cost",)
_MOST_SECONDS, _LEAST_SECONDS = 20.0, 1.0
_ALL_SECONDS = 480.0  # of all trial runs of a study, not counting how long they take to start
_SHARE = 20  # a trial run takes this part of the minutes estimated for a run
_START = 10.0  # seconds that a trial run takes to begin and to test
_FREE = ("budget", "schedule", "divergence_factor")
_GPUS = Path("/proc/driver/nvidia/gpus")

Cost = Mapping[str, Any]
"""What `normlab.bench.cost` found."""


class Costs:
    """Measures configurations, and keeps what it found.

    Args:
        root: the folder of runs.
        processes: runs at a time, as `places` has it.
        minutes: the estimated minutes of a run.
    """

    def __init__(self, root: Path, *, processes: int | None, minutes: float) -> None:
        self.places = places(processes)
        self._processes, self._root, self._minutes = processes, root, minutes
        self._known: dict[str, dict[str, Any] | str] = {}
        self._surroundings = [NUMERICS, _machine(), self.places[0].overrides, len(self.places)]

    def missing(self, runs: Sequence[Run]) -> dict[str, Run]:
        """Return the runs to be measured, one per configuration, by key."""
        found: dict[str, Run] = {}
        for run in runs:
            key = self.key(run.config)
            if key in self._known or key in found:
                continue
            try:
                kept = read_json(self._root / FOLDER / f"{key}.json")
            except (OSError, ValueError):
                kept = None
            if isinstance(kept, dict):
                self._known[key] = kept
            else:
                found[key] = run
        return found

    def measure(
        self, missing: Mapping[str, Run], say: Callable[[str], object], until: float = math.inf
    ) -> None:
        """Measure runs, as many at a time as there will be runs, and say what each took.

        Nothing is begun if it would not end by `until`, a time of `time.monotonic`.
        """
        number = len(missing)
        most = min(_MOST_SECONDS, 60 * self._minutes / _SHARE, _ALL_SECONDS / max(1, number))
        seconds = max(_LEAST_SECONDS, most)
        if time.monotonic() + (seconds + _START) * number / len(self.places) > until:
            return
        say(
            f"measuring: training {number} configuration(s) for about {seconds:.0f} s each, "
            f"{len(self.places)} at a time; nothing of these trial runs is kept but their cost"
        )
        keys = {
            Cell(
                _configuration(run), (*run.planned.overrides, f"--seconds={seconds:.1f}"), Path(key)
            ): key
            for key, run in missing.items()
        }
        logs = self._root / ".sweeps" / "plan"
        with Local(self._processes, logs, module=_MODULE) as runner:
            for done in carry_out(Grid(keys), runner, deadline=until):
                found = _read(done.said) if done.status == 0 else done.said
                self._known[keys[done.cell]] = NO_TIME if done.interrupted else found
                if isinstance(found, dict):
                    self._keep(keys[done.cell], found)
                    took = f"{1e3 * found['update_seconds']:.0f} ms per update"
                    said = f"{took}, {found['updates_measured']} updates measured"
                else:
                    said = f"not measured: {found}"
                say(f"  {done.cell.name}: {said}")

    def cost(self, config: Mapping[str, Any]) -> Cost | str:
        """Return what was measured of a config, or why it was not."""
        return self._known.get(self.key(config), NO_TIME)

    def key(self, config: Mapping[str, Any]) -> str:
        """Return the key under which the cost of a config is kept."""
        kept = {name: value for name, value in config.items() if name not in _FREE}
        kept["optim"] = {name: value for name, value in config["optim"].items() if name != "lr"}
        kept["validate"] = config["validate"]["recalibration_batches"]
        observe = config["observe"]
        seen = {name: observe[name] for name in ("probe", "log_every", "fast", "threads")}
        whole = [fingerprint(kept), seen, config["data_dir"], config["device"], self._surroundings]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:20]

    def _keep(self, key: str, found: Mapping[str, Any]) -> None:
        (self._root / FOLDER).mkdir(parents=True, exist_ok=True)
        with atomic_write(self._root / FOLDER / f"{key}.json") as file:
            file.write(json.dumps(found))


def _read(said: str) -> dict[str, Any] | str:
    try:
        return json.loads(said)
    except ValueError:
        return said


def _configuration(run: Run) -> str:
    return " ".join(filter(None, (run.planned.row, run.planned.point)))


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


@dataclass(frozen=True)
class Estimate:
    """How often a run does what, and its seconds in all.

    `updates` is a maximum: patience or a divergence may end a run before.
    """

    updates: int
    validations: int
    saves: int
    seconds: float


def planned_updates(config: Mapping[str, Any], cost: Cost | None = None) -> int | None:
    """Return the updates of a config's budget; None if unknown.

    Limits in epochs, tokens and minutes become updates only by a measured cost.
    """
    budget = config["budget"]
    limits = [budget["steps"]]
    others = [budget["epochs"], budget["tokens"], budget["minutes"]]
    if cost is None:
        if any(limit is not None for limit in others):
            return None
    else:
        per = [
            cost["updates_per_epoch"],
            1 / cost["tokens_per_update"],
            60 / cost["update_seconds"],
        ]
        limits += [
            math.ceil(limit * each) if limit is not None else None
            for limit, each in zip(others, per, strict=True)
        ]
    return min((int(limit) for limit in limits if limit is not None), default=None)


def estimate(config: Mapping[str, Any], cost: Cost) -> Estimate:
    """Return what a run of a config does, and how long it takes by a measured cost."""
    updates = planned_updates(config, cost)
    assert updates is not None, "a budget has a limit"
    every, checkpoints = config["validate"]["every"], config["observe"]["checkpoint_every"]
    validations = math.ceil(updates / every)
    saves = updates // checkpoints + 2 * validations  # a validation saves the best and the last
    change = (config["task"].get("length_change") or {}).get("step") or updates + 1
    later = max(0, updates - change + 1)
    training = cost["update_seconds"] * (updates + later * (cost["later_share"] - 1))
    seconds = (
        (cost["start_seconds"] or 0)
        + training
        + validations * cost["validation_seconds"]
        + saves * cost["save_seconds"]
        + cost["test_seconds"]
    )
    return Estimate(updates, validations, saves, seconds)


def makespan(seconds: Iterable[float | int], at_a_time: int) -> float:
    """Return when the last run ends, if runs are begun in order, `at_a_time` at once."""
    ends = [0.0] * at_a_time
    for each in seconds:
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


def duration(seconds: float | int) -> str:
    """Return seconds, minutes, hours or days, as people say them."""
    for unit, size, below in (("s", 1, 100), ("min", 60, 100 * 60), ("h", 3600, 100 * 3600)):
        if seconds < below:
            return f"{seconds / size:.{1 if seconds < 10 * size and unit != 's' else 0}f} {unit}"
    return f"{seconds / 86400:.1f} days"


def memory(size: float | int) -> str:
    """Return bytes in GiB, or in MiB below one GiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def updates(count: int | None) -> str:
    """Return a number of updates; a question mark if unknown."""
    return "?" if count is None else f"{count:,}"
