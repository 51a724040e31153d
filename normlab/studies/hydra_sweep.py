"""The runs that Hydra starts for one `normlab train`: one run, a grid, a search or cluster jobs."""

import math
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from normlab.config.folders import CONFIG_DIR
from normlab.config.launch import check_single
from normlab.config.schema import RunConfig
from normlab.errors import UserError
from normlab.records.files import check_writable
from normlab.records.store import RECORD_FILE, read_record
from normlab.studies.cluster_jobs import FailureNotes, submitit_jobs, train_in_job
from normlab.studies.process_pool import (
    LOG_FILE,
    EndedRun,
    RunsInOrder,
    RunToStart,
    run_all,
)

if TYPE_CHECKING:
    from hydra.conf import HydraConf
    from omegaconf import DictConfig

    from normlab.records.record import RunRecord

_BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
_BASIC_LAUNCHER = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
"""The classes of Hydra's own sweeper and launcher, which it uses by default."""
_NEW_VALUES = (
    "hydra.sweeper.sampler.seed is not set, so the search will draw other values; with a seed, it "
    "repeats its trials, and those that have ended are not trained again"
)


class SweepActions(NamedTuple):
    """The functions that a sweep needs from its caller.

    `train` trains a run in this process and returns its record. `train_alone` trains the only run
    and returns its exit status. `compare` shows the runs in some folders.
    """

    train: "Callable[[DictConfig], RunRecord]"
    train_alone: "Callable[[DictConfig], int]"
    compare: Callable[[list[Path]], None]


def run_hydra(argv: list[str], resume_command: str, actions: SweepActions) -> int:
    """Let Hydra parse the arguments, run everything, and return the exit status.

    `resume_command` is shown to the user if runs are interrupted.
    """
    import hydra

    from normlab.config.compose import CONFIG_NAME, compose_written, register, with_recipe
    from normlab.config.experiments import EXPERIMENT
    from normlab.config.overrides import first_run, quoted, typed

    values = typed(argv)
    _check_sweep(argv, values)
    if EXPERIMENT in values:
        compose_written(first_run(argv))  # so that an error contains the file
    register()
    runs = HydraRuns(values, resume_command, actions)

    def job(config: "DictConfig") -> float | None:
        return runs.execute(config)

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # cli.py gets errors and prints one line
    main = hydra.main(config_path=str(CONFIG_DIR), config_name=CONFIG_NAME, version_base="1.3")
    place = [f"hydra.sweep.dir={quoted(str(runs.folder))}"] if runs.is_search else []
    sys.argv = ["normlab train", *flags_first([*with_recipe(argv), *place])]
    jobs = submitit_jobs(None if runs.is_search else runs.failures)
    try:
        with jobs if "submitit" in values.get("hydra/launcher", "") else nullcontext():
            main(job)()
    except BaseException:
        runs.failures.print_all()
        raise
    return runs.finish()


def _check_sweep(argv: Sequence[str], values: Mapping[str, Any]) -> None:
    """Raise UserError if a sweep with these arguments cannot start here."""
    if True in (values.get("debug"), values.get("observe.debug")):
        raise UserError("debug=true tries one run; omit -m and the flags of a sweep")
    if {"-m", "--multirun"}.intersection(argv):
        check_single("a sweep starts its own processes")
        check_writable(_runs_dir(values))  # before Hydra makes a folder in it
    if "slurm" in values.get("hydra/launcher", "") and shutil.which("srun") is None:
        raise UserError(
            "hydra/launcher=submitit_slurm needs Slurm, but there is no srun here: start the sweep "
            "on a login node of the cluster, or leave hydra/launcher out to run it on this machine"
        )


def _runs_dir(values: Mapping[str, Any]) -> Path:
    """Return the folder of the runs of a sweep."""
    return Path(values.get("runs_dir", RunConfig().runs_dir))


def flags_first(arguments: Sequence[str]) -> list[str]:
    """Return Hydra's arguments with its flags before all overrides.

    argparse takes a single block of overrides, and rejects a second block after a flag.
    """
    from hydra._internal.utils import get_args_parser  # the parser is not public

    overrides: list[str] = get_args_parser().parse_intermixed_args([*arguments]).overrides
    flags = [*arguments]
    for override in overrides:
        flags.remove(override)
    return [*flags, *overrides]


