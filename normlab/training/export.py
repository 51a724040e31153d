"""Exports a finished run's model as a file of weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from normlab.errors import UserError
from normlab.records.files import atomic_write
from normlab.records.record import RunRecord
from normlab.tasks.base import Batch, Task
from normlab.training.checkpoint import FORMAT
from normlab.training.loaded_run import load_run

WEIGHTS_FILE = "model.pt"
_COMPARED = 8  # validation examples on which a folded model must agree with the run's model
_AGREES = 1e-3  # relative to the largest logit, for float32 rounding over dozens of layers


@dataclass(frozen=True)
class Exported:
    """An exported run.

    `apart` is the largest change to an output that folding caused, relative to the largest output.
    """

    record: RunRecord
    file: Path
    folded: Sequence[str]
    apart: float


def export(run_dir: Path, folder: Path, *, fold: bool) -> Exported:
    """Write a finished run's tested weights to a folder, with norms folded if `fold`.

    If the run recalibrates its running statistics, the recalibrated statistics are written.
    The file holds a state dict under `model` (without the weights of folded norms), the config, and
    the names of the folded norms. Everything runs on the CPU. Raises UserError if no norm can be
    folded, or if the folded model's outputs do not agree with the run's.
    """
    run = load_run(run_dir, ["device=cpu"])
    written = load_run(run_dir, ["device=cpu"], fold=True) if fold else run
    batch = run.task.batch("valid", range(min(_COMPARED, len(run.task.lengths("valid")))))
    expected = outputs(run.task, run.model, batch)
    difference = (outputs(run.task, written.model, batch) - expected).abs().max()
    apart = float(difference / expected.abs().max().clamp(min=1e-12))
    if not apart <= _AGREES:
        raise UserError(
            f"{run_dir}: the folded model's outputs differ by {apart:.2g} of the largest output; "
            "nothing was exported"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with written.as_tested() as model, atomic_write(folder / WEIGHTS_FILE, "wb") as file:
        content = {
            "format": FORMAT,
            "run_id": run.record.run_id,
            "config": run.record.config,
            "folded": [*written.folded],
            "model": model.state_dict(),
        }
        torch.save(content, file)
    return Exported(run.record, folder / WEIGHTS_FILE, written.folded, apart)


@torch.no_grad()
def outputs(task: Task, model: nn.Module, batch: Batch) -> Tensor:
    """Return the logits at a batch's real targets, or its mean losses if the task has no logits."""
    if (stepwise := task.stepwise(model, batch)) is not None:
        return stepwise[0]
    losses = task.losses(model, batch)
    return torch.stack([losses[name] / batch.counts[name] for name in sorted(losses)])
