"""The runs of a study: their configs, folders, records and data."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from normlab.config.registry import default_choice, option_names
from normlab.errors import UserError
from normlab.records.code import NUMERICS, checkout_state, own_norms
from normlab.records.grouping import grouped
from normlab.records.record import DISTURBANCES, MEND_RUN
from normlab.records.store import RECORD_FILE, RunStore, read_record, run_id
from normlab.studies.process_pool import INTERRUPTED, RunToStart, program
from normlab.studies.study import SMOKE, Planned, Study
from normlab.training.data_changes import data_at_hand_changed
from normlab.training.run_folder import missing_tests

if TYPE_CHECKING:
    from normlab.records.record import RunRecord


class StudyRun(NamedTuple):
    """A planned run with its config and its folder."""

    planned: Planned
    config: Mapping[str, Any]
    folder: Path

    @property
    def rerun(self) -> bool:
        """Whether to repeat the run if its record was made by different code."""
        return self.config["observe"]["other_code"] == "rerun"

    def to_start(self, name: str) -> RunToStart:
        return RunToStart(name, self.planned.overrides, self.folder)

    def record(self, complain: Callable[[str], object] = lambda damage: None) -> "RunRecord | None":
        """Return the record, or None if there is none, it is damaged, or it is of another run.

        In the last two cases a message is passed to `complain`.
        """
        path = self.folder / RECORD_FILE
        if not path.is_file():
            return None
        try:
            record = read_record(self.folder)
        except UserError as error:
            complain(str(error))
            return None
        if record.run_id != run_id(self.config):
            complain(f"{path} is the record of {record.run_id}; {MEND_RUN}")
            return None
        return record

    def has_ended(self, record: "RunRecord | None") -> bool:
        """Return whether a record shows that the run has ended, with its tests and unchanged data.

        If the run is to be repeated, the record must also have been made by the current code.
        """
        if record is None or not self._was_trained(record) or self._lacks(record):
            return False
        return not data_at_hand_changed(record, self.config)

    def check_tests(self) -> None:
        """Raise UserError if the run has ended without tests that its config asks for."""
        record = self.record()
        if record is not None and self._was_trained(record) and (lacks := self._lacks(record)):
            raise UserError(
                f"{self.folder} has ended, and was tested without {' '.join(lacks)}; set "
                "runs_dir=FOLDER to train it with these tests in another folder, or compute them "
                f"with normlab eval {self.folder} {' '.join(map(quote, lacks))}"
            )

    def _was_trained(self, record: "RunRecord") -> bool:
        """Return whether a record is of a run that has ended and need not be repeated."""
        if record.outcome.status not in ("finished", "diverged"):
            return False
        return not self.rerun or record.made_by == (NUMERICS, own_norms(self.config))

    def _lacks(self, record: "RunRecord") -> list[str]:
        """Return the settings of the tests that a record lacks. A tuning trial needs no test."""
        return [] if self.planned.tuned else missing_tests(record, self.config["observe"])

    @property
    def tests(self) -> set[str]:
        """The additional scores that its config asks for, such as `observe.test_noise=0.5`.

        They are not part of the run's name, so runs in the same folder may ask for others.
        """
        observe = self.config["observe"]
        values = {f"test_{name}": observe[f"test_{name}"] for name in DISTURBANCES}
        values["test_seen"] = [observe["test_seen"]] if observe["test_seen"] else []
        values |= {f"targets.{score}": of for score, of in (observe["targets"] or {}).items()}
        return {f"observe.{name}={value:g}" for name, of in values.items() for value in of}


def each_folder_once(runs: Iterable[StudyRun]) -> dict[Path, StudyRun]:
    """Return a run for each folder: of the runs that share it, the one that makes all their tests.

    Raises UserError if there is no such run.
    """
    chosen: dict[Path, StudyRun] = {}
    for folder, sharing in grouped((run.folder, run) for run in runs).items():
        chosen[folder] = most = max(sharing, key=lambda run: len(run.tests))
        if other := next((run for run in sharing if not run.tests <= most.tests), None):
            raise _different_tests(most, other)
    return chosen


def _different_tests(first: StudyRun, second: StudyRun) -> UserError:
    study, other = (run.config["observe"]["study"] for run in (second, first))
    only = ", ".join(sorted(first.tests ^ second.tests))
    return UserError(
        f"{other} {first.planned.name} and {study} {second.planned.name} are the same run, but "
        f"with different tests ({only}); set the same tests for both, or keep them apart with "
        f"{study}:runs_dir=FOLDER"
    )


def runs_of(
    planned: Sequence[Planned], known: dict[tuple[str, ...], dict[str, Any]] | None = None
) -> list[StudyRun]:
    """Compose the configs of runs. Raise UserError if a value is wrong or two runs are identical.

    Each config is composed once for all seeds. `known` is a cache of configs by overrides without
    the seed, to which new configs are added.
    """
    known = {} if known is None else known
    by_folder: dict[Path, StudyRun] = {}
    for run in _with_data_dir_only_if_read(planned):
        others = tuple(override for override in run.overrides if override != f"seed={run.seed}")
        if others not in known:
            try:
                known[others] = composed(run)
            except UserError as error:
                raise UserError(f"{error} (first in row {run.row})") from None
        config = {**known[others], "seed": run.seed}
        folder = RunStore(config["runs_dir"]).run_dir(config)
        if folder in by_folder:
            raise UserError(
                f"{by_folder[folder].planned.name} and {run.name} are the same run; omit the "
                "overrides or seeds that make them identical"
            )
        by_folder[folder] = StudyRun(run, config, folder)
    return list(by_folder.values())


def _with_data_dir_only_if_read(planned: Sequence[Planned]) -> list[Planned]:
    """Remove `data_dir` from runs whose task and corpus read no files.

    Raises UserError if this removes it from all runs.
    """
    runs = [run if _reads_files(run) else _without_data_dir(run) for run in planned]
    folders = [run.settings["data_dir"] for run in planned if "data_dir" in run.settings]
    if folders and not any("data_dir" in run.settings for run in runs):
        raise UserError(f"data_dir={folders[0]} has no effect: none of these runs reads files")
    return runs


def _reads_files(run: Planned) -> bool:
    """Return whether a run's task reads files. Return True for an unknown task or corpus."""
    from normlab.config.compose import TASK
    from normlab.config.run_config import reads_files

    task = run.settings.get("task", TASK)
    corpus = run.settings.get("task/corpus", default_choice("task", task, "corpus"))
    known = task in option_names("task") and corpus in (None, *option_names("task/corpus"))
    return not known or reads_files(task, corpus)


