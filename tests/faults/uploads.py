"""Offline runs whose sending to W&B is killed; the server is one on this machine."""

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from normlab.train.sinks.wandb_files import find_run_files
from tests.faults.tally import Tally
from tests.sinks.offline_file import read_so_far
from tests.sinks.wandb_client import train_offline
from tests.sinks.wandb_server import KEY, Run, Server, serving
from tests.tiny_runs import Ended, RunProcess

KIND = "W&B uploads killed"
_AT_WORK = "another `normlab wandb sync` is at work"
_MARK = "NORMLAB_FAULTS_UPLOAD"
_ALONE = 0.4  # of the kills spare what the command has started
_AT_REQUEST = 0.8  # of the kills come at a request to the server, the others at any moment
_PATIENCE = 60.0
_COMPARED = ("steps", "rows", "summary", "config", "exit code")
_CUT = 200  # bytes that a killed run has not written any more


@dataclass(frozen=True)
class _Sender:
    """What a process that sends has around it: a login at a server, and nobody else's."""

    home: Path
    url: str
    mark: str

    def install(self) -> None:
        os.setsid()
        _hide_logins()
        os.environ |= {"HOME": str(self.home), "WANDB_BASE_URL": self.url, "WANDB_API_KEY": KEY}
        os.environ[_MARK] = self.mark


@dataclass(frozen=True)
class _Sent:
    """What the server has and what lies here once all has been sent."""

    runs: dict[str, tuple[Any, ...]]
    here: dict[str, bytes]
    requests: int
    seconds: float


class Uploads:
    """Three runs that were kept offline; one was resumed, and one was killed."""

    def __init__(self, work: Path) -> None:
        self.work = work / "uploads"
        self.place, self.home = self.work / "runs", self.work / "home"
        self._number = 0

    def attack(self, tally: Tally, rng: random.Random, count: int) -> None:
        """Kill the sending of all runs `count` times, and send again."""
        for _ in range(count):
            tally.take(KIND, f"seed {rng.random()}", lambda: self._killed_and_again(rng))

    @cached_property
    def _made(self) -> Path:
        """Return the runs as training left them."""
        folder = self.work / "made"
        shutil.rmtree(self.work, ignore_errors=True)
        with _logged_in_nowhere(self.home):
            train_offline(folder / "whole" / "seed1")
            train_offline(folder / "resumed" / "seed1", status="interrupted")
            train_offline(folder / "resumed" / "seed1", resumed=10)
            cut = train_offline(folder / "killed" / "seed1")
        os.truncate(cut, cut.stat().st_size - _CUT)
        return folder

    @cached_property
    def _undisturbed(self) -> _Sent:
        self._set()
        with serving() as server:
            start = time.monotonic()
            ended = self._start(server).wait(180)
            seconds = time.monotonic() - start
            assert ended.status == 0, ended.output
            return _Sent(_had(server), self._here(), server.requests, seconds)

    def _set(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self._made, self.place)

    def _start(self, server: Server) -> RunProcess:
        self._number += 1
        sender = _Sender(self.home, server.url, f"{os.getpid()}-{self._number}")
        argv = ["wandb", "sync", str(self.place)]
        return RunProcess(argv, self.work / "log", prepare=sender.install)

    def _here(self) -> dict[str, bytes]:
        """Return what training left, as it is now; W&B's notes on what it sent are its own."""
        made = [path.relative_to(self._made) for path in self._made.rglob("*") if path.is_file()]
        here = {str(path): self.place / path for path in made}
        return {name: path.read_bytes() for name, path in here.items() if path.is_file()}

    def _killed_and_again(self, rng: random.Random) -> str | None:
        undisturbed = self._undisturbed
        self._set()
        with serving() as server:
            ended = self._killed(server, rng)
            if ended.status not in (0, -signal.SIGKILL):
                return f"status {ended.status}: {ended.output[-300:]}"
            if said := self._too_much_said(server):
                return said
            again = self._start(server).wait(180)
            self._wait_for_others()
            if again.status == 1 and _AT_WORK in again.output:
                again = self._start(server).wait(180)
            if again.status != 0:
                return f"again: status {again.status}: {again.output[-300:]}"
            if left := [file.path.name for file in find_run_files(self.place) if not file.sent]:
                return f"not marked as sent: {left}"
            here, kept = self._here(), undisturbed.here
            if changed := [name for name in kept if here.get(name) != kept[name]]:
                return f"changed here: {changed[:2]}"
            return _difference(_had(server), undisturbed.runs)

    def _killed(self, server: Server, rng: random.Random) -> Ended:
        """Send, and kill that: at a request, which is answered or not, or at any moment."""
        undisturbed = self._undisturbed
        alone, answered = rng.random() < _ALONE, rng.random() < 0.5
        number = rng.randint(1, undisturbed.requests)
        pause = rng.uniform(0.0, undisturbed.seconds)

        def act(request: int) -> bool:
            if request != number:
                return True
            _kill(process, alone=alone)
            return answered

        if rng.random() < _AT_REQUEST:
            server.act = act
        process = self._start(server)
        if server.act is not act:
            process.process.join(pause)
            _kill(process, alone=alone)
        return process.wait(180)

    def _too_much_said(self, server: Server) -> str | None:
        """Tell which run is marked as sent although the server has not all of it."""
        marked = [file for file in find_run_files(self.place) if file.sent]
        for file in marked:
            run = server.runs.get(file.run_id)
            theirs = {row["_step"] for row in run.history} if run is not None else set()
            missing = {row["_step"] for row in read_so_far(file.path).history} - theirs
            if missing:
                return f"said to be sent: steps {sorted(missing)} of {file.path.name}"
        return None

    def _wait_for_others(self) -> None:
        """Wait until what killed commands have left at work has ended."""
        marks = {f"{_MARK}={os.getpid()}-{number}" for number in range(self._number + 1)}
        end = time.monotonic() + _PATIENCE
        while left := [pid for pid in _processes() if marks & _environment(pid)]:
            assert time.monotonic() < end, f"still at work: {left}"
            time.sleep(0.1)