class HydraRuns:
    """The runs of one command. Hydra passes each config to `execute`. `finish` ends the command.

    With Hydra's basic launcher, `execute` only lists the runs of a grid, which all start together
    in `finish`. A search executes its runs one after the other, and another launcher runs them in
    other processes.

    Args:
        values: the settings and Hydra flags from the command line.
        resume_command: shown to the user if the runs are interrupted.
        actions: the caller's functions.
    """

    def __init__(
        self, values: Mapping[str, Any], resume_command: str, actions: SweepActions
    ) -> None:
        self.actions = actions
        # A folder of this sweep below `runs_dir`, where all of its processes can reach it.
        self.folder = _runs_dir(values).resolve() / ".sweeps" / uuid.uuid4().hex
        self.failures = FailureNotes(self.folder)
        self.is_search = values.get("hydra/sweeper", "basic") != "basic"
        self.resume_command = resume_command
        self._status: int | None = None  # if there is only one run
        self._runs: list[RunToStart] = []
        self._ended: set[Path] = set()  # folders of runs that had ended before
        self._configs: dict[Path, Mapping[str, Any]] = {}
        self._processes: int | None = None

    def execute(self, config: "DictConfig") -> float | None:
        """Train a run, or list it for `finish`, and return the objective of a search."""
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode

        from normlab.config.compose import from_hydra

        hydra = HydraConfig.get()
        if hydra.mode != RunMode.MULTIRUN:
            self._status = self.actions.train_alone(from_hydra(config))
            return None
        is_grid = hydra.sweeper["_target_"] == _BASIC_SWEEPER
        direction = None if is_grid else hydra.sweeper.get("direction")
        if hydra.launcher["_target_"] != _BASIC_LAUNCHER:
            return self._execute_elsewhere(config, hydra, direction, is_grid=is_grid)
        run = self._add(config, tuple(hydra.overrides.task))
        return None if is_grid else self._execute_trial(run, config, hydra.sweeper)

    def _execute_elsewhere(
        self, config: "DictConfig", hydra: "HydraConf", direction: object, *, is_grid: bool
    ) -> float | None:
        """Train a run in this process, which another launcher has started."""
        number, overrides = hydra.job.num, tuple(hydra.overrides.task)
        note_failure = partial(self.failures.write, number, overrides) if is_grid else None
        record = train_in_job(config, self.actions.train, note_failure)
        return None if record is None else objective(record, config, direction)

    def _execute_trial(self, run: RunToStart, config: "DictConfig", sweeper: "DictConfig") -> float:
        """Train a run of a search in a process of its own, and return its objective."""
        try:
            (done,) = run_all(RunsInOrder([run]), 1)
        except KeyboardInterrupt:
            print(f"stopped; resume with: {self.resume_command}", file=sys.stderr)
            if sweeper.get("sampler", {}).get("seed", 0) is None:
                print(_NEW_VALUES, file=sys.stderr)
            raise
        if done.status:
            raise UserError(f"{done.run.name}: {done.last_line} ({run.folder / LOG_FILE})")
        return objective(read_record(run.folder), config, sweeper.get("direction"))

    def _add(self, config: "DictConfig", overrides: tuple[str, ...]) -> RunToStart:
        """Add a run to the sweep and return it."""
        from normlab.config.compose import from_hydra
        from normlab.training.run_folder import RunFolder

        folder = self.folder / str(len(self._runs))
        with suppress(Exception):  # an invalid config fails later, with its own message
            run_folder = RunFolder(from_hydra(config))
            folder = run_folder.folder
            self._configs[folder] = run_folder.config
            if run_folder.finished(processes=1) is not None:
                self._ended.add(folder)
        if not self._runs:
            self._processes = config.observe.processes
        self._runs.append(RunToStart(" ".join(overrides), overrides, folder))
        return self._runs[-1]

    def finish(self) -> int:
        """Run a grid, or print the results of a search or of cluster jobs. Return the status."""
        if self._status is not None:
            return self._status
        if self.is_search:
            return self._print_best()
        if self._runs:
            names = short_names([run.overrides for run in self._runs])
            runs = [r._replace(name=name) for r, name in zip(self._runs, names, strict=True)]
            return self._run_grid(_in_groups(runs, self._configs))
        return 1 if self.failures.print_all() else 0

    def _print_best(self) -> int:
        """Print the best trial of a search, and return the status."""
        result = self.folder / "optimization_results.yaml"  # written by Optuna's sweeper
        text = result.read_text(encoding="utf-8") if result.exists() else "{}"
        best = yaml.safe_load(text)
        if math.isinf(best.get("best_value", 0.0)):
            raise UserError("all trials of the search diverged, so none of them is the best")
        print(text if best else "", end="")
        return 0

    def _run_grid(self, runs: Sequence[RunToStart]) -> int:
        """Execute the runs that have not ended, and compare all runs."""
        from normlab.studies.runs_display import run_all_shown

        runs = each_run_once(runs)
        left = [run for run in runs if run.folder not in self._ended]
        if len(left) < len(runs):
            print(f"{len(runs) - len(left)} of {len(runs)} runs had already ended and are skipped")
        ended: list[EndedRun] = []
        if left:
            queue, command = RunsInOrder(left), self.resume_command
            ended = run_all_shown(queue, self._processes, resume_command=command)
        failed = {done.run.folder for done in ended if done.failed}  # these have an old record
        folders = [run.folder for run in runs if run.folder not in failed]
        if recorded := [folder for folder in folders if (folder / RECORD_FILE).is_file()]:
            print()
            self.actions.compare(recorded)
        return 1 if any(done.status for done in ended) else 0


