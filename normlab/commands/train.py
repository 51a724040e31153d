"""`normlab train`: one run, or with -m a sweep whose cells are processes of their own."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.sweep import INTERRUPTED, Cell, Sweep, summary_lines

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from normlab.records.record import RunRecord

HELP = "train one run, or a sweep with -m"


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
    cells: list[list[str]] = []
    places: list[tuple[Path, int | None]] = []
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
        if not runtime.launcher["_target_"].endswith("BasicLauncher"):
            return best_score(train_and_say(from_hydra(config)), config)
        places.append((Path(config.runs_dir) / ".sweeps", config.observe.processes))
        cells.append(list(runtime.overrides.task))
        if runtime.sweeper["_target_"].endswith("BasicSweeper"):
            return None  # all cells are known beforehand: they are begun together, below
        ended = Sweep([cells[-1]], processes=1, logs=places[-1][0], tell=say).run()
        if ended[0].status:
            raise RuntimeError(f"{' '.join(cells[-1])}: {ended[0].said}")
        return best_score(record_of(from_hydra(config)), config)

    sys.argv = ["normlab train", *argv]
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach cli.py, which says them in a line
    hydra.main(config_path=str(CONFIG_DIR), config_name=CONFIG_NAME, version_base="1.3")(job)()
    if errors:
        raise errors[0]
    if cells:
        logs, processes = places[0]
        return report(Sweep(cells, processes=processes, logs=logs, tell=say).run(), logs)
    return max(statuses, default=0)


def train_and_say(config) -> "RunRecord":
    """Carry out a run and print its last line."""
    from normlab.build import train
    from normlab.distributed import is_main

    record = train(config)
    if is_main():
        print(summary(record))
    return record


def record_of(config: "DictConfig") -> "RunRecord":
    """Return the record that a run of this config has left."""
    from normlab.config import to_dict
    from normlab.records.store import RunStore

    store = RunStore(config.runs_dir)
    return store.read(store.run_dir(to_dict(config)))


def best_score(record: "RunRecord", config: "DictConfig") -> float | None:
    """Return the validation score that a sweeper such as Optuna goes by."""
    score = record.scores.get(f"valid/{config.validate.select_by}")
    return None if score is None else score.value


def say(line: str) -> None:
    """Print a line of progress at once."""
    print(line, flush=True)


def report(cells: list[Cell], logs: Path) -> int:
    """Print which cells failed and why; return the exit status of the sweep."""
    for line in summary_lines(cells, logs):
        print(line)
    return 1 if any(cell.status for cell in cells) else 0


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
    from normlab.registry import option_names, run_groups, sites, top_level_keys

    shown = [f"  {group}={'|'.join(option_names(group))}" for group in run_groups()]
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
