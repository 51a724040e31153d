"""Let normlab and other programs take turns at the same work, and write the table.

Run by `scripts/bench/peers.sh`, which installs the other programs.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from bench.common import write_json
from bench.peers.files import MODELS, write
from bench.peers.race import ENTRIES, Entry, Kind, Race
from bench.peers.table import figures, page
from normlab.errors import UserError
from normlab.records.files import atomic_write
from normlab.training.runtime import Runtime

FORMAT = "normlab.bench.peers/1"
_RESULTS = Path(__file__).resolve().parents[3] / "results" / "bench"


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(prog="scripts/bench/peers.sh", description=__doc__)
    result.add_argument("folder", type=Path, help="where the environments are")
    result.add_argument("--model", choices=sorted(MODELS), default="b", help="default: b")
    result.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="only entries whose name starts with NAME; repeatable",
    )
    result.add_argument("--rounds", type=int, default=5, help="turns per program; default: 5")
    result.add_argument("--seconds", type=float, default=10.0, help="length of a turn; default: 10")
    result.add_argument(
        "--warmup", type=float, default=5.0, help="length of the first turn; default: 5"
    )
    result.add_argument(
        "--output",
        type=Path,
        help="both output files, without suffix; default: results/bench/peers",
    )
    return result


def main(argv: list[str]) -> int:
    """Measure and write the table."""
    arguments = parser().parse_args(argv)
    for name in ("rounds", "seconds", "warmup"):
        if getattr(arguments, name) <= 0:
            raise UserError(f"--{name}={getattr(arguments, name)} must be above 0")
    names = tuple(arguments.only or [""])
    chosen = [entry for entry in ENTRIES if entry.name.startswith(names)]
    if not chosen:
        known = ", ".join(dict.fromkeys(entry.name for entry in ENTRIES))
        raise UserError(f"--only {' '.join(names)} matches nothing; choose from {known}")
    folder = arguments.folder.resolve()
    work = write(folder / "work" / arguments.model, arguments.model)
    missing: list[dict[str, str]] = []
    rows: dict[Kind, list[dict[str, Any]]] = {"training": [], "decoding": []}
    for kind in rows:
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
        "missing": missing,
        **rows,
    }
    default = _RESULTS / ("peers" if arguments.model == "b" else f"peers_{arguments.model}")
    output = arguments.output or default
    write_json(report, output.with_suffix(".json"))
    with atomic_write(output.with_suffix(".md")) as file:
        file.write(page(report))
    print(page(report))
    return 0


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
            race.round(arguments.seconds)
    finally:
        race.close()
    missing += [
        {"name": f"{entry.name}, {entry.kind}", "reason": reason}
        for entry, reason in race.failed.items()
    ]
    return figures(race.results())