def _kill(process: RunProcess, *, alone: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        if alone:
            process.send(signal.SIGKILL)
        else:
            process.end()


def _had(server: Server) -> dict[str, tuple[Any, ...]]:
    return {name: _content(run) for name, run in server.runs.items()}


def _content(run: Run) -> tuple[Any, ...]:
    steps = [row["_step"] for row in run.history]
    config = {key: value for key, value in run.config.items() if key != "_wandb"}  # telemetry
    return steps, run.history, run.summary, config, run.exit_code


def _difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str | None:
    if ours.keys() != theirs.keys():
        return f"runs at the server: {sorted(ours)}"
    for name in ours:
        for what, mine, other in zip(_COMPARED, ours[name], theirs[name], strict=True):
            if mine != other:
                return f"another {what} at the server: {mine!r:.200}, undisturbed {other!r:.200}"
    return None


def _processes() -> Iterator[str]:
    return (name for name in os.listdir("/proc") if name.isdigit())


def _environment(pid: str) -> set[str]:
    with contextlib.suppress(OSError):
        return set(Path("/proc", pid, "environ").read_text("utf-8", "replace").split("\0"))
    return set()


def _hide_logins() -> None:
    for name in list(os.environ):
        if name.startswith("WANDB_") or name.lower().endswith("_proxy") or name == "NETRC":
            del os.environ[name]


@contextlib.contextmanager
def _logged_in_nowhere(home: Path) -> Iterator[None]:
    import wandb

    before = dict(os.environ)
    _hide_logins()
    os.environ["HOME"] = str(home)
    try:
        yield
    finally:
        wandb.teardown()
        os.environ.clear()
        os.environ |= before
