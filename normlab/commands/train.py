"""`normlab train`: trains one run or, with -m or one of Hydra's search plugins, many.

With Hydra's basic launcher, the runs of a grid are first listed, then executed like those of a
study. With another launcher (Slurm, Ray), a scheduler runs them, and `normlab list runs` shows
them.
"""

import os
import shlex
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from normlab.config.folders import include_words
from normlab.config.launch import end_with_the_sweep, launch
from normlab.records.store import RECORD_FILE
from normlab.studies.process_pool import INTERRUPTED
from normlab.terminal import print_line

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from normlab.records.record import RunRecord

_HELP = """usage: normlab train [-m] [my.yaml] [group=option ...] [key=value ...]

Train one run; with -m, one run for each combination of the values given.

examples:
  normlab train norm=bn task=toy batch_size=32
  normlab train norm=bn norm@decoder_norm=ln task=multi30k data_dir=FOLDER
  normlab train norm=ln 'sites={encoder.0.*:bn,*.self.q:rms}'
  normlab train -m norm=ln,bn batch_size=8,32,128 'seed=range(1,4)'
  normlab train experiment=gpt_bn data_dir=FOLDER debug=true  keep nothing
  normlab train my.yaml lr=1e-3 steps=500 name=baseline wandb=true

include=FOLDER        add your own norms, tasks, ... (see normlab norm --help);
                      also --config-dir FOLDER, hydra.searchpath=[file://FOLDER]
normlab list          all groups and options; with a GROUP, one group
normlab list keys     all keys with default, allowed values and meaning
--cfg job             print the whole config without training
--hydra-help          Hydra's own flags"""
_DEBUG = (
    "debug=true: at most 3 steps, and one batch of validation and of each test set; no files "
    "were kept"
)


def main(argv: list[str]) -> int:
    """Compose the config and train. Hydra handles the flags."""
    if argv in (["--help"], ["-h"]):
        print(_HELP)
        return 0
    from normlab.config.compose import compose_written, shown_config, written_out
    from normlab.config.overrides import check_given_once

    end_with_the_sweep()
    resume_command = shlex.join(["normlab", "train", *argv, *include_words()])
    check_given_once(argv)
    argv = written_out(argv)
    if (shown := shown_config(argv)) is not None:
        print(shown, end="")
        return 0
    if any(text.startswith(("-", "hydra")) for text in argv):
        from normlab.reports.table_formats.terminal_table import compare_ended_runs
        from normlab.studies.hydra_sweep import SweepActions, run_hydra

        alone = partial(train_once, resume_command=resume_command)
        return run_hydra(
            argv, resume_command, SweepActions(train_and_summarize, alone, compare_ended_runs)
        )
    return train_once(compose_written(argv), resume_command=resume_command)


def train_once(config: "DictConfig", *, resume_command: str) -> int:
    """Train a run and return the exit status. `resume_command` is printed if it is interrupted."""
    record = train_and_summarize(config)
    if config.observe.debug:
        print_line(_DEBUG)
    if record.outcome.status != "interrupted":
        return 0
    if _is_first_rank() and not config.observe.debug:
        print(f"to resume: {resume_command}", file=sys.stderr)
    return INTERRUPTED


def train_and_summarize(config: "DictConfig") -> "RunRecord":
    """Train a run and print its summary."""
    from normlab.config.run_config import to_dict
    from normlab.records.store import RunStore
    from normlab.training import train

    began = time.time()
    record = train(config)
    path = RunStore(config.runs_dir).run_dir(to_dict(config)) / RECORD_FILE
    is_kept = not config.observe.debug and path.is_file()
    ended_before = is_kept and path.stat().st_mtime < began
    if not _is_first_rank():
        return record
    if ended_before:
        print_line(f"nothing to train, because this run has ended; its record is {path}")
    if ended_before or not _console_has_shown(record.config):
        print_line(summary(record))
    return record


def _console_has_shown(config: Mapping[str, Any]) -> bool:
    """Return whether the console shows the scores of a run in the terminal of standard output.

    If not, the caller prints them. When standard output is a file, they are its last line, which a
    sweep reads from the run's log.
    """
    with suppress(OSError, ValueError, AttributeError):  # an output may have no file
        one_place = os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
        return "console" in config["observe"]["sink"] and one_place and sys.stdout.isatty()
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
    why = ON_PLATEAU if on_plateau(record) else NOT_CLEAR if is_near_baseline(record) else ""
    but = f", but {why}" if why else ""
    return f"{record.run_id}: {record.outcome.status} {record.outcome.ending}{but}: {scores}"
