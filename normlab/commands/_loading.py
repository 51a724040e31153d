"""Loads a trained run, and warns if it did not finish."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.records.record import RunRecord
from normlab.terminal import at_work, print_error

if TYPE_CHECKING:
    from normlab.training.loaded_run import LoadedRun


def load(
    folder: Path,
    changes: Sequence[str],
    *,
    weights: str | None,
    fold: bool = False,
    data: bool = True,
) -> "LoadedRun":
    """Load a run like `normlab.training.loaded_run.load_run`, and warn if it did not finish.

    Raises UserError for a change that cannot change the run's scores.
    """
    with at_work(f"loading {folder}"):
        from normlab.config.run_config import check_acting
        from normlab.training.loaded_run import BATCHES, SCORED, load_run

        run = load_run(folder, [*changes], fold=fold, weights=weights, data=data)
        check_acting(changes, (*SCORED, *(BATCHES if run.recalibrates else ())))
        run.runtime.set_torch()
    warn_if_stopped(folder, run.record)
    return run


def warn_if_stopped(folder: Path, record: RunRecord) -> None:
    """Warn if the weights of a run are not from its last planned step."""
    if (ended := record.outcome).status != "finished":
        end = f"{ended.status} at step {ended.step:,}"
        print_error(f"{folder} {end}, so these are not the weights of a finished run")
