"""Many runs by Hydra: a grid, a search by a sweeper such as Optuna, or another launcher.

Hydra's basic launcher only lists the runs of a grid, and the loop of studies carries them out. With
another launcher (Slurm, Ray) a scheduler carries them out; `normlab list runs` shows them.
"""

import math
import os
import shutil
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from normlab.commands.compare import main as compare
from normlab.commands.train import train_and_say
from normlab.config.compose import CONFIG_NAME, from_hydra, register, to_dict, with_recipe
from normlab.config.registry import CONFIG_DIR
from normlab.config.schema import RunConfig
from normlab.records.files import atomic_write
from normlab.records.record import RunRecord
from normlab.records.store import RECORD_FILE, RunStore
from normlab.studies.local import INTERRUPTED, Cell, Local, own_folder, places
from normlab.studies.loop import Grid, carry_out, summary_lines
from normlab.studies.show import Lines, Runs

SEARCH_RESULT = "optimization_results.yaml"  # what Hydra's sweepers call what they have found


def run_hydra(argv: list[str], *, again: str) -> int:
    """Let Hydra read the arguments, carry out the runs, and return the exit status.

    `again` is the command that resumes.
    """
    register()
    cells: list[tuple[tuple[str, ...], Path, int | None]] = []
    sweeps = sweeps_folder(argv)
    failures = sweeps / f"failed-{uuid.uuid4().hex}"

    def job(config: DictConfig) -> float | None:
        runtime = HydraConfig.get()
        overrides = tuple(runtime.overrides.task)
        if runtime.mode != RunMode.MULTIRUN:
            train_and_say(from_hydra(config))
            return None
        grid = runtime.sweeper["_target_"].endswith("BasicSweeper")
        sought = None if grid else runtime.sweeper.get("direction")
        direction = None if sought is None else str(getattr(sought, "name", sought))
        if not runtime.launcher["_target_"].endswith("BasicLauncher"):
            note = failures / f"{runtime.job.num:06}" if grid else None
            record = train_elsewhere(config, overrides, note)
            return None if record is None else objective(record, config, direction)
        if grid:
            try:
                folder = folder_of(from_hydra(config))
            except Exception:  # the run of a wrong config fails by itself, and says why
                folder = sweeps / "wrong" / str(len(cells))
            cells.append((overrides, folder, config.observe.processes))
            return None  # all runs of a grid are known: they are begun together, below
        cell = Cell(" ".join(overrides), overrides, folder_of(from_hydra(config)))
        with Local(1, sweeps) as runner:
            (done,) = carry_out(Grid([cell]), runner, show=Lines())
        if done.status:
            raise ValueError(f"{cell.name}: {done.said}")
        return objective(RunStore(config.runs_dir).read(cell.folder), config, direction)

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach cli.py, which says them in a line
    main = hydra.main(config_path=str(CONFIG_DIR), config_name=CONFIG_NAME, version_base="1.3")
    with folder_of_search(argv, sweeps) as (place, result):
        try:
            sys.argv = ["normlab train", *with_recipe(argv), *place]
            main(job)()
        except Exception as error:
            if not type(error).__module__.startswith("submitit."):
                raise
            said = " ".join(str(error).splitlines()[:2])  # then comes all that the job has written
            raise ValueError(f"{said}; start the sweep again to resume") from error
        if result is not None and result.exists():
            print(result.read_text(encoding="utf-8"), end="")
    if failures.exists():
        return report_failures(failures)
    if not cells:
        return 0
    names = short_names([overrides for overrides, _, _ in cells])
    found = [
        Cell(name or "all defaults", overrides, folder)
        for name, (overrides, folder, _) in zip(names, cells, strict=True)
    ]
    return sweep(found, cells[0][2], sweeps, again)


