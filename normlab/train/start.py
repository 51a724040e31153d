"""Beginning a run from the weights of another, where names and shapes match.

So a model that was trained with layer norm goes on with batch norm: gains, shifts and all products
are taken, and running statistics, which layer norm has not, start anew. So does a norm's place in
a schedule of its own, which is of the run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from normlab.start_file import FILE, checksum
from normlab.train.checkpoint import load_checkpoint, weights_of

_NAMED = 3
_COUNTERS = "_extra_state"  # torch's name of what a module saves beside tensors


@dataclass(frozen=True)
class Start:
    """What a run started from: the names that were taken, began anew, and found no place."""

    run_dir: str
    taken: Sequence[str]
    anew: Sequence[str]
    left: Sequence[str]

    def __str__(self) -> str:
        """Say it in one line."""
        count = len(self.taken) + len(self.anew)
        parts = [f"start_from={self.run_dir}: {len(self.taken)} of {count} tensors taken"]
        parts += [f"anew {_some(self.anew)}"] if self.anew else []
        parts += [f"left behind {_some(self.left)}"] if self.left else []
        return "; ".join(parts)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


@torch.no_grad()
def start(model: nn.Module, node: Mapping[str, Any]) -> Start:
    """Give a model the weights of a settled `start_from`, in place.

    Raises ValueError for a file that is missing, damaged or not the one that was named, and where
    nothing matches.
    """
    folder = str(node["run_dir"])
    path = Path(folder) / FILE
    weights = weights_of(load_checkpoint(path), path)
    if checksum(path) != node["sha256"]:
        raise ValueError(f"{path}: has changed since this run was named by it; start it anew")
    own = model.state_dict()
    fitting = [
        name
        for name, value in own.items()
        if name.rpartition(".")[2] != _COUNTERS and _fits(weights.get(name), value)
    ]
    if not fitting:
        raise ValueError(
            f"start_from={folder}: no name and shape of its weights matches this model; give the "
            "same task and model"
        )
    for name in fitting:
        own[name].copy_(weights[name])
    return Start(
        folder,
        fitting,
        anew=[name for name in own if name not in fitting],
        left=[name for name in weights if name not in fitting],
    )


def _fits(value: torch.Tensor | None, place: torch.Tensor) -> bool:
    if value is None or value.shape != place.shape:
        return False
    return value.is_floating_point() == place.is_floating_point()
