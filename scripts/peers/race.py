"""Several programs of one kind, taking turns round by round."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers.entries import Entry
from peers.processes import Program, Turn

_SCRIPTS = Path(__file__).resolve().parents[1]


@dataclass
class Race:
    """The programs of a measurement and the turns they had.

    A program that cannot be started, or fails in a turn, leaves with its reason in `failed`.

    Attributes:
        folder: holds an environment a program; a file `<environment>.failed` says why there is
            none.
        work: the folder of the files that all programs read.
    """

    folder: Path
    work: Path
    programs: dict[Entry, Program] = field(default_factory=dict)
    turns: dict[Entry, list[Turn]] = field(default_factory=dict)
    failed: dict[Entry, str] = field(default_factory=dict)

    def start(self, entries: Sequence[Entry], *, warmup: float) -> None:
        """Start the programs, one after the other, and give each a turn that does not count."""
        for entry in entries:
            with self._leaves_if_it_fails(entry):
                program = self._start(entry)
                self.programs[entry] = program
                program.take(warmup)
                self.turns[entry] = []

    def round(self, seconds: float) -> None:
        """Give each program a turn."""
        for entry, program in list(self.programs.items()):
            with self._leaves_if_it_fails(entry):
                self.turns[entry].append(program.take(seconds))

    def results(self) -> list[tuple[Entry, Mapping[str, Any], Sequence[Turn]]]:
        """Return what the programs that are left did, and what they said of themselves."""
        return [
            (entry, program.facts, self.turns[entry]) for entry, program in self.programs.items()
        ]

    def close(self) -> None:
        """End all programs."""
        for program in self.programs.values():
            program.close()

    def _start(self, entry: Entry) -> Program:
        name = f"{entry.module}_{entry.precision}"
        scratch = self.work / "scratch" / name
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        command = [
            *(str(self._python(entry.environment)), "-m", f"peers.{entry.module}"),
            *(str(self.work), "--precision", entry.precision, "--scratch", str(scratch)),
        ]
        # normlab's own place, in case it is not installed but run from its checkout.
        path = [_SCRIPTS, *([_SCRIPTS.parent] if entry.environment == "normlab" else [])]
        return Program.start(command, log=scratch / "log.txt", path=path)

    def _python(self, environment: str) -> Path:
        if environment == "normlab":
            return Path(sys.executable)
        reason = self.folder / f"{environment}.failed"
        if reason.exists():
            raise ValueError(f"cannot be installed: {reason.read_text().strip()}")
        found = self.folder / environment / "bin" / "python"
        if not os.access(found, os.X_OK):
            raise ValueError(f"{found} is missing: run scripts/bench_peers.sh")
        return found

    @contextmanager
    def _leaves_if_it_fails(self, entry: Entry) -> Iterator[None]:
        try:
            yield
        except (ValueError, OSError) as error:
            program = self.programs.pop(entry, None)
            if program is not None:
                program.close()
            self.failed[entry] = str(error)
            print(f"{entry.name}, {entry.kind}: {error}", file=sys.stderr)
