"""Training: the loop, optimizers, evaluation, checkpoints, runtime and sinks."""

import sys
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from normlab.records.files import check_writable

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from normlab.records.record import RunRecord


def train(config: "DictConfig") -> "RunRecord":
    """Train a run and return its record.

    If the run has already finished, only its record is returned. With `observe.debug`, no files of
    the run are kept. Raises UserError if a value is invalid, a file is damaged, or the run was made
    by another version of the code.
    """
    from normlab.config.launch import check_single, launch
    from normlab.training.run_folder import RunFolder

    run = RunFolder(config)
    with ExitStack() as stack:
        if run.config["observe"]["debug"]:
            check_single("debug=true works only in one process")
            place = TemporaryDirectory(prefix="normlab-debug-", ignore_cleanup_errors=True)
            run.move(stack.enter_context(place))
        process = launch()
        if process.size == 1 and (record := run.finished(processes=1)) is not None:
            return record
        check_writable(run.folder)
        if process.rank == 0 and sys.stderr is not None and sys.stderr.isatty():
            print("preparing", file=sys.stderr, flush=True)  # loading torch takes seconds
        from normlab.training.execution import execute
        from normlab.training.runtime import torch_settings_kept

        with torch_settings_kept():
            return execute(run)
