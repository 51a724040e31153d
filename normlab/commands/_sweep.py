"""Many runs through Hydra: a grid, a search by a sweeper such as Optuna, or another launcher.

Hydra's basic launcher only lists the runs of a grid, and the loop of studies carries them out. With
another launcher (Slurm, Ray) a scheduler carries them out; `normlab list runs` shows them.
"""

import math
import os
import shutil
import sys
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from normlab.commands.compare import main as compare
from normlab.commands.train import train_and_say
from normlab.config.compose import CONFIG_NAME, from_hydra, register, with_recipe
from normlab.config.registry import CONFIG_DIR
from normlab.config.schema import RunConfig
from normlab.records.files import atomic_write
from normlab.records.record import RunRecord
from normlab.records.store import RECORD_FILE, RunStore
from normlab.studies.loop import INTERRUPTED, Cell, Plan, carry_out
from normlab.studies.show import carry_out_shown
from normlab.train.run import Run

SEARCH_RESULT = "optimization_results.yaml"  # the file in which Hydra's sweepers save their result


def run_hydra(argv: list[str], *, again: str) -> int:
    """Let Hydra parse the arguments, carry out the runs, and return the exit status.

    `again` is the command that resumes.
    """
    register()
    cells: list[Cell] = []
    ended: set[Path] = set()  # folders of runs that had ended before
    processes: list[int | None] = []
    own = _sweeps_folder(argv) / uuid.uuid4().hex  # for this sweep only

    def job(config: DictConfig) -> float | None:
        runtime = HydraConfig.get()
        overrides = tuple(runtime.overrides.task)
        if runtime.mode != RunMode.MULTIRUN:
            train_and_say(from_hydra(config))
            return None
        grid = runtime.sweeper["_target_"].endswith("BasicSweeper")
        direction = None if grid else runtime.sweeper.get("direction")
        if not runtime.launcher["_target_"].endswith("BasicLauncher"):
            note = own / f"{runtime.job.num:06}" if grid else None
            record = _train_elsewhere(config, overrides, note)
            return None if record is None else objective(record, config, direction)
        folder = own / str(len(cells))
        with suppress(Exception):  # the run of a wrong config fails later with its own message
            run = Run(from_hydra(config))
            folder = run.folder
            if run.finished(processes=1) is not None:
                ended.add(folder)
        cells.append(Cell(" ".join(overrides), overrides, folder))
        processes.append(config.observe.processes)
        if grid:
            return None  # the runs of a grid are all known, and start together below
        (done,) = carry_out(Plan(cells[-1:]), 1)
        if done.status:
            raise ValueError(f"{done.cell.name}: {done.said}")
        return objective(RunStore(config.runs_dir).read(folder), config, direction)

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach cli.py, which prints one line
    main = hydra.main(config_path=str(CONFIG_DIR), config_name=CONFIG_NAME, version_base="1.3")
    sweepers = [text for text in argv if text.startswith("hydra/sweeper=")]
    searches = sweepers[-1:] not in ([], ["hydra/sweeper=basic"])
    quoted = str(own).replace("\\", "\\\\").replace("'", "\\'")
    try:
        place = [f"hydra.sweep.dir='{quoted}'"] if searches else []
        sys.argv = ["normlab train", *with_recipe(argv), *place]
        main(job)()
        if searches:
            result = own / SEARCH_RESULT
            print(result.read_text(encoding="utf-8") if result.exists() else "", end="")
            return 0
        if cells:
            return _sweep(cells, ended, processes[0], again)
        notes = [path.read_text(encoding="utf-8") for path in sorted(own.glob("[0-9]*"))]
        shutil.rmtree(own, ignore_errors=True)
        if notes:
            print(f"{len(notes)} runs failed")
            print("".join(f"  failed: {note}" for note in notes), end="")
        return 1 if notes else 0
    except Exception as error:
        if not type(error).__module__.startswith("submitit."):
            raise
        said = " ".join(str(error).splitlines()[:2])  # the rest is the output of the job
        raise ValueError(f"{said}; start the sweep again to resume") from error


def _sweep(cells: list[Cell], ended: set[Path], processes: int | None, again: str) -> int:
    """Carry out runs in parallel except the `ended` ones, and compare all; `again` resumes."""
    names = short_names([cell.overrides for cell in cells])
    cells = [cell._replace(name=name) for cell, name in zip(cells, names, strict=True)]
    left = [cell for cell in cells if cell.folder not in ended]
    if len(left) < len(cells):
        print(f"{len(cells) - len(left)} of {len(cells)} runs have ended before and are skipped")
    done = carry_out_shown(Plan(left), processes, again=again) if left else []
    folders = dict.fromkeys(cell.folder for cell in cells)
    if there := [str(folder) for folder in folders if (folder / RECORD_FILE).is_file()]:
        print()
        compare(there)
    return 1 if any(each.status for each in done) else 0


def _train_elsewhere(
    config: DictConfig, overrides: Sequence[str], note: Path | None
) -> RunRecord | None:
    """Carry out a run inside a job of another launcher; return its record.

    If `note` is given, an error is written to that file and None is returned, since Hydra would
    name only the first failed run. A run that was asked to stop ends the process without a result,
    so that the sweep waits for a scheduler that requeues it.
    """
    try:
        record = train_and_say(from_hydra(config))
    except Exception as error:
        if note is None:
            raise
        cure = ""
        if type(error).__module__.startswith("submitit."):  # the scheduler ended it
            cure = " Start the sweep again to resume, or give hydra.launcher.max_num_timeout=10"
        note.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(note) as file:
            file.write(f"{' '.join(overrides)}\n    {error}{cure}\n")
        return None
    if record.outcome.status == "interrupted":
        sys.exit(INTERRUPTED)
    return record


def _sweeps_folder(argv: Sequence[str]) -> Path:
    """Return the folder of sweeps below `runs_dir`, where every process of a sweep can reach it."""
    given = [text.partition("=")[2] for text in argv if text.startswith("runs_dir=")]
    return Path(given[-1].strip("'\"") if given else RunConfig().runs_dir).resolve() / ".sweeps"


def objective(record: RunRecord, config: DictConfig, direction: object) -> float:
    """Return the objective for a sweeper such as Optuna: the tested `valid/<select_by>`.

    A diverged run gets the worst value. Raises ValueError if the sweeper seeks the worst score.
    """
    name, sought = f"valid/{config.validate.select_by}", getattr(direction, "name", direction)
    score = record.scores.get(name)
    if record.outcome.status == "diverged" or score is None:
        return -math.inf if sought == "maximize" else math.inf
    better = "maximize" if score.higher_is_better else "minimize"
    if sought not in (None, better):
        raise ValueError(
            f"hydra.sweeper.direction={sought} would seek the worst {name}: give "
            f"hydra.sweeper.direction={better}"
        )
    return score.value


def short_names(runs: Sequence[Sequence[str]]) -> list[str]:
    """Name each run by the overrides that are not common to all runs."""
    common = set(runs[0]).intersection(*runs[1:]) if len(runs) > 1 else set[str]()
    names = (" ".join(text for text in overrides if text not in common) for overrides in runs)
    return [name or "all defaults" for name in names]
