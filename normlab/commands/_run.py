"""One run of `normlab train`: its training, its one-line summary, and its exit status."""

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from normlab.config.launch import launch
from normlab.records.store import RECORD_FILE
from normlab.studies.process_pool import INTERRUPTED
from normlab.terminal import print_line

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from normlab.records.record import RunRecord

_DEBUG = "debug=true: at most 3 steps, one batch of validation and of each test; no files were kept"


def train_once(config: "DictConfig", *, again: str) -> int:
    """Train a run and return the exit status; `again` is the command that resumes it."""
    record = train_and_summarize(config)
    if config.observe.debug:
        print_line(_DEBUG)
    if record.outcome.status != "interrupted":
        return 0
    if _is_first_rank() and not config.observe.debug:
        print(f"to resume: {again}", file=sys.stderr)
    return INTERRUPTED


def train_and_summarize(config: "DictConfig") -> "RunRecord":
    """Train a run and print its summary."""
    from normlab.training import train

    began = time.time()
    record = train(config)
    if _is_first_rank() and not _console_has_shown(record.config, began):
        print_line(summary(record))
    return record


def _console_has_shown(config: Mapping[str, Any], began: float) -> bool:
    """Return whether the reader has just seen the scores on standard error, in the same terminal.

    If standard output is a file, the scores are printed as its last line, which a sweep reads from
    the run's log.
    """
    from normlab.records.store import RunStore

    path = RunStore(config["runs_dir"]).run_dir(config) / RECORD_FILE
    with suppress(OSError, ValueError, AttributeError):  # an output may have no file
        one_place = os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
        one_place = one_place and sys.stdout.isatty()
        return (
            "console" in config["observe"]["sink"] and one_place and path.stat().st_mtime >= began
        )
    return False


def _is_first_rank() -> bool:
    """Return whether this is rank 0 or the only process, even after the process group has ended."""
    return launch().rank == 0


def summary(record: "RunRecord") -> str:
    """Return one line about a run: its outcome and test scores."""
    from normlab.metrics.baseline import NOT_CLEAR, ON_PLATEAU, is_near_baseline, on_plateau

    scores = ", ".join(
        f"{name} {score.value:.4g}"
        for name, score in record.main_scores.items()
        if name.startswith("test")
    )
    reason = f" ({record.outcome.reason})" if record.outcome.reason else ""
    why = ON_PLATEAU if on_plateau(record) else NOT_CLEAR if is_near_baseline(record) else ""
    but = f", but {why}:" if why else ""
    ended = f"{record.outcome.status} at step {record.outcome.step}{reason}{but}"
    return f"{record.run_id}: {ended} {scores}"