def _without_data_dir(run: Planned) -> Planned:
    return run._replace(overrides=tuple(x for x in run.overrides if not x.startswith("data_dir=")))


def composed(run: Planned) -> dict[str, Any]:
    """Return the config of a run, or raise UserError if overrides are wrong."""
    from normlab.config.compose import compose
    from normlab.config.run_config import to_dict

    return to_dict(compose(run.overrides))


def check_data(study: Study, scale: str, runs: Iterable[StudyRun]) -> None:
    """Prepare the runs' data, each data set once, or raise UserError for a missing data set."""
    by_data: dict[str, StudyRun] = {}
    for run in runs:
        task = run.config["task"]
        of = [run.config["choices"]["task"], run.config.get("data_dir")]
        of += [task.get(name) for name in ("corpus", "source")]
        by_data.setdefault(json.dumps(of, sort_keys=True, default=str), run)
    for run in by_data.values():
        if (problem := data_problem(run)) is not None:
            other = study.scales.get(SMOKE)
            raise UserError(
                f"the data of {study.name} at scale={scale} are not available: {problem}; needed: "
                f"{study.scale(scale).data}"
                + (f"; scale={SMOKE} needs {other.data}" if other else "")
            )


def data_problem(run: StudyRun) -> str | None:
    """Prepare the data of a run, and return the error message if that fails."""
    task = str(run.config["choices"]["task"])
    overrides = [override for override in run.planned.overrides if not override.startswith("task=")]
    # A separate process frees the memory of torch and of the text when it ends.
    words = ["inspect", "--data", f"task={task}", *overrides, "--json"]
    done = subprocess.run([*program(), *words], capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        return None
    if done.returncode in (INTERRUPTED, -signal.SIGINT):
        raise KeyboardInterrupt
    try:
        return json.loads(done.stdout)["error"]
    except (ValueError, KeyError):  # the failure was not a UserError
        return f"its preparation exited with {done.returncode}: {done.stderr.strip()}"


def uncommitted() -> str | None:
    """Return a warning if code or configs have uncommitted changes, otherwise None."""
    warning = "code or configs have uncommitted changes, so these runs will decide nothing"
    return warning if checkout_state()[1] else None
