"""Runs that tell how far they are, as those of `normlab train` do: with the bar or without it."""

from dataclasses import dataclass, fields
from io import StringIO
from pathlib import Path

import rich.console

from normlab.bench.clock import Clock
from normlab.bench.train import Contender, Interval
from normlab.progress import heard_by
from normlab.train.sinks.base import Sink, SinkGroup
from normlab.train.sinks.console import Console
from normlab.train.sinks.live import Live


@dataclass(kw_only=True)
class Shown(Contender):
    """A run whose stages go to `progress.json` in a folder and, with `bar`, to a terminal.

    The bar is begun and ended with each turn, so that nothing draws in the turns of others.
    """

    folder: Path
    bar: bool

    @classmethod
    def of(cls, contender: Contender, folder: Path, *, bar: bool) -> "Shown":
        """Let a run be shown."""
        own = {item.name: getattr(contender, item.name) for item in fields(contender)}
        return cls(**own, folder=folder, bar=bar)

    def take(self, steps: int, clock: Clock) -> Interval:
        """Take steps and return what they were."""
        sinks: dict[str, Sink] = {"progress": Live(self.folder)}
        if self.bar:
            terminal = rich.console.Console(file=StringIO(), force_terminal=True, width=80)
            sinks["console"] = Console(style="terminal", console=terminal)
        group = SinkGroup(sinks)
        try:
            with heard_by(group.stage):
                return super().take(steps, clock)
        finally:
            group.close(None)
