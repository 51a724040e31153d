"""`normlab train`: one run; with -m or one of Hydra's search plugins, many.

Hydra's basic launcher only lists the runs of a grid, and the same loop as for studies runs them.
With another launcher (Slurm, Ray), a scheduler runs them, and `normlab list runs` shows them.
"""

import math
import os
import shlex
import shutil
import sys
import time
import uuid
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlab.commands._terminal import crash, print_line
from normlab.config.folders import CONFIG_DIR, include_words
from normlab.config.launch import check_single, end_with_the_sweep, launch
from normlab.config.schema import RunConfig
from normlab.errors import UserError
from normlab.records.files import atomic_write
from normlab.records.store import RECORD_FILE, read_record
from normlab.studies.process_pool import INTERRUPTED, LOG_FILE, RunQueue, RunToStart, run_all

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from normlab.records.record import RunRecord

_HELP = """usage: normlab train [-m] [my.yaml] [group=option ...] [key=value ...]

Train one run; with -m, one run for each combination of the values given.

examples:
  normlab train norm=bn task=toy batch_size=32
  normlab train norm=bn norm@decoder_norm=ln task=multi30k data_dir=FOLDER
  normlab train norm=ln 'sites={encoder.0.*:bn,*.self.q:rms}'
  normlab train -m norm=ln,bn batch_size=8,32,128 'seed=range(1,4)'
  normlab train experiment=gpt_bn data_dir=FOLDER debug=true  keep nothing
  normlab train my.yaml lr=1e-3 steps=500 name=baseline wandb=true

include=FOLDER        add your own norms, tasks, ... (see normlab norm --help);
                      also --config-dir FOLDER, hydra.searchpath=[file://FOLDER]
normlab list          all groups and options; with a GROUP, one group
normlab list keys     all keys with default, allowed values and meaning
--cfg job             print the whole config without training
--hydra-help          Hydra's own flags"""

_DEBUG = "debug=true: at most 3 steps, one batch of validation and of each test; no files were kept"


def main(argv: list[str]) -> int:
    """Compose the config and train; Hydra handles the flags."""
    if argv in (["--help"], ["-h"]):
        print(_HELP)
        return 0
    from normlab.config.compose import compose_written
    from normlab.config.experiments import EXPERIMENT
    from normlab.config.overrides import check_given_once, first_run, typed, written_out

    end_with_the_sweep()
    again = shlex.join(["normlab", "train", *argv, *include_words()])
    check_given_once(argv)
    argv = written_out(argv)
    if (shown := shown_config(argv)) is not None:
        print(shown, end="")
        return 0
    given = typed(argv)
    many = any(text.startswith(("-", "hydra")) for text in argv)
    if many:
        if "true" in (given.get("debug"), given.get("observe.debug")):
            raise UserError("debug=true tries one run: omit -m and the flags of a sweep")
        if {"-m", "--multirun"}.intersection(argv):
            check_single("a sweep starts its own processes")
        if EXPERIMENT in given:
            compose_written(first_run(argv))  # an error names the file
        return run_hydra(argv, again=again)
    return train_once(compose_written(argv), again=again)


def train_once(config: "DictConfig", *, again: str) -> int:
    """Train a run and return the exit status; `again` is the command that resumes it."""
    record = train_and_say(config)
    if config.observe.debug:
        print_line(_DEBUG)
    if record.outcome.status != "interrupted":
        return 0
    if _is_first_rank() and not config.observe.debug:
        print(f"to resume: {again}", file=sys.stderr)
    return INTERRUPTED


def shown_config(argv: Sequence[str]) -> str | None:
    """Return the config of a run for `--cfg job`; None for other flags, which Hydra handles.

    Hydra would print its own composition, without the values of a recipe. The values that run have
    no interpolations, so `--resolve` changes nothing.
    """
    flags = ArgumentParser(add_help=False, allow_abbrev=False)
    flags.add_argument("--cfg", "-c")
    flags.add_argument("--package", "-p")
    flags.add_argument("--resolve", action="store_true")
    known, overrides = flags.parse_known_args(argv)
    if known.cfg != "job":
        return None
    if other := [text for text in overrides if text.startswith("-")]:
        raise UserError(f"--cfg job shows the config of one run: leave out {other[0]}")
    from omegaconf import OmegaConf

    from normlab.config.compose import compose_written, to_dict

    config = OmegaConf.create(to_dict(compose_written(overrides)))
    part = OmegaConf.select(config, known.package) if known.package else config
    if not OmegaConf.is_config(part):
        raise UserError(f"--package {known.package}: the config has no such part")
    return OmegaConf.to_yaml(part)


def train_and_say(config: "DictConfig") -> "RunRecord":
    """Train a run and print its summary."""
    from normlab.training import train

    began = time.time()
    record = train(config)
    if _is_first_rank() and not _console_has_shown(config, began):
        print_line(summary(record))
    return record


