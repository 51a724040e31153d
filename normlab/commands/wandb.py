"""`normlab wandb`: send runs that were kept offline to W&B, and lay out a workspace there."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.commands._help import HelpFormatter
from normlab.commands._paths import as_path
from normlab.commands._terminal import complain, print_table
from normlab.registry import CONFIG_DIR

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

if TYPE_CHECKING:
    from normlab.train.sinks.wandb_files import RunFile

HELP = "send offline runs to Weights & Biases; save a workspace that compares norms"

_EXAMPLES = """examples:
  normlab wandb sync --dry-run              what would be sent of all runs below runs/
  normlab wandb sync                        send it
  normlab wandb sync runs/toy-bn-pre-*
  normlab wandb workspace --dry-run         the sections and panels of the view
  normlab wandb workspace                   save the view at W&B, and print its address
  normlab wandb workspace --where task=mlm --where norm=ln,bn \\
    --name "MLM: LN and BN"

Both need a login: `wandb login`, or WANDB_API_KEY.
"""
_AT_WORK = (
    "another `normlab wandb sync` is at work, or ends that was killed; nothing was sent: run the "
    "same command again"
)
_LOGIN = "log in first by `wandb login`, or set WANDB_API_KEY"


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab wandb",
        description="Send offline runs to Weights & Biases, and lay out its workspace.",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    actions = result.add_subparsers(dest="action", required=True, metavar="ACTION")
    sync = actions.add_parser("sync", help="send runs that were kept offline")
    sync.add_argument(
        "runs",
        nargs="*",
        type=as_path,
        metavar="RUN",
        help="a run folder, or a folder of runs; default: all of --runs-dir",
    )
    sync.add_argument("--dry-run", action="store_true", help="only show what would be sent")
    sync.add_argument("--runs-dir", type=as_path, default=Path("runs"), help="default: runs")
    sync.add_argument(
        "--timeout", type=float, default=10.0, help="seconds the server is given to answer"
    )
    workspace = actions.add_parser("workspace", help="save a new view that compares norms")
    workspace.add_argument("--project", help="default: the project of the wandb sink")
    workspace.add_argument("--entity", help="user or team; default: that of the login")
    workspace.add_argument("--name", default="normlab", help="of the view; default: normlab")
    workspace.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE[,VALUE]",
        help="only runs with these values of a config key; may be repeated",
    )
    workspace.add_argument("--dry-run", action="store_true", help="print the view, save nothing")
    workspace.add_argument("--json", action="store_true", help="with --dry-run: what W&B is sent")
    workspace.add_argument(
        "--timeout", type=float, default=10.0, help="seconds the server is given to answer"
    )
    return result


def main(argv: list[str]) -> int:
    """Carry out the action; 1 where something was not sent.

    Raises `ValueError` for a folder without W&B files, a damaged file, a missing login or package,
    and a server that does not answer.
    """
    arguments = parser().parse_args(argv)
    return {"sync": _sync, "workspace": _workspace}[arguments.action](arguments)


def _sync(arguments: argparse.Namespace) -> int:
    files = _offline_files(arguments.runs or [arguments.runs_dir])
    states = {file.path: state_of(file) for file in files}
    _show(files, states)
    due = [file for file in files if states[file.path] == TO_SEND]
    if arguments.dry_run or not due:
        return 0
    _check_server(arguments.timeout, done="sent")
    with _only_sender(arguments.timeout) as lock:
        return _send(due, lock)


def _offline_files(places: Sequence[Path]) -> list["RunFile"]:
    """Return the offline files of the runs at and below the places, each once, in order of time."""
    from normlab.train.sinks.wandb_files import find_run_files

    found: dict[Path, RunFile] = {}
    for place in places:
        if not place.is_dir():
            raise ValueError(f"{place}: no such run; `normlab ls runs` lists the runs")
        found |= {file.path.resolve(): file for file in find_run_files(place) if file.offline}
    if not found:
        raise ValueError(
            f"{', '.join(map(str, places))}: no run here has offline files of W&B; runs leave them "
            "with sink=[...,wandb] and no login, or observe.sink.wandb.mode=offline"
        )
    return list(found.values())


TO_SEND, SENT, RUNNING, EMPTY, REPLACED = "to send", "sent", "running", "empty", "replaced"


def state_of(file: "RunFile") -> str:
    """Tell whether a file is to be sent.

    A `replaced` one is of an attempt that was begun anew under another id; an `empty` one was cut
    off by a kill before W&B wrote anything.
    """
    from filelock import FileLock, Timeout

    if file.sent:
        return SENT
    run_id = file.run_dir / "wandb" / "run_id"
    if run_id.is_file() and run_id.read_text(encoding="utf-8").strip() != file.run_id:
        return REPLACED
    lock = file.run_dir / ".lock"
    if not file.ended and lock.exists():
        try:  # a file that is sent half would count as sent
            with FileLock(lock, timeout=0):
                pass
        except Timeout:
            return RUNNING
    return EMPTY if file.group is None else TO_SEND


def _show(files: list["RunFile"], states: Mapping[Path, str]) -> None:
    """Print a row a W&B run and state."""
    rows: dict[tuple[str, str], list[RunFile]] = {}
    for file in files:
        rows.setdefault((file.run_id, states[file.path]), []).append(file)
    table = [
        [
            str(members[0].run_dir),
            run_id,
            next((file.group for file in members if file.group), "-"),
            str(len(members)),
            str(sum(file.rows for file in members)),
            f"{sum(file.size for file in members) / 1e6:.2f}",
            state,
        ]
        for (run_id, state), members in rows.items()
    ]
    columns = ["run", "W&B id", "group", "files", "rows", "MB", "state"]
    print_table(columns, table, numeric=["files", "rows", "MB"], notes=_notes(states.values()))


def _notes(states: Iterable[str]) -> list[str]:
    meanings = {
        RUNNING: "running: it is sent when it has ended",
        EMPTY: "empty: killed before W&B wrote anything; a resumed run writes it again",
        REPLACED: "replaced: the run was begun anew; to send the old attempt: wandb sync FOLDER",
    }
    found = set(states)
    return [meaning for state, meaning in meanings.items() if state in found]


def _check_server(timeout: float, *, done: str) -> None:
    from normlab.train.sinks.wandb_login import find_login, reach

    login = find_login()
    if login.source is None:
        raise ValueError(f"no login for {login.host}: {_LOGIN}; nothing was {done}")
    try:
        reach(login.host, timeout)
    except OSError as error:
        raise ValueError(
            f"{login.host} does not answer ({error}): nothing was {done} and nothing is lost; "
            "run the same command again when there is a network"
        ) from None


@contextlib.contextmanager
def _only_sender(timeout: float) -> Iterator[int]:
    """Wait for another sending, which may be what a killed command has left at work.

    Yields what the processes of W&B get as standard input: they hold the lock as long as they live.
    """
    if fcntl is None:
        yield subprocess.DEVNULL
        return
    from normlab.data.cache import cache_root

    path = cache_root() / "wandb-sync.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + timeout
    lock = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while not _locked(lock):
            if time.monotonic() > end:
                raise ValueError(_AT_WORK)
            time.sleep(0.1)
        yield lock
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    assert fcntl is not None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _send(files: list["RunFile"], lock: int) -> int:
    """Send files by `wandb sync`; 1 where it did not send all."""
    from normlab.train.sinks.wandb_files import is_sent, mark_sent, trim

    for file in files:
        if not file.ended:  # and its run is not running
            trim(file)
    # WANDB_MODE=offline is a wish for training; WANDB_DIR is where the command leaves its own log.
    environment = {key: value for key, value in os.environ.items() if key != "WANDB_MODE"}
    environment.setdefault("WANDB_ERROR_REPORTING", "false")
    with tempfile.TemporaryDirectory() as log, tempfile.TemporaryDirectory() as rest:
        paths = {file: _rest(file, Path(rest)) for file in files if not file.sent}
        command = [sys.executable, "-m", "wandb", "sync", *map(str, paths.values())]
        environment["WANDB_DIR"] = log
        if paths:
            subprocess.run(command, env=environment, stdin=lock, check=False)
        for file, path in paths.items():
            if is_sent(path) and (path == file.path or _note_step(file)):
                mark_sent(file)
    left = [file for file in files if not file.sent]
    print(f"sent {len(files) - len(left)} of {len(files)} files")
    for file in left:
        complain(f"not sent: {file.path}")
    if left:
        complain("what W&B says stands above; nothing is lost: the same command sends the rest")
    return 1 if left else 0


def _rest(file: "RunFile", folder: Path) -> Path:
    """Return a file of what W&B lacks; that of a killed sending has rows that W&B would add again.

    Raises ValueError where W&B does not say which rows it has.
    """
    if not file.begun:
        return file.path
    import wandb
    from wandb.errors import CommError

    from normlab.train.sinks.wandb_files import copy_without

    with _refusals("sent"):
        try:
            there = wandb.Api().run(file.address).lastHistoryStep
        except CommError as error:
            if "Could not find run" not in str(error):
                raise
            there = -1
    return copy_without(file, folder, until=there) if there >= 0 else file.path


def _note_step(file: "RunFile") -> bool:
    """Give the summary at W&B its last step, which `wandb sync` takes from rows that it sends.

    A file whose rows have all been there leaves a summary without one. Returns whether it has one.
    """
    import wandb

    from normlab.train.sinks.base import first_line

    try:
        run = wandb.Api().run(file.address)
        if "_step" not in run.summary:
            run.summary.update({"_step": run.lastHistoryStep})
    except Exception as error:
        complain(f"W&B does not take the last step of {file.run_id}: {first_line(error)}")
        return False
    return True


def _workspace(arguments: argparse.Namespace) -> int:
    from normlab.commands._wandb_view import GROUPING, outline, view

    sink = _sink_config()
    project = arguments.project or str(sink["project"])
    entity = arguments.entity or str(sink["entity"] or "")
    if not arguments.dry_run:
        _check_server(arguments.timeout, done="saved")
        entity = entity or _default_entity()
    where = _conditions(arguments.where)
    workspace = view(entity=entity, project=project, name=arguments.name, where=where)
    if not arguments.dry_run:
        with _refusals():
            workspace.save()
            print(workspace.url)
        return 0
    if arguments.json:
        spec = workspace._to_model().spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        place = {"entity": entity or None, "project": project, "name": arguments.name}
        print(json.dumps(place | {"spec": spec}, indent=1))
        return 0
    shown = "; ".join(f"{key}: {', '.join(map(str, values))}" for key, values in where.items())
    notes = [
        f"view {arguments.name!r} of {entity or '(entity of the login)'}/{project}",
        f"runs grouped by {', '.join(GROUPING)}; shown: {shown or 'all'}",
    ]
    print_table(["section", "panel", "shows"], outline(workspace), notes=notes)
    return 0


def _sink_config() -> dict[str, object]:
    import yaml

    return yaml.safe_load((CONFIG_DIR / "sink" / "wandb.yaml").read_text(encoding="utf-8"))


def _default_entity() -> str:
    import wandb

    with _refusals():
        entity = wandb.Api().default_entity
    if not entity:
        raise ValueError("the login has no default entity: name a user or team by --entity")
    return entity


@contextlib.contextmanager
def _refusals(done: str = "saved") -> Iterator[None]:
    """Say in one line what W&B does not accept: a wrong key, no right to the project."""
    from wandb.errors import Error

    try:
        yield
    except Error as error:
        raise ValueError(f"W&B refuses: {str(error).strip()}; nothing was {done}") from error


def _conditions(where: Iterable[str]) -> dict[str, list[object]]:
    """Read `--where`; values become numbers and booleans as in a config."""
    import yaml

    result: dict[str, list[object]] = {}
    for text in where:
        key, equals, values = text.partition("=")
        if not (key and equals and values):
            raise ValueError(f"--where {text}: expected KEY=VALUE, such as --where norm=ln,bn")
        result[key] = [yaml.safe_load(value) for value in values.split(",")]
    return result