def sweep(cells: list[Cell], processes: int | None, logs: Path, again: str) -> int:
    """Carry out runs side by side, show them, and compare those that ended; `again` resumes."""
    at_a_time = min(len(cells), len(places(processes)))
    with Local(processes, logs) as runner:
        shown = Runs(cells, at_a_time=at_a_time, logs=runner.logs)
        print(shown.begin(), flush=True)
        try:
            with shown:
                ended = carry_out(Grid(cells), runner, show=shown)
        except KeyboardInterrupt:
            print("\n".join(shown.stopped(again)), file=sys.stderr)
            raise
    print("\n".join(summary_lines(ended)))
    folders = dict.fromkeys(cell.folder for cell in cells)
    if there := [str(folder) for folder in folders if (folder / RECORD_FILE).is_file()]:
        print()
        compare(there)
    return 1 if any(done.status for done in ended) else 0


def train_elsewhere(
    config: DictConfig, overrides: Sequence[str], note: Path | None
) -> RunRecord | None:
    """Carry out a run inside a job of another launcher; return its record.

    With a `note`, an error is written there and the answer is None: Hydra would name only the first
    run that failed. A run that was told to stop ends the process without a result, so that the
    sweep waits for a scheduler that requeues it.
    """
    try:
        record = train_and_say(from_hydra(config))
    except Exception as error:
        if note is None:
            raise
        note.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(note) as file:
            file.write(f"{' '.join(overrides)}\n    {error}{_what_to_do(error)}\n")
        return None
    if record.outcome.status == "interrupted":
        sys.exit(INTERRUPTED)
    return record


def _what_to_do(error: Exception) -> str:
    """Return the cure for what a scheduler did to a run, to follow its error."""
    if not type(error).__module__.startswith("submitit."):
        return ""
    return (
        " Start the sweep again to resume from the last checkpoint, or let it be requeued at its "
        "time limit: hydra.launcher.max_num_timeout=10"
    )


def report_failures(folder: Path) -> int:
    """Print which runs of another launcher failed and why; return the exit status of the sweep."""
    notes = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("[0-9]*"))]
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(notes)} runs failed")
    for note in notes:
        print(f"  failed: {note}", end="")
    return 1


def folder_of(config: DictConfig) -> Path:
    """Return the folder of the run of this config."""
    return RunStore(config.runs_dir).run_dir(to_dict(config))


def sweeps_folder(argv: Sequence[str]) -> Path:
    """Return the folder of sweeps below `runs_dir`, which each process of a sweep can reach."""
    given = [text.partition("=")[2] for text in argv if text.startswith("runs_dir=")]
    return Path(given[-1].strip("'\"") if given else RunConfig().runs_dir).resolve() / ".sweeps"


@contextmanager
def folder_of_search(argv: Sequence[str], sweeps: Path) -> Iterator[tuple[list[str], Path | None]]:
    """Within the block a search has a folder of its own: yield what says so, and its result.

    Nothing, and None, for a grid, whose runs have records and nothing else to show.
    """
    named = [text.partition("=")[2] for text in argv if text.startswith("hydra/sweeper=")]
    if not named or named[-1] == "basic":
        yield [], None
        return
    with own_folder(sweeps / "search") as folder:
        result = folder / SEARCH_RESULT
        result.unlink(missing_ok=True)
        quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
        yield [f"hydra.sweep.dir='{quoted}'"], result


def objective(record: RunRecord, config: DictConfig, direction: str | None) -> float:
    """Return what a sweeper such as Optuna goes by: `valid/<select_by>` of the tested weights.

    The worst there is for a run that diverged. ValueError for a sweeper that seeks the worst score.
    """
    name = f"valid/{config.validate.select_by}"
    score = record.scores.get(name)
    if record.outcome.status == "diverged" or score is None:
        return -math.inf if direction == "maximize" else math.inf
    better = "maximize" if score.higher_is_better else "minimize"
    if direction not in (None, better):
        raise ValueError(
            f"hydra.sweeper.direction={direction} would seek the worst {name}: give "
            f"hydra.sweeper.direction={better}"
        )
    return score.value


def short_names(runs: Sequence[Sequence[str]]) -> list[str]:
    """Name each run by the overrides that not all of them have."""
    common = set(runs[0]).intersection(*runs[1:]) if len(runs) > 1 else set[str]()
    return [" ".join(text for text in overrides if text not in common) for overrides in runs]