def _console_has_shown(config: "DictConfig", began: float) -> bool:
    """Return whether the reader has just seen the scores on standard error, in the same terminal.

    In a file the scores are its last line, too: a sweep shows that line of a run's log.
    """
    from normlab.config.compose import to_dict
    from normlab.records.store import RunStore

    plain = to_dict(config)
    path = RunStore(plain["runs_dir"]).run_dir(plain) / RECORD_FILE
    with suppress(OSError, ValueError, AttributeError):  # an output may have no file
        one_place = os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
        one_place = one_place and sys.stdout.isatty()
        return "console" in plain["observe"]["sink"] and one_place and path.stat().st_mtime >= began
    return False


def _is_first_rank() -> bool:
    """Return whether this is rank 0 or the only process, even after the process group has ended."""
    return launch().rank == 0


def summary(record: "RunRecord") -> str:
    """Return one line about a run: its outcome and test scores."""
    from normlab.metrics.spread import NOT_CLEAR, ON_PLATEAU, flat, on_plateau

    scores = ", ".join(
        f"{name} {score.value:.4g}"
        for name, score in record.main_scores.items()
        if name.startswith("test")
    )
    reason = f" ({record.outcome.reason})" if record.outcome.reason else ""
    why = ON_PLATEAU if on_plateau(record) else NOT_CLEAR if flat(record) else ""
    but = f", but {why}:" if why else ""
    ended = f"{record.outcome.status} at step {record.outcome.step}{reason}{but}"
    return f"{record.run_id}: {ended} {scores}"


# Many runs ----------------------------------------------------------------------------------------


def run_hydra(argv: list[str], *, again: str) -> int:
    """Let Hydra parse the arguments, run everything, and return the exit status.

    `again` is the command that resumes.
    """
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from normlab.config.compose import CONFIG_NAME, from_hydra, register, with_recipe
    from normlab.config.overrides import quoted, typed
    from normlab.training.run_folder import RunFolder

    register()
    if "slurm" in typed(argv).get("hydra/launcher", "") and shutil.which("srun") is None:
        raise UserError(
            "hydra/launcher=submitit_slurm needs Slurm, but there is no srun here: start the sweep "
            "on a login node of the cluster, or leave hydra/launcher out to run it on this machine"
        )
    single: list[int] = []  # the exit status, without a sweep
    cells: list[RunToStart] = []
    before: set[Path] = set()  # folders of runs that had ended before
    configs: dict[Path, Mapping[str, Any]] = {}
    processes: list[int | None] = []
    given = typed(argv)
    # Below `runs_dir`, where every process of a sweep can reach it; for this sweep only.
    own = Path(given.get("runs_dir", RunConfig().runs_dir)).resolve() / ".sweeps" / uuid.uuid4().hex

    def job(config: "DictConfig") -> float | None:
        runtime = HydraConfig.get()
        overrides = tuple(runtime.overrides.task)
        if runtime.mode != RunMode.MULTIRUN:
            single.append(train_once(from_hydra(config), again=again))
            return None
        grid = runtime.sweeper["_target_"].endswith("BasicSweeper")
        direction = None if grid else runtime.sweeper.get("direction")
        if not runtime.launcher["_target_"].endswith("BasicLauncher"):
            note = own / f"{runtime.job.num:06}" if grid else None
            record = _train_elsewhere(config, overrides, note)
            return None if record is None else objective(record, config, direction)
        folder = own / str(len(cells))
        with suppress(Exception):  # an invalid config fails later, with its own message
            run = RunFolder(from_hydra(config))
            folder = run.folder
            configs[folder] = run.config
            if run.finished(processes=1) is not None:
                before.add(folder)
        cells.append(RunToStart(" ".join(overrides), overrides, folder))
        processes.append(config.observe.processes)
        if grid:
            return None  # the runs of a grid are all known, and start together below
        (done,) = run_all(RunQueue(cells[-1:]), 1)
        if done.status:
            raise UserError(f"{done.cell.name}: {done.last_line} ({folder / LOG_FILE})")
        return objective(read_record(folder), config, direction)

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach cli.py, which prints one line
    main = hydra.main(config_path=str(CONFIG_DIR), config_name=CONFIG_NAME, version_base="1.3")
    searches = given.get("hydra/sweeper", "basic") != "basic"
    try:
        place = [f"hydra.sweep.dir={quoted(str(own))}"] if searches else []
        sys.argv = ["normlab train", *flags_first([*with_recipe(argv), *place])]
        main(job)()
        if single:
            return single[0]
        if searches:
            result = own / "optimization_results.yaml"  # which Optuna's sweeper writes
            print(result.read_text(encoding="utf-8") if result.exists() else "", end="")
            return 0
        if cells:
            return _sweep(_in_groups(cells, configs), before, processes[0], again)
        notes = [path.read_text(encoding="utf-8") for path in sorted(own.glob("[0-9]*"))]
        shutil.rmtree(own, ignore_errors=True)
        if notes:
            print(f"{len(notes)} runs failed\n" + "".join(f"  failed: {n}" for n in notes), end="")
        return 1 if notes else 0
    except Exception as error:
        if not type(error).__module__.startswith("submitit."):
            raise
        said = " ".join(str(error).splitlines()[:2])  # the rest is the output of the job
        raise UserError(f"{said}; start the sweep again to resume") from error


