"""`normlab train`: one run, or with -m a sweep whose runs are processes of their own.

Hydra's basic launcher only gathers the runs of a grid, and the loop of studies carries them out;
with another launcher (Slurm, Ray) a scheduler carries them out, and `normlab list runs` shows them.
"""

import math
import os
import shlex
import shutil
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._arguments import listing
from normlab.studies.local import (
    INTERRUPTED,
    Cell,
    Local,
    end_with_the_sweep,
    own_folder,
    places,
)
from normlab.studies.loop import Grid, carry_out, summary_lines

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from normlab.records.record import RunRecord

SEARCH_RESULT = "optimization_results.yaml"  # what Hydra's sweepers call what they have found


def main(argv: list[str]) -> int:
    """Hand the arguments to Hydra and carry out what it composes."""
    if argv in (["--help"], ["-h"]):
        print(help_text())
        return 0
    return run_hydra(argv)


def run_hydra(argv: list[str], *, again: str | None = None) -> int:
    """Compose by Hydra (all of its flags work) and train; return the exit status.

    `again` is the command that resumes, if it is another than `normlab train ARGV`.
    """
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from normlab.config.compose import CONFIG_NAME, from_hydra, register, with_recipe
    from normlab.config.registry import CONFIG_DIR
    from normlab.config.suggest import check_arguments, check_given_once
    from normlab.records.store import RunStore
    from normlab.studies.show import Lines

    again = again or f"normlab train {shlex.join(argv)}"
    end_with_the_sweep()
    check_arguments(argv)
    check_given_once(argv)
    if (shown := shown_config(argv)) is not None:
        print(shown, end="")
        return 0
    register()
    found: list[tuple[tuple[str, ...], Path, int | None]] = []
    statuses: list[int] = []
    errors: list[Exception] = []
    sweeps = sweeps_folder(argv)
    failures = sweeps / f"failed-{uuid.uuid4().hex}"

    def job(config) -> float | None:
        runtime = HydraConfig.get()
        if runtime.mode != RunMode.MULTIRUN:
            try:
                record = train_and_say(from_hydra(config))
            except Exception as error:  # Hydra would print a trace of itself first
                errors.append(error)
                return None
            interrupted = record.outcome.status == "interrupted"
            statuses.append(INTERRUPTED if interrupted else 0)
            if interrupted and _speaks():
                print(f"to resume: {again}", file=sys.stderr)
            return None
        grid = runtime.sweeper["_target_"].endswith("BasicSweeper")
        sought = None if grid else runtime.sweeper.get("direction")
        direction = None if sought is None else str(getattr(sought, "name", sought))
        if not runtime.launcher["_target_"].endswith("BasicLauncher"):
            note = failures / f"{runtime.job.num:06}" if grid else None
            record = train_elsewhere(config, note)
            return None if record is None else objective(record, config, direction)
        overrides = tuple(runtime.overrides.task)
        if grid:
            try:
                folder = folder_of(from_hydra(config))
            except Exception:  # the run of a wrong config fails by itself, and says why
                folder = sweeps / "wrong" / str(len(found))
            found.append((overrides, folder, config.observe.processes))
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
        if errors:
            raise errors[0]
        if result is not None and result.exists():
            print(result.read_text(encoding="utf-8"), end="")
            return 0
    if found:
        names = short_names([overrides for overrides, _, _ in found])
        cells = [
            Cell(name or "all defaults", overrides, folder)
            for name, (overrides, folder, _) in zip(names, found, strict=True)
        ]
        return sweep(cells, found[0][2], sweeps, again)
    if failures.exists():
        return report_failures(failures)
    return max(statuses, default=0)


def shown_config(argv: Sequence[str]) -> str | None:
    """Return the config that `--cfg job` asks for as it will run; None if Hydra must answer.

    Hydra would print its own composition, in which recipes and batch sizes are not settled.
    """
    from argparse import ArgumentParser

    from omegaconf import OmegaConf

    from normlab.config.compose import compose, to_dict

    flags = ArgumentParser("normlab train", add_help=False, allow_abbrev=False)
    flags.add_argument("--cfg", "-c")
    flags.add_argument("--package", "-p", default="")
    flags.add_argument("--resolve", action="store_true")  # all values are resolved
    known, overrides = flags.parse_known_args(argv)
    if known.cfg != "job" or any(text.startswith("-") for text in overrides):
        return None
    plain = to_dict(compose(overrides))
    part = config = OmegaConf.create(plain)
    if known.package:
        part = OmegaConf.select(config, known.package)
    if not OmegaConf.is_config(part):
        raise ValueError(f"--package {known.package} does not exist: there are {', '.join(plain)}")
    return OmegaConf.to_yaml(part)


def sweep(cells: list[Cell], processes: int | None, logs: Path, again: str) -> int:
    """Carry out runs side by side, show them, and compare those that ended; `again` resumes."""
    from normlab.commands.compare import main as compare
    from normlab.records.store import RECORD_FILE
    from normlab.studies.show import Runs

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


def train_and_say(config) -> "RunRecord":
    """Carry out a run and print its last line."""
    if _speaks() and sys.stderr is not None and sys.stderr.isatty():
        print("preparing", file=sys.stderr, flush=True)  # loading torch alone takes seconds
    from normlab.train.run import train

    record = train(config)
    if _speaks():
        print(summary(record))
    return record


