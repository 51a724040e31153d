"""What was tried and what held, by kind, and the report of it."""

import json
import os
import platform
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from normlab.records.files import atomic_write

SHOWN = 20


@dataclass
class Tally:
    """Attacks by kind: how many were tried, how many held, and what the others did."""

    tried: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    fell: list[tuple[str, str, str]] = field(default_factory=list)
    rounds: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def count(self, kind: str, attack: str, problem: str | None) -> None:
        """Take in one attack; `problem` is None where it held."""
        self.tried[kind] += 1
        if problem is None:
            self.held[kind] += 1
        else:
            self.fell.append((kind, attack, problem))

    def take(self, kind: str, attack: str, carry_out: Callable[[], str | None]) -> None:
        """Carry out an attack that returns what is wrong; an exception is wrong too."""
        try:
            problem = carry_out()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        self.count(kind, attack, problem)

    def add(self, other: "Tally") -> None:
        """Take in what another has."""
        self.tried += other.tried
        self.held += other.held
        self.fell += other.fell
        self.rounds += other.rounds
        self.seconds += other.seconds

    @classmethod
    def read(cls, path: Path | None) -> "Tally":
        """Return what was kept in a file, nothing without one."""
        if path is None or not path.exists():
            return cls()
        kept = json.loads(path.read_text("utf-8"))
        fell = [(kind, attack, problem) for kind, attack, problem in kept["fell"]]
        tried, held, rounds = (Counter(kept[name]) for name in ("tried", "held", "rounds"))
        return cls(tried, held, fell, rounds, kept["seconds"])

    def keep(self, path: Path) -> None:
        """Write all of it into a file."""
        with atomic_write(path) as file:
            json.dump(vars(self), file)

    def text(self, *, seed: str) -> str:
        """Return the report in Markdown."""
        sums = {kind.partition(":")[0] for kind in self.tried if ":" in kind}
        rows = [
            f"| {kind} | {self._sum(self.tried, kind)} | {self._sum(self.held, kind)} |"
            for kind in sorted({*self.tried, *sums})
        ]
        lines = [
            "# Faults",
            "",
            "Attacks on a command line, a run and its files, made by `bash scripts/faults.sh`; "
            "[what is promised](../docs/security.md) says what each must end in.",
            "",
            f"{sum(self.tried.values())} tried, {sum(self.held.values())} held, in "
            f"{self.seconds / 60:.0f} minutes, seed {seed}, Python {platform.python_version()}, "
            f"{os.cpu_count()} cores.",
            "",
            "| kind | tried | held |",
            "| --- | ---: | ---: |",
            *rows,
        ]
        if self.fell:
            lines += ["", "What fell:", ""]
            lines += [f"- {k}: `{_short(a)}`: {_short(p)}" for k, a, p in self.fell[:SHOWN]]
        return "\n".join([*lines, ""])

    @staticmethod
    def _sum(counts: "Counter[str]", kind: str) -> int:
        """Return the count of a kind and of those within it, such as `kind: train`."""
        return sum(n for name, n in counts.items() if name == kind or name.startswith(f"{kind}:"))

    def write(self, path: Path, *, seed: str) -> None:
        """Write the report."""
        with atomic_write(path) as file:
            file.write(self.text(seed=seed))


def _short(text: str) -> str:
    line = " ".join(text.split()).replace("`", "'")
    return line if len(line) <= 200 else f"{line[:197]}..."
