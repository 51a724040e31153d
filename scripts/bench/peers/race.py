"""Programs that take turns, each in its own process; only one of them works at a time."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from normlab.errors import UserError

_SCRIPTS = Path(__file__).resolve().parents[2]
_ONE_THREAD = {
    name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM")
}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Turn:
    """What a program did in one turn: wall and processor seconds, steps, and summed counts."""

    wall: float
    busy: float
    steps: int
    counts: Mapping[str, int]
    peak_memory_bytes: int


@dataclass
class Program:
    """A measured program in its own process, started and waiting for turns.

    Its output goes to the file `log`; error messages quote the end of that file.
    """

    process: "subprocess.Popen[str]"
    log: Path
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def start(cls, command: Sequence[str], *, log: Path, path: Sequence[Path] = ()) -> "Program":
        """Start the program and wait until it has loaded; `path` is where Python finds modules."""
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
        """Let the program work for this much processor time, up to the end of a step."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # if it has ended, there is no answer either
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
        raise UserError(said[-1].strip()[:300] if said else "it ended without a word")


Kind = Literal["training", "decoding"]


@dataclass(frozen=True)
class Entry:
    """One program in one setting: its runner is `bench.peers.<module>`.

    `environment` is its virtual environment; `normlab` is that of this process.
    """

    name: str
    kind: Kind
    environment: str
    module: str
    precision: str


ENTRIES = (
    Entry("Hugging Face fp32", "training", "hugging_face", "hugging_face", "fp32"),
    Entry("Hugging Face bf16", "training", "hugging_face", "hugging_face", "bf16"),
    Entry("normlab fp32", "training", "normlab", "own", "fp32"),
    Entry("normlab bf16", "training", "normlab", "own", "bf16"),
    Entry("Hugging Face fp32", "decoding", "hugging_face", "hugging_face", "fp32"),
    Entry("Hugging Face bf16", "decoding", "hugging_face", "hugging_face", "bf16"),
    Entry("CTranslate2 fp32", "decoding", "ctranslate2", "ctranslate", "fp32"),
    Entry("CTranslate2 int8", "decoding", "ctranslate2", "ctranslate", "int8"),
    Entry("normlab fp32", "decoding", "normlab", "own", "fp32"),
    Entry("normlab bf16", "decoding", "normlab", "own", "bf16"),
)
"""In the order of their turns; ratios are taken to the first of each kind that is there."""
OWN = ("normlab fp32", "normlab bf16")


@dataclass
class Race:
    """The programs of a measurement and the turns they had.

    A program that cannot be started or fails in a turn drops out, with the reason in `failed`.

    Attributes:
        folder: holds one environment per program; `<environment>.failed` says why one is missing.
        work: the folder with the files that all programs read.
    """

    folder: Path
    work: Path
    programs: dict[Entry, Program] = field(default_factory=dict)
    turns: dict[Entry, list[Turn]] = field(default_factory=dict)
    failed: dict[Entry, str] = field(default_factory=dict)

    def start(self, entries: Sequence[Entry], *, warmup: float) -> None:
        """Start the programs one after the other, and give each a turn that does not count."""
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
        """Return what the remaining programs did, and what they reported about themselves."""
        return [
            (entry, program.facts, self.turns[entry]) for entry, program in self.programs.items()
        ]

    def close(self) -> None:
        """End all programs."""
        for program in self.programs.values():
            program.close()

    def _start(self, entry: Entry) -> Program:
        name = f"{entry.module}_{entry.kind}_{entry.precision}"
        scratch = self.work / "scratch" / name
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        command = [
            *(str(self._python(entry.environment)), "-m", f"bench.peers.{entry.module}"),
            *(str(self.work), "--kind", entry.kind, "--precision", entry.precision),
            *("--scratch", str(scratch)),
        ]
        # The checkout, in case normlab is not installed.
        path = [_SCRIPTS, *([_SCRIPTS.parent] if entry.environment == "normlab" else [])]
        return Program.start(command, log=scratch / "log.txt", path=path)

    def _python(self, environment: str) -> Path:
        if environment == "normlab":
            return Path(sys.executable)
        reason = self.folder / f"{environment}.failed"
        if reason.exists():
            raise UserError(f"cannot be installed: {reason.read_text().strip()}")
        found = self.folder / environment / "bin" / "python"
        if not os.access(found, os.X_OK):
            raise UserError(f"{found} is missing: run scripts/bench/peers.sh")
        return found

    @contextmanager
    def _leaves_if_it_fails(self, entry: Entry) -> Iterator[None]:
        try:
            yield
        except (UserError, OSError) as error:
            program = self.programs.pop(entry, None)
            if program is not None:
                program.close()
            self.failed[entry] = str(error)
            print(f"{entry.name}, {entry.kind}: {error}", file=sys.stderr)
