"""The side that gives turns: one process a program, and only one of them at work."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ONE_THREAD = {
    name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM")
}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Turn:
    """What a program did in one turn: seconds of wall and of processor time, steps, sums."""

    wall: float
    busy: float
    steps: int
    counts: Mapping[str, int]
    peak_memory_bytes: int


@dataclass
class Program:
    """A measured program in a process of its own, started and waiting for turns.

    Its output goes to the file `log`, of which an error quotes the end.
    """

    process: "subprocess.Popen[str]"
    log: Path
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def start(cls, command: Sequence[str], *, log: Path, path: Sequence[Path] = ()) -> "Program":
        """Start it and wait until all is loaded; `path` is where Python finds modules."""
        environment = {**os.environ, **_ONE_THREAD, **_OFFLINE}
        environment["PYTHONPATH"] = os.pathsep.join(map(str, path))
        with log.open("w") as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )
        program = cls(process, log)
        program.facts = program._answer()
        return program

    def take(self, seconds: float) -> Turn:
        """Let it work for that much processor time, to the end of a step."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # then it has ended, and there is no answer either
            self.process.stdin.write(json.dumps({"seconds": seconds}) + "\n")
            self.process.stdin.flush()
        return Turn(**self._answer())

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdout.close()
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.close()
        said = self.log.read_text(errors="replace").strip().splitlines()
        raise ValueError(said[-1].strip()[:300] if said else "it ended without a word")