def _in_groups(
    runs: list[RunToStart], configs: Mapping[Path, Mapping[str, Any]]
) -> list[RunToStart]:
    """Return the runs, with a group and a job type for those that are sent to W&B.

    A run whose config is invalid or already sets both is unchanged.
    """
    sent = [
        (run, configs[run.folder])
        for run in runs
        if "wandb" in configs.get(run.folder, {}).get("observe", {}).get("sink", {})
    ]
    if not sent:
        return runs
    from normlab.config.overrides import quoted
    from normlab.training.wandb import groups

    group_names = groups([(config, run.overrides) for run, config in sent])
    more: dict[RunToStart, list[str]] = {}
    for (run, config), group in zip(sent, group_names, strict=True):
        sink, values = "observe.sink.wandb", {"group": quoted(group), "job_type": "sweep"}
        chosen = config["observe"]["sink"]["wandb"]
        more[run] = [f"{sink}.{k}={v}" for k, v in values.items() if chosen[k] is None]
    return [run._replace(overrides=(*run.overrides, *more.get(run, ()))) for run in runs]


def each_run_once(runs: Iterable[RunToStart]) -> list[RunToStart]:
    """Drop runs that repeat an earlier run, with a message, and return the others."""
    first: dict[Path, RunToStart] = {}
    for run in runs:
        if (twin := first.setdefault(run.folder, run)) is not run:
            same = "listed twice" if run.name == twin.name else f"the same run as {twin.name}"
            print(f"{run.name} is {same}, so it is trained once")
    return [*first.values()]


def objective(record: "RunRecord", config: "DictConfig", direction: object) -> float:
    """Return the objective for a sweeper such as Optuna: `valid/<select_by>` of the tested weights.

    A diverged run gets the worst value. Raises UserError if the sweeper's direction would seek the
    worst score.
    """
    name, sought = f"valid/{config.validate.select_by}", getattr(direction, "name", direction)
    score = record.scores.get(name)
    if record.outcome.status == "diverged" or score is None:
        return -math.inf if sought == "maximize" else math.inf
    better = "maximize" if score.higher_is_better else "minimize"
    if sought not in (None, better):
        wrong = f"hydra.sweeper.direction={sought} would seek the worst {name}"
        raise UserError(f"{wrong}: set hydra.sweeper.direction={better}")
    return score.value


def short_names(runs: Sequence[Sequence[str]]) -> list[str]:
    """Return a name for each run, made of the overrides that are not common to all runs."""
    common = set(runs[0]).intersection(*runs[1:]) if len(runs) > 1 else set[str]()
    names = (" ".join(text for text in overrides if text not in common) for overrides in runs)
    return [name or "all defaults" for name in names]
