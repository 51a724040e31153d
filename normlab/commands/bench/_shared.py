"""What the subjects of `normlab bench` share: options, cells, the machine's line, JSON."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.commands._help import HelpFormatter
from normlab.commands._paths import as_path
from normlab.records.atomic import atomic_write

if TYPE_CHECKING:
    from normlab.train.runtime import Runtime


def bench_parser(subject: str, about: str, examples: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every subject has."""
    parser = argparse.ArgumentParser(
        prog=f"normlab bench {subject}",
        description=about[0].upper() + about[1:] + ".",
        epilog=examples,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--json", type=as_path, metavar="FILE", help="write all figures to a file")
    return parser


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add the settings of what is measured, and the threads that it may use."""
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as of `normlab train`")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")


def require_positive(arguments: argparse.Namespace, *names: str) -> None:
    """Raise ValueError naming the option that is below one."""
    for name in names:
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name}={getattr(arguments, name)} must be at least 1")


def start_runtime(config: Mapping[str, Any], threads: int) -> "Runtime":
    """Settle device, precision and threads as a run of this config would."""
    from normlab.train.runtime import Runtime

    return Runtime.start(device=config["device"], precision=config["precision"], threads=threads)


def machine(environment: Mapping[str, Any]) -> str:
    """Return one line on the machine and the versions."""
    versions = ", ".join(f"{k} {environment['versions'][k]}" for k in ("python", "torch"))
    return (
        f"{environment['device']}, {environment['threads']} thread(s), "
        f"{environment['precision']}, {versions}"
    )


def spread_cells(wall: Mapping[str, float], busy: Mapping[str, float], form: str) -> list[str]:
    """Return three cells: the median by wall time, its range, the median by busy time."""
    median, low, high = (format(wall[key], form) for key in ("median", "min", "max"))
    return [median, f"{low}-{high}", format(busy["median"], form)]


def write_json(report: Mapping[str, Any], path: Path | None) -> None:
    """Write a report where one was asked for."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(json.dumps(report, indent=1, sort_keys=True) + "\n")