def _speaks() -> bool:
    """Tell whether this is the first process of torchrun, or the only one; also after the run."""
    return os.environ.get("RANK", "0") == "0"


def train_elsewhere(config: "DictConfig", note: Path | None) -> "RunRecord | None":
    """Carry out a run inside a job of another launcher; return its record.

    With a `note`, an error is written there and the answer is None: Hydra would name only the first
    run that failed. A run that was told to stop ends the process without a result, so that the
    sweep waits for a scheduler that requeues it.
    """
    from hydra.core.hydra_config import HydraConfig

    from normlab.config.compose import from_hydra

    try:
        record = train_and_say(from_hydra(config))
    except Exception as error:
        if note is None:
            raise
        from normlab.records.files import atomic_write

        note.parent.mkdir(parents=True, exist_ok=True)
        overrides = " ".join(HydraConfig.get().overrides.task)
        with atomic_write(note) as file:
            file.write(f"{overrides}\n    {error}{_what_to_do(error)}\n")
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


def folder_of(config: "DictConfig") -> Path:
    """Return the folder of the run of this config."""
    from normlab.config.compose import to_dict
    from normlab.records.store import RunStore

    return RunStore(config.runs_dir).run_dir(to_dict(config))


def sweeps_folder(argv: list[str]) -> Path:
    """Return the folder of sweeps below `runs_dir`, which each process of a sweep can reach."""
    from normlab.config.schema import RunConfig

    given = [value for key, _, value in (text.partition("=") for text in argv) if key == "runs_dir"]
    return Path(given[-1].strip("'\"") if given else RunConfig().runs_dir).resolve() / ".sweeps"


@contextmanager
def folder_of_search(argv: list[str], sweeps: Path) -> Iterator[tuple[list[str], Path | None]]:
    """Within the block a search has a folder of its own: yield what says so, and its result.

    Nothing, and None, for a grid, whose runs have records and nothing else to show.
    """
    parts = (text.partition("=") for text in argv)
    named = [value for key, _, value in parts if key == "hydra/sweeper"]
    if not named or named[-1] == "basic":
        yield [], None
        return
    with own_folder(sweeps / "search") as folder:
        result = folder / SEARCH_RESULT
        result.unlink(missing_ok=True)
        quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
        yield [f"hydra.sweep.dir='{quoted}'"], result


def objective(record: "RunRecord", config: "DictConfig", direction: str | None) -> float:
    """Return what a sweeper such as Optuna goes by: `valid/<select_by>` of the tested weights.

    The worst there is for a run that diverged. ValueError for a sweeper that seeks the worst score.
    """
    score = record.scores.get(f"valid/{config.validate.select_by}")
    if record.outcome.status == "diverged" or score is None:
        return -math.inf if direction == "maximize" else math.inf
    better = "maximize" if score.higher_is_better else "minimize"
    if direction not in (None, better):
        raise ValueError(
            f"hydra.sweeper.direction={direction} would seek the worst "
            f"valid/{config.validate.select_by}: give hydra.sweeper.direction={better}"
        )
    return score.value


def short_names(runs: Sequence[Sequence[str]]) -> list[str]:
    """Name each run by the overrides that not all of them have."""
    common = set(runs[0]).intersection(*runs[1:]) if len(runs) > 1 else set[str]()
    return [" ".join(text for text in overrides if text not in common) for overrides in runs]


def report_failures(folder: Path) -> int:
    """Print which runs of another launcher failed and why; return the exit status of the sweep."""
    notes = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("[0-9]*"))]
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(notes)} runs failed")
    for note in notes:
        print(f"  failed: {note}", end="")
    return 1


def summary(record: "RunRecord") -> str:
    """Return the last line of a run: its outcome and test scores."""
    from normlab.metrics.spread import learned

    scores = ", ".join(
        f"{name} {score.value:.4g}"
        for name, score in record.main_scores.items()
        if name.startswith("test")
    )
    reason = f" ({record.outcome.reason})" if record.outcome.reason else ""
    but = ", but no better than the untrained baseline:" if learned(record) is False else ""
    ended = f"{record.outcome.status} at step {record.outcome.step}{reason}{but}"
    return f"{record.run_id}: {ended} {scores}"


def help_text() -> str:
    """Return the help page: usage, examples, groups with their options, keys."""
    from normlab.config.registry import option_names, run_groups
    from normlab.config.schema import top_level_keys
    from normlab.config.sites import NORM_KEYS

    groups = {group: option_names(group) for group in run_groups()}
    return "\n".join(
        [
            "usage: normlab train [-m] [group=option ...] [key=value ...]",
            "",
            "examples:",
            "  normlab train norm=bn task=toy batch_size=32",
            "  normlab train norm=bn norm@decoder_norm=ln task=multi30k data_dir=FOLDER",
            "  normlab train norm=ln 'sites={encoder.0.*:bn,*.self.q:rms}'",
            "  normlab train -m norm=ln,bn batch_size=8,32,128 'seed=range(1,4)'",
            "",
            "groups:",
            *(listing(f"  {group}=", names, between=" | ") for group, names in groups.items()),
            "",
            listing("the norm of one site: ", (f"norm@{key}=OPTION" for key in NORM_KEYS[1:])),
            "",
            listing("keys: ", top_level_keys()),
            "",
            "more: --cfg job shows the whole config; --hydra-help shows Hydra's own flags;",
            "      normlab list GROUP describes the options of a group",
        ]
    )
