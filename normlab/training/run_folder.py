"""A run's folder: its lock, and whether the results in it may be reused.

Results may be reused if the code and the data (see `data_changes.py`) are unchanged. This module
does not import torch, so the record of a finished run is returned immediately.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from shlex import quote
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from normlab.config.machine import settled_precision
from normlab.errors import UserError
from normlab.records.code import NUMERICS, Code, MadeBy, joint_code, own_norms, same_code
from normlab.records.files import remove_leftovers
from normlab.records.record import DISTURBANCES, MEND_RUN, RunRecord
from normlab.records.store import CONFIG_FILE, RECORD_FILE, RunStore, read_record, run_id
from normlab.training.data_changes import changed_data, changed_data_text

if TYPE_CHECKING:
    from omegaconf import DictConfig


def _of_code(made_by: MadeBy) -> str:
    """Describe code for a message, by its numerics and the files of own and edited norms."""
    numerics, files = made_by
    return ", ".join([f"numerics {numerics}", *(f"{name}: {files[name]}" for name in files)])


def missing_tests(record: RunRecord, observe: Mapping[str, Any]) -> list[str]:
    """Return the settings of an `observe` node that ask for scores a finished run does not have."""
    if not record.finished:
        return []
    settings: list[str] = []
    conditions = _conditions(record)
    for name in DISTURBANCES:
        values = observe[f"test_{name}"]
        if untested := [value for value in values if f"{name}_{value:g}" not in conditions]:
            settings.append(f"observe.test_{name}={untested}")
    examples = observe["test_seen"]
    if examples and examples != (record.config.get("observe") or {}).get("test_seen"):
        settings.append(f"observe.test_seen={examples}")
    targets = {
        score: [x for x in values if f"valid/steps_to/{score}_{x:g}" not in record.scores]
        for score, values in (observe["targets"] or {}).items()
    }
    if unknown := [f"{score}: {values}" for score, values in targets.items() if values]:
        settings.append(f"observe.targets={{{', '.join(unknown)}}}")
    return settings


def _conditions(record: RunRecord) -> set[str]:
    """Return the conditions under which a run was tested again, such as `noise_0.1`."""
    return {name.split("/")[1] for name in record.scores if name.startswith("test/")}


class RunFolder:
    """One run: its fully resolved config and its folder."""

    def __init__(self, config: "DictConfig"):
        from normlab.config.run_config import from_dict, to_dict

        self.config: dict[str, Any] = to_dict(from_dict(to_dict(config)))
        self.config["precision"] = settled_precision(
            self.config["precision"], device=self.config["device"]
        )
        self.made_by: MadeBy = NUMERICS, own_norms(self.config)
        self.other_code = self.config["observe"]["other_code"]
        self.move(self.config["runs_dir"])

    def move(self, runs_dir: str) -> None:
        """Set `runs_dir`, and with it the run's own folder."""
        self.config["runs_dir"] = runs_dir
        self.store = RunStore(runs_dir)
        self.folder = self.store.run_dir(self.config)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder, or raise UserError if another process has locked it.

        If an error stops the run before it starts, no folder is left behind.
        """
        new_folders = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise UserError(
                f"{self.folder} is being trained by another process; wait for it, or stop it"
            ) from None
        except OSError as error:  # happens on some network disks
            raise UserError(
                f"{self.folder} cannot be locked against other processes ({error.strerror}): set "
                "runs_dir=FOLDER on a disk with file locks"
            ) from error
        try:
            remove_leftovers(self.folder)  # left by a process that was killed while writing
            yield
        finally:
            if not (self.folder / CONFIG_FILE).exists():
                (self.folder / ".lock").unlink(missing_ok=True)
            lock.release()
            for path in new_folders:
                with suppress(OSError):  # the folder may not be empty
                    path.rmdir()

    def finished(self, *, processes: int) -> RunRecord | None:
        """Return the record of a run that has ended, or None if there is work left.

        Raises UserError if the record cannot be reused, for example because the data have changed.
        """
        if not (self.folder / RECORD_FILE).is_file():
            return None
        record = read_record(self.folder)
        if record.run_id != run_id(self.config):
            path = self.folder / RECORD_FILE
            raise UserError(f"{path} is the record of {record.run_id}; {MEND_RUN}")
        if record.outcome.status not in ("finished", "diverged"):
            return None
        if (before := record.environment.get("world_size")) != processes:
            raise UserError(
                f"{self.folder} was trained by {before} processes, but this run has {processes}, "
                f"so its batches differ; start it with {before}, or use another runs_dir"
            )
        if not self.takes_code(record.made_by, record.commits):
            return None
        try:
            changed = changed_data(record, self.config)
        except UserError as error:
            raise UserError(
                f"{self.folder} has ended, but its data cannot be compared: {error} (normlab "
                f"compare {self.folder} shows its scores without the data)"
            ) from error
        self.refuse_changed(changed)
        if missing := missing_tests(record, self.config["observe"]):
            raise UserError(
                f"{self.folder} has ended, and was tested without {' '.join(missing)}; omit this, "
                f"or compute it with normlab eval {self.folder} {' '.join(map(quote, missing))}"
            )
        return record

    def takes_code(self, made_by: MadeBy, commits: Sequence[str]) -> bool:
        """Return whether results made by different code may be used.

        Raises UserError if the user must decide.
        """
        if made_by == self.made_by or self.other_code == "accept":
            return True
        if self.other_code == "rerun":
            return False
        raise UserError(
            f"{self.folder} was made by different code ({_of_code(made_by)}, commit "
            f"{', '.join(commits)}; now {_of_code(self.made_by)}): set "
            "observe.other_code=accept to keep its results, "
            "observe.other_code=rerun to train it again, or another runs_dir"
        )

    def check_start(self, codes: Sequence[Code]) -> None:
        """Raise UserError if different code trained the weights that the run starts from."""
        made_by = joint_code(codes)
        if not same_code(made_by, self.made_by) and self.other_code != "accept":
            raise UserError(
                f"{self.config['start_from']['run_dir']}, which this run starts from, was made by "
                f"different code ({_of_code(made_by)}; now {_of_code(self.made_by)}): train it "
                "again, or set observe.other_code=accept to keep its weights"
            )

    def takes_arithmetic(self, begun: Sequence[str], current: Sequence[str]) -> bool:
        """Return whether the run may resume with this machine's arithmetic.

        Raises UserError if the user must decide.
        """
        if tuple(begun) == tuple(current):
            return True
        if self.other_code == "rerun":
            return False
        raise UserError(
            f"{self.folder} was started with different arithmetic ({' '.join(begun)}) than this "
            f"machine's ({' '.join(current)}): resume it on such a machine, or train it again with "
            "observe.other_code=rerun or in another runs_dir"
        )

    def refuse_changed(self, changed: Sequence[str]) -> None:
        """Raise UserError if any data have `changed` since the run was started."""
        if changed:
            raise UserError(
                f"{self.folder} {changed_data_text(changed, self.config['data_dir'])}: restore "
                "them, or set name=NAME or another runs_dir for a separate run"
            )
