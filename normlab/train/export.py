"""A trained model as a file for others: its weights, with norms folded if asked.

The weights are a plain state dict under `model`, with the config that builds the model and the
norms that were folded into the products beside them (`normlab.models.folding`), which have no
weights any more. What is written is read back, and must compute what the run's model does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from normlab.config.compose import from_dict, to_dict
from normlab.norms.base import Norm
from normlab.norms.local import NoNorm
from normlab.records.files import atomic_write
from normlab.records.record import RunRecord
from normlab.tasks.base import Batch, Task
from normlab.train.build import build_model, check_nodes
from normlab.train.checkpoint import load_checkpoint, put_weights, reading, weights_of
from normlab.train.loaded import load_run

FORMAT = "normlab.checkpoint/1"
WEIGHTS_FILE = "model.pt"
SENTENCES = 8
_AGREES = 1e-3  # of the largest logit: float32 through some tens of layers, folded in float64


@dataclass(frozen=True)
class Exported:
    """What was written: the file, the folded norms, the largest difference of the outputs."""

    record: RunRecord
    file: Path
    folded: Sequence[str]
    apart: float


def export(run_dir: Path, folder: Path, *, fold: bool, changes: Sequence[str] = ()) -> Exported:
    """Write a finished run's tested weights into a folder.

    `changes` are `key=value` settings that replace those of the run, such as `device=cpu`. Raises
    ValueError where nothing can be folded, and where the outputs do not agree.
    """
    run = load_run(run_dir, [*changes])
    written = load_run(run_dir, [*changes], fold=True) if fold else run
    folded = _gone(run.model, written.model)
    batch = run.task.batch("valid", list(range(min(SENTENCES, len(run.task.lengths("valid"))))))
    batch = batch.to(run.runtime.device)
    expected = outputs(run.task, run.model, batch)
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / WEIGHTS_FILE
    content = {
        "format": FORMAT,
        "run_id": run.record.run_id,
        "config": run.record.config,
        "folded": folded,
        "model": {name: value.cpu() for name, value in written.model.state_dict().items()},
    }
    with atomic_write(weights, "wb") as file:
        torch.save(content, file)
    again = load_export(weights, run.task).to(run.runtime.device)
    apart = _apart(outputs(run.task, again, batch), expected)
    if not apart <= _AGREES:
        weights.unlink()
        raise ValueError(
            f"{run_dir}: the exported model's outputs differ by {apart:.2g} of the largest; "
            "nothing is exported"
        )
    return Exported(run.record, weights, folded, apart)


def load_export(path: Path, task: Task) -> nn.Module:
    """Return the model of an exported file in evaluation, on the CPU.

    The task gives the vocabulary. Raises ValueError for a file that is damaged or no export.
    """
    content = load_checkpoint(path)
    with reading(path):
        config = to_dict(from_dict(content["config"]))
        check_nodes(config)
        model = build_model(config, task)
        for name in content["folded"]:
            owner, _, place = str(name).rpartition(".")
            norm = model.get_submodule(str(name))
            if not isinstance(norm, Norm):
                raise TypeError(f"{name} is no norm")
            setattr(model.get_submodule(owner), place, NoNorm(norm.dim))
        weights = weights_of(content, path)
        _open_biases(model, weights)
        put_weights(model, weights, path)
    return model.eval()


def _open_biases(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give those products a bias that folded norms have given one."""
    for name, module in model.named_modules():
        bias = weights.get(f"{name}.bias")
        if bias is not None and getattr(module, "bias", bias) is None:
            module.bias = nn.Parameter(torch.empty_like(bias))


@torch.no_grad()
def outputs(task: Task, model: nn.Module, batch: Batch) -> Tensor:
    """Return logits of a batch's true tokens, or its losses where a task has no such logits."""
    found = task.stepwise(model, batch)
    if found is not None:
        return found[0]
    losses = task.losses(model, batch)
    return torch.stack([losses[name] / batch.counts[name] for name in sorted(losses)])


def _gone(model: nn.Module, folded: nn.Module) -> list[str]:
    """Name the norms of a model in whose place another has none."""
    places = dict(folded.named_modules())
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, Norm)
        and not isinstance(module, NoNorm)
        and isinstance(places.get(name), NoNorm)
    ]


def _apart(found: Tensor, expected: Tensor) -> float:
    size = expected.abs().max().clamp(min=1e-12)
    return float((found - expected).abs().max() / size)
