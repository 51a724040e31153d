"""Shows the progress of runs, as a live table on a terminal or as regular lines in a pipe.

The progress of each run is read from its folder.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from normlab.formats import estimated, short_number
from normlab.records.store import read_progress
from normlab.stages import Stage
from normlab.studies.process_pool import (
    LOG_FILE,
    EndedRun,
    ProgressDisplay,
    RunQueue,
    RunToStart,
    machine_shares,
    run_all,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PIPE_SECONDS = 10.0  # seconds between lines in a pipe
_LINES = 8  # terminal lines outside the table


class RunsDisplay(ProgressDisplay):
    """Displays the progress of runs, `at_a_time` of them in parallel, by default on stderr."""

    def __init__(self, at_a_time: int, console: "Console | None" = None) -> None:
        from rich.console import Console

        self._at_a_time = at_a_time
        self._console = console or Console(file=sys.stderr, highlight=False)
        self._live: Any = None
        self._running: Mapping[RunToStart, float] = {}
        self._progress: dict[RunToStart, dict[str, Any]] = {}
        self._training: dict[RunToStart, float] = {}  # seconds from a run's start to its last step
        self._ended: Sequence[EndedRun] = ()
        self._count = 0
        self.every = 1.0 if self._console.is_terminal else _PIPE_SECONDS

    def __enter__(self) -> "RunsDisplay":
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                get_renderable=self.table,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, line: str) -> None:
        # The live table already shows this, so print the line only to a pipe or file.
        if self._live is None or not sys.stdout.isatty():
            print(line, flush=True)

    def beat(
        self, running: Mapping[RunToStart, float], ended: Sequence[EndedRun], count: int
    ) -> None:
        self._running, self._ended, self._count = running, ended, count
        for run in running:
            if (progress := read_progress(run.folder)) is not None:
                self._progress[run] = progress
                if progress["left"] is not None and not progress["trained"]:
                    self._training[run] = running[run] + progress["left"]
        if self._live is not None:
            self._live.refresh()
        else:
            lines = [f"{run.name}: {' '.join(self._does(run)).rstrip()}" for run in running]
            print(" | ".join([self.counts(), *lines]), flush=True)

    def _does(self, run: RunToStart) -> tuple[str, str]:
        """Return the phase and progress of a run, and its loss."""
        if (now := self._progress.get(run)) is None:
            return "starting", ""
        stage = Stage(**{key: now[key] for key in Stage._fields})
        return str(stage), "" if stage.loss is None else short_number(stage.loss)

    @property
    def _done(self) -> list[EndedRun]:
        """The runs that were not interrupted."""
        return [done for done in self._ended if not done.interrupted]

    @property
    def left(self) -> float | None:
        """The estimated seconds left, or None if unknown.

        The last validation and the test are expected to take as long as in the runs that have
        ended. Until a run has ended, only the remaining training time is estimated.
        """
        known = [done for done in self._done if done.run in self._training]
        tails = [max(0.0, done.seconds - self._training[done.run]) for done in known]
        tail = fmean(tails) if tails else 0.0
        whole = {run: self._training[run] + tail for run in self._running if run in self._training}
        rest = [max(0.0, seconds - self._running[run]) for run, seconds in whole.items()]
        durations = [*whole.values(), *(done.seconds for done in self._done)]
        if not durations:
            return None
        waiting = self._count - len(self._done) - len(self._running)
        return max([(sum(rest) + waiting * fmean(durations)) / self._at_a_time, *rest])

    def counts(self) -> str:
        """Return a line with the number of done and failed runs, and the time left."""
        failed, left = sum(done.failed for done in self._done), self.left
        parts = [f"{len(self._done)} of {self._count} done"]
        parts += [f"{failed} failed"] if failed else []
        if left:
            what = "left" if self._done else "of training left"
            parts.append(f"about {estimated(left)} {what}")
        return ", ".join(parts)

    def table(self) -> "Table":
        """Return a table of current and failed runs, as many as fit on the terminal."""
        from rich.table import Table

        title = self.counts()
        table = Table(
            *("run", "does", "loss", "left"),
            title=title,
            title_justify="left",
            min_width=len(title),
        )
        table.box, table.pad_edge = None, False
        for column in table.columns:
            column.no_wrap = True
        rows = [
            (run.name, *self._does(run), "" if left is None else estimated(left))
            for run in self._running
            for left in [self._progress.get(run, {}).get("left")]
        ]
        rows += [(done.run.name, "failed", "", "") for done in self._ended if done.failed]
        for row in rows[: max(3, self._console.height - _LINES)]:
            table.add_row(*map(escape, row))
        return table

    def stopped(self, command: str) -> list[str]:
        """Return lines to print after Ctrl-C: the runs done and left, and the command to resume."""
        saved = [done.run for done in self._ended if done.interrupted and done.saved]
        done = len(self._done)
        summary = f"stopped: {done} of {self._count} runs done, {self._count - done} left"
        saved_runs = [run for run in saved if run in self._progress]
        begun = [f"  {run.name} (saved at {self._does(run)[0]})" for run in saved_runs]
        return [summary, *begun, f"resume with: {command}"]


def run_all_shown(
    queue: RunQueue, processes: int | None, *, resume_command: str, deadline: float = math.inf
) -> list[EndedRun]:
    """Execute a queue like `run_all`, and print its progress and the reasons for failures.

    Returns the runs that were not interrupted. `resume_command` is printed after Ctrl-C.
    """
    at_a_time = min(queue.count, len(machine_shares(processes)))
    runs = RunsDisplay(at_a_time)
    print(f"{queue.count} runs, {at_a_time} at a time; {LOG_FILE} in each run's folder", flush=True)
    try:
        with runs:
            done_runs = run_all(queue, processes, deadline=deadline, show=runs)
    except KeyboardInterrupt:
        print("\n".join(runs.stopped(resume_command)), file=sys.stderr)
        raise
    ended = [done for done in done_runs if not done.interrupted]
    failed = [done for done in ended if done.status]
    print(f"{len(ended) - len(failed)} of {len(ended)} runs done")
    for (status, reason), runs_of in _by_reason(failed).items():
        for done in runs_of:
            print(f"  failed with status {status}: {' '.join(done.run.overrides)}")
        print(f"    {reason} ({runs_of[0].run.folder / LOG_FILE})")
    return ended


def _by_reason(failed: Sequence[EndedRun]) -> dict[tuple[int, str], list[EndedRun]]:
    """Group failed runs by status and reason, because the runs of a sweep often share these."""
    groups: dict[tuple[int, str], list[EndedRun]] = {}
    for done in failed:
        groups.setdefault((done.status, done.last_line), []).append(done)
    return groups
