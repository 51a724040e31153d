"""What was tried and what held, by kind, and the report of it."""

import os
import platform
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SHOWN = 20


@dataclass
class Tally:
    """Attacks by kind: how many were tried, how many held, and what the others did."""

    tried: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    fell: list[tuple[str, str, str]] = field(default_factory=list)

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

    def text(self, *, minutes: float, seed: int) -> str:
        """Return the report in Markdown."""
        rows = [
            f"| {kind} | {tried} | {self.held[kind]} |"
            for kind, tried in sorted(self.tried.items())
        ]
        lines = [
            "# Faults",
            "",
            "Attacks on a command line, a run and its files, made by `bash scripts/faults.sh`; "
            "[what is promised](../docs/security.md) says what each must end in.",
            "",
            f"{sum(self.tried.values())} tried, {sum(self.held.values())} held, in "
            f"{minutes:.0f} minutes, seed {seed}, Python {platform.python_version()}, "
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

    def write(self, path: Path, *, minutes: float, seed: int) -> None:
        """Write the report."""
        path.write_text(self.text(minutes=minutes, seed=seed), encoding="utf-8")


def _short(text: str) -> str:
    line = " ".join(text.split()).replace("`", "'")
    return line if len(line) <= 200 else f"{line[:197]}..."
