"""Runs that are killed at a random moment, and runs of which one write fails."""

import builtins
import errno
import io
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.tally import Tally
from tests.tiny_runs import RESUMED, Ended, RunProcess, run, tiny
from tests.train.test_resume import assert_same

KILLS, WRITES, PAIRS = "kills at random", "writes that fail", "pairs on one run"
ERRNOS = (errno.ENOSPC, errno.EIO, errno.EACCES)
_MOST_KILLS = 4


@dataclass(frozen=True)
class FailingWrite:
    """Lets the n-th write below a folder fail once, and counts them all into a file.

    Writes are: opening a file to write, each `write` to it, `fsync`, a rename, making a folder.
    """

    root: Path
    number: int
    code: int
    counted: Path

    def install(self) -> None:
        """Replace what writes in this process."""
        seen = 0
        real_open, real_mkdir = builtins.open, os.mkdir
        real_replace, real_fsync = os.replace, os.fsync
        counter = os.open(self.counted, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

        def count(path: Any) -> None:
            nonlocal seen
            if not isinstance(path, str | Path) or not str(path).startswith(str(self.root)):
                return
            if str(path).endswith(".lock"):  # not a content
                return
            seen += 1
            os.pwrite(counter, f"{seen}\n".encode(), 0)
            if seen == self.number:
                raise OSError(self.code, os.strerror(self.code), str(path))

        class Counted(io.IOBase):
            def __init__(self, file: Any, path: str) -> None:
                self._file, self._path = file, path

            def write(self, content: Any) -> int:
                count(self._path)
                return self._file.write(content)

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                self._file.close()

            def close(self) -> None:
                self._file.close()

            def __getattr__(self, name: str) -> Any:
                return getattr(self._file, name)

        for name in ("flush", "fileno", "writelines", "tell", "seek", "writable", "readable"):
            setattr(Counted, name, lambda self, *a, _n=name: getattr(self._file, _n)(*a))

        def opened(path: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
            if not set(mode) & set("wax+"):
                return real_open(path, mode, *rest, **named)
            count(path)
            file = real_open(path, mode, *rest, **named)
            inside = isinstance(path, str | Path) and str(path).startswith(str(self.root))
            return Counted(file, str(path)) if inside else file

        def replaced(source: Any, target: Any, **named: Any) -> None:
            count(target)
            real_replace(source, target, **named)

        def made(path: Any, *rest: Any, **named: Any) -> None:
            count(path)
            real_mkdir(path, *rest, **named)

        def synced(descriptor: Any) -> None:
            count(str(self.root / "fsync"))
            real_fsync(descriptor)

        builtins.open = opened
        io.open = opened
        os.replace, os.mkdir, os.fsync = replaced, made, synced


class Bench:
    """A corpus, a run that nobody disturbed, and a folder for those that are."""

    def __init__(self, work: Path, corpus: Path):
        self.work, self.corpus = work, corpus
        ended, self.seconds = self._timed(work / "undisturbed")
        assert ended.status == 0, ended.output
        (record,) = (work / "undisturbed").rglob("record.json")
        self.undisturbed = record.parent

    def argv(self, runs: Path) -> list[str]:
        """Return the command of the run."""
        return ["train", *tiny(self.corpus, runs, *RESUMED)]

    def _timed(self, runs: Path) -> tuple[Ended, float]:
        start = time.monotonic()
        return run(self.argv(runs), self.work / "log"), time.monotonic() - start

    def differs(self, runs: Path) -> str | None:
        """Carry the run out to its end; return what is not as in the undisturbed one."""
        ended = run(self.argv(runs), self.work / "log")
        if ended.status != 0:
            return f"status {ended.status}: {ended.output[-300:]}"
        (record,) = runs.rglob("record.json")
        try:
            assert_same(record.parent, self.undisturbed)
        except AssertionError as error:
            return f"another result: {error}"
        return None


def attack_by_kills(tally: Tally, bench: Bench, rng: random.Random, count: int) -> None:
    """Kill runs at random moments, some again and again, and start them again until they end."""
    for number in range(count):
        runs = bench.work / f"killed{number}"

        def kill_and_resume(runs: Path = runs) -> str | None:
            for _ in range(rng.randint(1, _MOST_KILLS)):
                process = RunProcess(bench.argv(runs), bench.work / "log", prepare=_nothing)
                process.process.join(rng.uniform(0.0, bench.seconds))
                if process.process.is_alive():
                    process.send(signal.SIGKILL)
                process.process.join(60)
                if process.process.exitcode not in (0, -signal.SIGKILL):
                    return f"status {process.process.exitcode}: {process.wait().output[-300:]}"
            return bench.differs(runs)

        tally.take(KILLS, runs.name, kill_and_resume)
        shutil.rmtree(runs, ignore_errors=True)


def _nothing() -> None:
    pass


def attack_writes(tally: Tally, bench: Bench, rng: random.Random, count: int) -> int:
    """Let writes of a run fail once each, in a random order; return how many writes a run has."""
    counted = bench.work / "counted"
    runs = bench.work / "all"
    whole = FailingWrite(runs, 0, 0, counted)
    ended = run(bench.argv(runs), bench.work / "log", whole.install)
    assert ended.status == 0, ended.output
    total = int(counted.read_text().split()[0])
    shutil.rmtree(runs)  # or the next round would count those of a finished run
    numbers = rng.sample(range(1, total + 1), min(count, total))
    for place, number in enumerate(numbers):
        runs, code = bench.work / f"failed{number}", ERRNOS[place % len(ERRNOS)]
        fault = FailingWrite(runs, number, code, counted)
        tally.take(
            WRITES,
            f"write {number} of {total}: {errno.errorcode[code]}",
            lambda fault=fault: _failed_and_again(bench, fault),
        )
        shutil.rmtree(runs, ignore_errors=True)
    return total


def _failed_and_again(bench: Bench, fault: FailingWrite) -> str | None:
    ended = run(bench.argv(fault.root), bench.work / "log", fault.install)
    if ended.status == 0:
        return "the run did not notice"
    if "Traceback" in ended.output or os.strerror(fault.code) not in ended.output:
        return f"says: {ended.output[-400:]}"
    if list(fault.root.rglob("*.partial")):
        return "leaves a part of a file"
    return bench.differs(fault.root)


def attack_by_pairs(tally: Tally, bench: Bench, rng: random.Random, count: int) -> None:
    """Start the same run twice at a time: one carries it out, the other is refused or waits."""
    for number in range(count):
        runs = bench.work / f"pair{number}"

        def start_both(runs: Path = runs) -> str | None:
            logs = [bench.work / "log0", bench.work / "log1"]
            both = []
            for log in logs:
                both.append(RunProcess(bench.argv(runs), log, prepare=_nothing))
                time.sleep(rng.uniform(0, bench.seconds / 4))
            ended = [process.wait() for process in both]
            said = [each.output for each in ended if each.status != 0]
            if len(said) == 2 or any("another process is at work" not in text for text in said):
                return f"says: {' / '.join(said)[-400:]}"
            return bench.differs(runs)

        tally.take(PAIRS, runs.name, start_both)
        shutil.rmtree(runs, ignore_errors=True)


Attack = Callable[[Tally, Bench, random.Random, int], object]
