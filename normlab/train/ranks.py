"""What each process of a run has for itself, in a checkpoint that one of them writes.

That is the state of its random numbers, and the running statistics that its norms do not share.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from normlab import distributed
from normlab.train.norms import Norms


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Return the state of this process's random numbers."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Go on with the random numbers of a former state."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


def gather_states(norms: Norms, device: torch.device) -> dict[str, list[Any]]:
    """Return, in rank order, what each process has for itself."""
    own = {"random": random_state(device), "statistics": norms.own_statistics()}
    gathered = distributed.gather_objects(own)
    return {name: [state[name] for state in gathered] for name in own}


def restore_states(
    state: Mapping[str, Sequence[Any]], norms: Norms, world: distributed.Shard, device: torch.device
) -> None:
    """Put this process's part of a gathered state in place.

    Raises ValueError for a state of another number of processes.
    """
    count = len(state["random"])
    if count != world.size:
        raise ValueError(
            f"the checkpoint was written by {count} processes and this run has {world.size}: start "
            "it with as many"
        )
    restore_random_state(state["random"][world.rank], device)
    if "statistics" in state:  # else they went on with the mean of all
        norms.restore_statistics(state["statistics"][world.rank])
