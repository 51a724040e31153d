"""What configurations cost on this machine: each is measured once and kept beside the runs.

A probe is `python -m normlab.bench.cost` in a process of its own, under the share of the machine
that a run would have. What cannot change a cost (the seed, the rate, the length of the run) is no
part of what it is kept under; code, machine and data are.
"""

import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from normlab.records.atomic import atomic_write
from normlab.records.code import code_hash
from normlab.records.files import read_json
from normlab.records.fingerprint import fingerprint
from normlab.sweep import Place, places, visible_gpus

FOLDER = ".plan"
"""Where costs are kept, below the folder of runs."""
NO_TIME = "the budget has no time for it (--plan measures)"
_MOST_SECONDS, _LEAST_SECONDS = 20.0, 1.0
_ALL_SECONDS = 480.0  # of all probes of a study together, not counting how long they take to start
_SHARE = 20  # of the minutes typed in for a run, a probe takes one part
_FREE = ("budget", "schedule", "divergence_factor")
_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Subject:
    """A run to be measured: its config and the overrides that make it."""

    config: Mapping[str, Any]
    overrides: tuple[str, ...]


class Probes:
    """Measures subjects, and keeps what it found.

    Args:
        root: the folder of runs.
        processes: runs at a time, as `places` has it.
        minutes: what a run is said to take; a probe takes a small part of it.
    """

    def __init__(self, root: Path, *, processes: int | None, minutes: float) -> None:
        self.places = places(processes)
        self._root = root / FOLDER
        self._minutes = minutes
        self._known: dict[str, dict[str, Any] | str] = {}
        self._surroundings = [code_hash(), _machine(), self.places[0].overrides, len(self.places)]

    def missing(self, subjects: Sequence[Subject]) -> dict[str, Subject]:
        """Return those that are to be measured, by what they are kept under; reads what is kept."""
        found: dict[str, Subject] = {}
        for subject in subjects:
            key = self.key(subject.config)
            if key in self._known or key in found:
                continue
            try:
                kept = read_json(self._root / f"{key}.json")
            except (OSError, ValueError):
                kept = None
            if isinstance(kept, dict):
                self._known[key] = kept
            else:
                found[key] = subject
        return found

    def measure(self, missing: Mapping[str, Subject], until: float = math.inf) -> None:
        """Measure subjects, as many at a time as there will be runs; begin none after `until`."""
        free: SimpleQueue[Place] = SimpleQueue()
        for place in self.places:
            free.put(place)
        seconds = self.seconds(len(missing))

        def take(key: str) -> None:
            if time.monotonic() >= until:
                return
            place = free.get()
            try:
                self._known[key] = self._taken(key, missing[key], place, seconds)
            finally:
                free.put(place)
            if sys.stderr.isatty():
                done = sum(each in self._known for each in missing)
                print(f"\r{done} of {len(missing)}", end="\r", file=sys.stderr, flush=True)

        with ThreadPoolExecutor(len(self.places)) as pool:
            list(pool.map(take, missing))

    def seconds(self, count: int) -> float:
        """Return the seconds that each of so many probes works."""
        most = min(_MOST_SECONDS, 60 * self._minutes / _SHARE, _ALL_SECONDS / max(1, count))
        return max(_LEAST_SECONDS, most)

    def cost(self, config: Mapping[str, Any]) -> dict[str, Any] | str:
        """Return what was measured of a config, or why it could not be."""
        return self._known.get(self.key(config), NO_TIME)

    def key(self, config: Mapping[str, Any]) -> str:
        """Return what the cost of a config is kept under."""
        kept = {name: value for name, value in config.items() if name not in _FREE}
        kept["optim"] = {name: value for name, value in config["optim"].items() if name != "lr"}
        kept["validate"] = config["validate"]["recalibration_batches"]
        observe = config["observe"]
        seen = {name: observe[name] for name in ("probe", "log_every", "fast", "threads")}
        whole = [fingerprint(kept), seen, config["data_dir"], config["device"], self._surroundings]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:20]

    def _taken(
        self, key: str, subject: Subject, place: Place, seconds: float
    ) -> dict[str, Any] | str:
        given = {override.split("=")[0] for override in subject.overrides}
        own = [setting for setting in place.overrides if setting.split("=")[0] not in given]
        command = [sys.executable, "-m", "normlab.bench.cost", *subject.overrides, *own]
        done = subprocess.run(
            [*command, "--seconds", f"{seconds:.1f}"],
            env={**os.environ, **dict(place.variables)},
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            return lines[-1]
        self._root.mkdir(parents=True, exist_ok=True)
        with atomic_write(self._root / f"{key}.json") as file:
            file.write(done.stdout)
        return json.loads(done.stdout)


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
