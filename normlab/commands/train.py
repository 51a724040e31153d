"""`normlab train`: one run, or with -m a sweep whose cells are processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from normlab.records.record import RunRecord

HELP = "train one run, or a sweep with -m"
INTERRUPTED = 130
"""Exit status of a run that was told to stop, and has saved."""


@dataclass(frozen=True)
class Cell:
    """One cell of a sweep: its overrides and the exit status of its process."""

    overrides: list[str]
    status: int


def main(argv: list[str]) -> int:
    """Hand the arguments to Hydra and carry out what it composes."""
    if argv in (["--help"], ["-h"]):
        print(help_text())
        return 0
    return run_hydra(argv)


def run_hydra(argv: list[str]) -> int:
    """Compose by Hydra (all of its flags work) and train; return the exit status."""
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from normlab.config import CONFIG_NAME, from_hydra, register
    from normlab.registry import CONFIG_DIR

    register()
    cells: list[Cell] = []
    statuses: list[int] = []
    errors: list[Exception] = []

    def job(config) -> float | None:
        runtime = HydraConfig.get()
        if runtime.mode != RunMode.MULTIRUN:
            try:
                record = train_and_say(from_hydra(config))
            except Exception as error:  # Hydra would print a trace of itself first
                errors.append(error)
                return None
            statuses.append(INTERRUPTED if record.outcome.status == "interrupted" else 0)
            return None
        if runtime.launcher["_target_"].endswith("BasicLauncher"):
            cells.append(run_cell(list(runtime.overrides.task), runtime.job.num))
            return None
        record = train_and_say(from_hydra(config))
        score = record.scores.get(f"valid/{config.validate.select_by}")
        return None if score is None else score.value

    sys.argv = ["normlab train", *argv]
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach cli.py, which says them in a line
    hydra.main(config_path=str(CONFIG_DIR), config_name=CONFIG_NAME, version_base="1.3")(job)()
    if errors:
        raise errors[0]
    if cells:
        return report(cells)
    return max(statuses, default=0)


def train_and_say(config) -> "RunRecord":
    """Carry out a run and print its last line."""
    from normlab.build import train
    from normlab.distributed import is_main

    record = train(config)
    if is_main():
        print(summary(record))
    return record


def run_cell(overrides: list[str], number: int) -> Cell:
    """Train one cell in a process of its own: a crash costs that cell alone.

    Ctrl-C reaches the cell too, which saves and ends; SIGTERM is passed on to it.
    """
    print(f"cell {number}: {' '.join(overrides)}", flush=True)
    process = subprocess.Popen([sys.executable, "-m", "normlab", "train", *overrides])
    with handled(signal.SIGINT, lambda: None), handled(signal.SIGTERM, process.terminate):
        status = process.wait()
    if status in (INTERRUPTED, -signal.SIGINT, -signal.SIGTERM):
        raise KeyboardInterrupt
    return Cell(overrides, status)


@contextmanager
def handled(number: signal.Signals, action: Callable[[], object]) -> Iterator[None]:
    """Within the block, do `action` at a signal instead of what is usual."""
    former = signal.signal(number, lambda *_: action())
    try:
        yield
    finally:
        signal.signal(number, former)


def report(cells: list[Cell]) -> int:
    """Print which cells failed; return the exit status of the sweep."""
    failed = [cell for cell in cells if cell.status]
    print(f"{len(cells) - len(failed)} of {len(cells)} cells done")
    for cell in failed:
        print(f"  failed with status {cell.status}: {' '.join(cell.overrides)}")
    return 1 if failed else 0


def summary(record: "RunRecord") -> str:
    """Return the last line of a run: its outcome and test scores."""
    scores = ", ".join(
        f"{name} {score.value:.4g}"
        for name, score in record.main_scores.items()
        if name.startswith("test")
    )
    reason = f" ({record.outcome.reason})" if record.outcome.reason else ""
    return (
        f"{record.run_id}: {record.outcome.status} at step {record.outcome.step}{reason} {scores}"
    )


def help_text() -> str:
    """Return the help page: usage, examples, groups with their options, keys."""
    from normlab.registry import groups, option_names, sites, top_level_keys

    shown = [f"  {group}={'|'.join(option_names(group))}" for group in groups()]
    return "\n".join(
        [
            "usage: normlab train [-m] [group=option ...] [key=value ...]",
            "",
            "examples:",
            "  normlab train norm=bn task=toy batch_size=32",
            "  normlab train norm=bn norm@decoder_norm=ln task=multi30k data_dir=FOLDER",
            "  normlab train -m norm=ln,bn batch_size=8,32,128 'seed=range(1,4)'",
            "",
            "groups:",
            *shown,
            "",
            "the norm of one site: " + ", ".join(f"{site}=OPTION" for site in sites()),
            "",
            "keys: " + " ".join(top_level_keys()),
            "",
            "more: --cfg job shows the whole config; --hydra-help shows Hydra's own flags;",
            "      normlab ls GROUP describes the options of a group",
        ]
    )