def flags_first(arguments: Sequence[str]) -> list[str]:
    """Return Hydra's arguments with its flags before all overrides.

    argparse takes one block of overrides, and calls a second one, after a flag, unrecognized.
    """
    from hydra._internal.utils import get_args_parser

    overrides: list[str] = get_args_parser().parse_intermixed_args([*arguments]).overrides
    flags = [*arguments]
    for override in overrides:
        flags.remove(override)
    return [*flags, *overrides]


def _in_groups(
    cells: list[RunToStart], configs: Mapping[Path, Mapping[str, Any]]
) -> list[RunToStart]:
    """Return the cells with their W&B group and job type, if they are sent to W&B.

    A cell whose config is invalid, or that chose both itself, stays as it is.
    """
    sent = [
        (cell, configs[cell.folder])
        for cell in cells
        if "wandb" in configs.get(cell.folder, {}).get("observe", {}).get("sink", {})
    ]
    if not sent:
        return cells
    from normlab.config.overrides import quoted
    from normlab.training.wandb import groups

    named = groups([(config, cell.overrides) for cell, config in sent])
    more: dict[RunToStart, list[str]] = {}
    for (cell, config), group in zip(sent, named, strict=True):
        sink, values = "observe.sink.wandb", {"group": quoted(group), "job_type": "sweep"}
        chosen = config["observe"]["sink"]["wandb"]
        more[cell] = [f"{sink}.{k}={v}" for k, v in values.items() if chosen[k] is None]
    return [cell._replace(overrides=(*cell.overrides, *more.get(cell, ()))) for cell in cells]


def _sweep(cells: list[RunToStart], before: set[Path], processes: int | None, again: str) -> int:
    """Run what has not ended, and compare all runs; `again` is the command that resumes."""
    from normlab.commands.compare import main as compare
    from normlab.studies.show import run_all_shown

    names = short_names([cell.overrides for cell in cells])
    named = (cell._replace(name=name) for cell, name in zip(cells, names, strict=True))
    cells = each_run_once(named)
    left = [cell for cell in cells if cell.folder not in before]
    if len(left) < len(cells):
        print(f"{len(cells) - len(left)} of {len(cells)} runs had already ended and are skipped")
    ended = run_all_shown(RunQueue(left), processes, again=again) if left else []
    failed = {done.cell.folder for done in ended if done.failed}  # whose record is not of this run
    folders = [cell.folder for cell in cells if cell.folder not in failed]
    if there := [str(folder) for folder in folders if (folder / RECORD_FILE).is_file()]:
        print()
        compare(there)
    return 1 if any(done.status for done in ended) else 0


def each_run_once(cells: Iterable[RunToStart]) -> list[RunToStart]:
    """Return the cells without those that are the same run as an earlier one, and say so."""
    first: dict[Path, RunToStart] = {}
    for cell in cells:
        if (twin := first.setdefault(cell.folder, cell)) is not cell:
            same = "given twice" if cell.name == twin.name else f"the same run as {twin.name}"
            print(f"{cell.name} is {same}, so it is trained once")
    return [*first.values()]


def _train_elsewhere(
    config: "DictConfig", overrides: Sequence[str], note: Path | None
) -> "RunRecord | None":
    """Train a run inside a job of another launcher; return its record.

    If `note` is given, an error is written to that file and None is returned, since Hydra would
    name only the first failed run. A run that was asked to stop ends the process without a result,
    so that the sweep waits for a scheduler that requeues it.
    """
    from normlab.config.compose import from_hydra

    try:
        record = train_and_say(from_hydra(config))
    except Exception as error:
        if note is None:
            raise
        note.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(note) as file:
            said = str(error) if isinstance(error, UserError) else crash(error)
            file.write("\n    ".join([" ".join(overrides), *said.splitlines()]) + "\n")
        return None
    if record.outcome.status == "interrupted":
        sys.exit(INTERRUPTED)
    return record


def objective(record: "RunRecord", config: "DictConfig", direction: object) -> float:
    """Return the objective for a sweeper such as Optuna: the tested `valid/<select_by>`.

    A diverged run gets the worst value. Raises UserError if the sweeper seeks the worst score.
    """
    name, sought = f"valid/{config.validate.select_by}", getattr(direction, "name", direction)
    score = record.scores.get(name)
    if record.outcome.status == "diverged" or score is None:
        return -math.inf if sought == "maximize" else math.inf
    better = "maximize" if score.higher_is_better else "minimize"
    if sought not in (None, better):
        given = f"hydra.sweeper.direction={sought} would seek the worst {name}"
        raise UserError(f"{given}: give hydra.sweeper.direction={better}")
    return score.value


def short_names(runs: Sequence[Sequence[str]]) -> list[str]:
    """Name each run by the overrides that are not common to all runs."""
    common = set(runs[0]).intersection(*runs[1:]) if len(runs) > 1 else set[str]()
    names = (" ".join(text for text in overrides if text not in common) for overrides in runs)
    return [name or "all defaults" for name in names]
