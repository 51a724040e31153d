"""What the processes of a run share before it begins, and what each keeps for itself.

They share folder, code and data. Each keeps the state of its random numbers and the running
statistics that its norms do not share; a checkpoint holds those of all processes.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from normlab import distributed
from normlab.records.store import RECORD_FILE
from normlab.train.norms import Norms


def check_same_place(folder: Path, code: object, state: Path) -> None:
    """Raise ValueError on all ranks unless all read from one folder and run the same code.

    `state` is the checkpoint that the run would resume from.
    """
    places = {"lock": folder / ".lock", "record": folder / RECORD_FILE, "state": state}
    distributed.check_agreement(
        {f"the {name} in {folder}": _size(path) for name, path in places.items()},
        cure="runs_dir must be a folder that all ranks share",
    )
    distributed.check_agreement(
        {"the code": str(code)}, cure="install the same version for all ranks"
    )


def check_same_data(checksums: object) -> None:
    """Raise ValueError on all ranks unless all have read the same data."""
    digest = hashlib.sha256(json.dumps(checksums, sort_keys=True).encode()).hexdigest()[:10]
    distributed.check_agreement(
        {"the text of data_dir": digest}, cure="give all ranks the same data"
    )


def _size(path: Path) -> str:
    """Describe a file, so that two that differ usually have different descriptions."""
    return f"{path.stat().st_size} bytes long" if path.exists() else "missing"


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Return the state of this process's random numbers."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore the state of this process's random numbers."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


def gather_states(norms: Norms, device: torch.device) -> dict[str, list[Any]]:
    """Return, in rank order, what each process keeps for itself."""
    own = {"random": random_state(device), "statistics": norms.own_statistics()}
    gathered = distributed.gather_objects(own)
    return {name: [state[name] for state in gathered] for name in own}


def restore_states(
    state: Mapping[str, Sequence[Any]], norms: Norms, world: distributed.Shard, device: torch.device
) -> None:
    """Restore this process's part of a gathered state.

    Raises ValueError for a state of another number of processes.
    """
    count = len(state["random"])
    if count != world.size:
        raise ValueError(
            f"the checkpoint was written by {count} processes and this run has {world.size}: start "
            "it with as many"
        )
    restore_random_state(state["random"][world.rank], device)
    norms.restore_statistics(state["statistics"][world.rank])
