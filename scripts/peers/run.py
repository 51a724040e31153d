"""Let normlab and other programs take turns at the same work, and write the table.

Run by `scripts/bench_peers.sh`, which makes the environments of the others.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from normlab.records.atomic import atomic_write
from normlab.train.runtime import Runtime
from peers.entries import ENTRIES, LEFT_OUT, Entry, Kind
from peers.files import MODELS, write
from peers.race import Race
from peers.table import figures, page

FORMAT = "normlab.bench.peers/1"
_RESULTS = Path(__file__).resolve().parents[2] / "results" / "bench"


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(prog="bench_peers.sh", description=__doc__)
    result.add_argument("folder", type=Path, help="where the environments are")
    result.add_argument("--model", choices=sorted(MODELS), default="b", help="default: b")
    result.add_argument(
        "--kind", choices=["training", "decoding"], action="append", help="default: both"
    )
    result.add_argument(
        "--only", action="append", metavar="NAME", help="entries whose name starts so; repeatable"
    )
    result.add_argument("--rounds", type=int, default=5, help="turns of each; default: 5")
    result.add_argument("--seconds", type=float, default=10.0, help="of a turn; default: 10")
    result.add_argument("--warmup", type=float, default=5.0, help="of the first one; default: 5")
    result.add_argument(
        "--pause", type=float, default=0.0, help="seconds after each round, for others; default: 0"
    )
    result.add_argument(
        "--output", type=Path, help="of the two files, without ending; default: results/bench/peers"
    )
    return result


def main() -> int:
    """Measure and write the table."""
    arguments = parser().parse_args()
    for name in ("rounds", "seconds", "warmup"):
        if getattr(arguments, name) <= 0:
            raise ValueError(f"--{name}={getattr(arguments, name)} must be above 0")
    names = tuple(arguments.only or [""])
    chosen = [entry for entry in ENTRIES if entry.name.startswith(names)]
    if not chosen:
        known = ", ".join(dict.fromkeys(entry.name for entry in ENTRIES))
        raise ValueError(f"--only {' '.join(names)} names nothing; there are {known}")
    folder = arguments.folder.resolve()
    work = write(folder / "work" / arguments.model, arguments.model)
    missing = [{"name": name, "reason": reason} for name, reason in LEFT_OUT.items()]
    rows: dict[Kind, list[dict[str, Any]]] = {"training": [], "decoding": []}
    for kind in arguments.kind or rows:
        entries = [entry for entry in chosen if entry.kind == kind]
        rows[kind] = measure(entries, folder, work.folder, arguments, missing)
    environment = Runtime.start(device="cpu", precision="fp32", threads=1).environment()
    del environment["precision"]  # there are several
    report = {
        "format": FORMAT,
        "date": date.today().isoformat(),
        "environment": environment,
        "work": {name: value for name, value in asdict(work).items() if name != "folder"},
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "real_time": _at_real_time(),
        "missing": missing,
        **rows,
    }
    default = _RESULTS / ("peers" if arguments.model == "b" else f"peers_{arguments.model}")
    output = arguments.output or default
    with atomic_write(output.with_suffix(".json")) as file:
        file.write(json.dumps(report, indent=1, sort_keys=True) + "\n")
    with atomic_write(output.with_suffix(".md")) as file:
        file.write(page(report))
    print(page(report))
    return 0


def _at_real_time() -> bool:
    return hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) != os.SCHED_OTHER


def measure(
    entries: Sequence[Entry],
    folder: Path,
    work: Path,
    arguments: argparse.Namespace,
    missing: list[dict[str, str]],
) -> list[dict[str, Any]]:
    """Return the rows of one kind; programs that fail go to `missing`."""
    race = Race(folder, work)
    try:
        race.start(entries, warmup=arguments.warmup)
        for _ in range(arguments.rounds):
            time.sleep(arguments.pause)
            race.round(arguments.seconds)
    finally:
        race.close()
    missing += [
        {"name": f"{entry.name}, {entry.kind}", "reason": reason}
        for entry, reason in race.failed.items()
    ]
    return figures(race.results())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ValueError as error:
        sys.exit(f"bench_peers: {error}")
