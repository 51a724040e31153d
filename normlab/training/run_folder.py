"""A run's folder: its lock, its record, and whether the results in it may be reused.

`NUMERICS` is the version of normlab's formulas: runs with different numerics are never paired.
Raise it if, and only if, a loss in `tests/golden` (short runs in float64) changes by more than a
relative 1e-6. A user's own norm has no golden losses, so its file is hashed instead, and so are the
files of normlab's norms, placements and other options that have uncommitted changes.

This module does not import torch, so the record of a finished run is returned at once.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from normlab.config.folders import CONFIG_DIR, source_of
from normlab.config.machine import settled_precision
from normlab.config.registry import OPTION, TARGET, option_settings, path_of, sha256
from normlab.config.schema import NORM_KEYS, leaves
from normlab.errors import UserError
from normlab.records.code import (
    Code,
    MadeBy,
    files_of_class,
    joint_code,
    module_file,
    same_code,
    uncommitted_files,
)
from normlab.records.files import remove_leftovers
from normlab.records.record import DISTURBANCES, RunRecord
from normlab.records.store import CONFIG_FILE, RECORD_FILE, RunStore, read_record
from normlab.training import data

if TYPE_CHECKING:
    from omegaconf import DictConfig

NUMERICS = 1


def own_norms(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of a run's own and edited norms, and of other such options.

    The key is `mine` for a norm, and `placement/mine` for a placement. The value is the name and
    the hash of each file with a class, such as `mine.py 0a1b2c3d4e`. For normlab's own options,
    only files that the class needs and that have uncommitted changes are listed.
    """
    nodes = [config.get(key) for key in NORM_KEYS] + [*(config.get("sites") or {}).values()]
    chosen = {*(config.get("choices") or {}).items()}
    chosen |= {("norm", n[OPTION]) for n in nodes if isinstance(n, Mapping) and OPTION in n}
    chosen |= {("probe", name) for name in (config.get("observe") or {}).get("probe") or {}}
    edited = uncommitted_files()
    digests: dict[str, str] = {}
    for group, name in sorted((str(group), str(name)) for group, name in chosen):
        path = path_of(group, name)
        if path is not None and (edited or not path.is_relative_to(CONFIG_DIR)):
            files = _files(group, name, edited, is_own=not path.is_relative_to(CONFIG_DIR))
            digests[name if group == "norm" else f"{group}/{name}"] = files
    return {name: files for name, files in digests.items() if files}


def _files(group: str, name: str, edited: Collection[Path], *, is_own: bool) -> str:
    """Return names and hashes of the files of an option's classes that are the user's or edited."""
    classes = [str(v) for key, v in leaves(option_settings(group, name, group)) if TARGET in key]
    files: dict[Path, None] = {}
    for one in classes:
        of_normlab = one.startswith("normlab.")
        if not of_normlab and not is_own:
            continue  # a class of torch
        source = module_file(one.rpartition(".")[0]) if of_normlab else source_of(one)
        needed = files_of_class(source) if edited else [source]
        files |= dict.fromkeys(
            file for file in needed if file in edited or (file == source and not of_normlab)
        )
    return ", ".join(f"{path.name} {sha256(path)[:10]}" for path in files)


def _of_code(made_by: MadeBy) -> str:
    """Return the numerics, and the files of own and edited norms, as text for a message."""
    numerics, files = made_by
    return ", ".join([f"numerics {numerics}", *(f"{name}: {files[name]}" for name in files)])


def unanswered(record: RunRecord, observe: Mapping[str, Any]) -> list[str]:
    """Return the settings of an `observe` node that ask for scores a finished run does not have."""
    if not record.finished:
        return []
    scored = _conditions(record)
    repeats = {
        f"observe.test_{name}": [
            value for value in observe[f"test_{name}"] if f"{name}_{value:g}" not in scored
        ]
        for name in DISTURBANCES
    }
    targets = {
        score: [x for x in values if f"valid/steps_to/{score}_{x:g}" not in record.scores]
        for score, values in (observe["targets"] or {}).items()
    }
    of_scores = [f"{score}: {values}" for score, values in targets.items() if values]
    examples = observe["test_seen"]
    before = (record.config.get("observe") or {}).get("test_seen")
    answered = {
        **repeats,
        "observe.test_seen": examples if examples != before else 0,
        "observe.targets": f"{{{', '.join(of_scores)}}}" if of_scores else None,
    }
    return [f"{key}={value}" for key, value in answered.items() if value]


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
        """Put the run below another folder."""
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
                f"{self.folder}: another process is training this run; wait for it, or stop it"
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
                with suppress(OSError):  # ignore that it is not empty
                    path.rmdir()

    def finished(self, *, processes: int) -> RunRecord | None:
        """Return the record of a run that has ended, or None if there is work left."""
        if not (self.folder / RECORD_FILE).is_file():
            return None
        record = read_record(self.folder)
        if record.outcome.status not in ("finished", "diverged"):
            return None
        if (before := record.environment.get("world_size")) != processes:
            raise UserError(
                f"{self.folder} was trained by {before} processes but this run has {processes}, so "
                f"its batches differ: start it with {before}, or use another runs_dir"
            )
        if not self.takes_code(record.made_by, record.commits):
            return None
        try:
            changed = data.changes(record, self.config)
        except UserError as error:
            raise UserError(
                f"{self.folder} has ended, but its data cannot be compared: {error} (to "
                f"read its scores without them: normlab compare {self.folder})"
            ) from error
        self.refuse_changed(changed)
        if missing := unanswered(record, self.config["observe"]):
            raise UserError(
                f"{self.folder} has ended, and was tested without {' '.join(missing)}: omit that, "
                f"or compute it: normlab eval {self.folder} {' '.join(map(quote, missing))}"
            )
        return record

    def takes_code(self, made_by: MadeBy, commits: Sequence[str]) -> bool:
        """Return whether to use results of different code.

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
        """Return whether the run may resume on this machine.

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
                f"{self.folder} {data.changed_text(changed, self.config['data_dir'])}: restore "
                "them, or set name=NAME or another runs_dir for a separate run"
            )
