"""The cost of a study's runs on this machine: measured by short trial runs, stored, and added up.

A trial run trains a configuration for some seconds in its own process, within the share of the
machine that a run would get (`normlab.bench.cost`). The key under which a cost is stored leaves out
what cannot change it (seed, learning rate, length of the run); it includes code, machine and data.
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
from normlab.studies.loop import Cell, Grid, carry_out, places, visible_gpus
from normlab.studies.runs import Run
from normlab.studies.study import Study
from normlab.train.console import duration
from normlab.train.run import NUMERICS

FOLDER = ".plan"
"""The folder of measured costs, in the folder of runs."""
COLUMNS = ("#", "row", "point", "runs", "to go", "updates", "ms/update", "MiB", "hours")
_MODULE = ("normlab.bench.cost",)
_MOST_SECONDS, _LEAST_SECONDS = 20.0, 1.0
_ALL_SECONDS = 480.0  # for all trial runs of a study, not counting their start-up
_SHARE = 20  # a trial run takes 1/_SHARE of a run's estimated time
_FREE = ("budget", "schedule", "divergence_factor")

Cost = Mapping[str, Any]
"""A cost that `normlab.bench.cost` measured."""


class Costs:
    """Measures configurations and stores their costs in the folder of runs, `root`.

    `processes` is the number of runs at a time, as in `places`.
    """

    def __init__(self, root: Path, processes: int | None) -> None:
        self.folder, self.processes = root / FOLDER, processes
        self.at_a_time = len(places(processes))
        machine = [platform.node(), str(os.cpu_count()), *visible_gpus()]
        self._surroundings = [NUMERICS, machine, places(processes)[0].threads, self.at_a_time]

    def of(self, run: Run) -> Cost | None:
        """Return the stored cost of a run's configuration; None if it was not measured."""
        try:
            return read_json(self.folder / f"{self.key(run.config)}.json")
        except (OSError, ValueError):
            return None

    def measure(self, runs: Sequence[Run], minutes: float, say: Callable[[str], object]) -> None:
        """Measure the configurations without a stored cost; runs are estimated to take `minutes`.

        Trial runs are carried out in parallel like the runs themselves. `say` prints progress.
        """
        missing = {self.key(run.config): run for run in runs if self.of(run) is None}
        if not missing:
            return
        most = min(_MOST_SECONDS, 60 * minutes / _SHARE, _ALL_SECONDS / len(missing))
        seconds = max(_LEAST_SECONDS, most)
        say(
            f"measuring: training {len(missing)} configuration(s) for about {seconds:.0f} s each, "
            f"{self.at_a_time} at a time; nothing of these trial runs is kept but their cost"
        )
        cells = [
            Cell(
                f"{run.planned.row} {run.planned.point}".strip(),
                (*run.planned.overrides, f"--seconds={seconds:.1f}"),
                self.folder / key,
            )
            for key, run in missing.items()
        ]
        for done in carry_out(Grid(cells), self.processes, module=_MODULE):
            try:
                found = json.loads(done.said)
                took = f"{1e3 * found['update_seconds']:.0f} ms per update"
            except (ValueError, TypeError, KeyError):
                say(f"  {done.cell.name}: not measured: {done.said}")
                continue
            with atomic_write(done.cell.folder.with_suffix(".json")) as file:
                file.write(done.said)
            say(f"  {done.cell.name}: {took}, {found['updates_measured']} updates measured")

    def key(self, config: Mapping[str, Any]) -> str:
        """Return the key under which the cost of a config is stored."""
        kept = {name: value for name, value in config.items() if name not in _FREE}
        kept["optim"] = {name: value for name, value in config["optim"].items() if name != "lr"}
        kept["validate"] = config["validate"]["recalibration_batches"]
        observe = config["observe"]
        seen = {name: observe[name] for name in ("probe", "log_every", "fast", "threads")}
        whole = [fingerprint(kept), seen, config["data_dir"], config["device"], self._surroundings]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:20]

    def table(
        self, study: Study, scale: str, runs: Sequence[Run], left: Sequence[Run]
    ) -> tuple[list[list[str]], list[str]]:
        """Return the table rows (`COLUMNS`), one per row and point, and notes on data and time."""
        size = study.scale(scale)
        lines: list[list[str]] = []
        total, costs = 0.0, list[Cost]()
        groups: dict[tuple[str, str], list[Run]] = {}
        for run in runs:
            groups.setdefault(run.planned[:2], []).append(run)
        for (row, point), own in groups.items():
            to_go, cost = sum(run in left for run in own), self.of(own[0])
            seconds, measured = 60 * size.minutes, ["-", "-"]
            if cost is not None:
                costs.append(cost)
                seconds = estimate(own[0].config, cost)
                update, memory = 1e3 * cost["update_seconds"], cost["memory_bytes"] / 2**20
                measured = [f"{update:.0f}", f"{memory:.0f}"]
            total += seconds * to_go
            updates = planned_updates(own[0].config, cost)
            counts = [str(len(own)), str(to_go), "?" if updates is None else f"{updates:,}"]
            hours = f"{'' if cost else '~'}{seconds * to_go / 3600:.2f}"
            lines.append([str(size.rows.index(row) + 1), row, point, *counts, *measured, hours])
        lines.sort(key=lambda line: int(line[0]))
        data = next((f"{each['data']['label']}, {each['data']['origin']}" for each in costs), None)
        at_once = f", {duration(total / self.at_a_time)} with {self.at_a_time} at once"
        time = f"time: {duration(total)} one run after the other"
        notes = [f"data: {data or size.data}", time + (at_once if self.at_a_time > 1 else "")]
        if costs:
            at = costs[0]["environment"]
            used = f"{at['device']}, {at['threads']} thread(s) per run, {at['precision']}"
            notes.append(f"measured here ({used})")
        if len(costs) < len(groups):
            notes.append(f"~ is not measured: {size.minutes:g} minutes per run, as the study says")
        if size.pilot:
            notes.append("a pilot: these runs never count as evidence")
        return lines, notes


def planned_updates(config: Mapping[str, Any], cost: Cost | None = None) -> int | None:
    """Return the number of updates in a config's budget; None if that takes a measured cost."""
    limits = {name: limit for name, limit in config["budget"].items() if limit is not None}
    per = {"steps": 1.0}
    if cost is not None:
        per["epochs"] = cost["updates_per_epoch"]
        per["tokens"] = 1 / cost["tokens_per_update"]
        per["minutes"] = 60 / cost["update_seconds"]
    if not limits or limits.keys() - per:
        return None
    return min(math.ceil(limit * per[name]) for name, limit in limits.items())


def estimate(config: Mapping[str, Any], cost: Cost) -> float:
    """Return the longest time, in seconds, that a run of a config takes by a measured cost."""
    updates = planned_updates(config, cost)
    assert updates is not None, "a budget has a limit"
    validations = math.ceil(updates / config["validate"]["every"])
    return (
        cost["start_seconds"]
        + cost["update_seconds"] * updates
        + cost["validation_seconds"] * validations
        + cost["test_seconds"]
    )
