"""What is asked of data, norms and batches together before the first step of a run.

Each would show in the middle of a run only: in the first long sentence, in the last batch of an
epoch, or never, where a norm gives every token the same output.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from normlab.distributed import Shard
from normlab.norms.base import RunningNorm, running_norms
from normlab.norms.batch import BatchNorm, PositionBatchNorm
from normlab.sites import NORM_KEYS
from normlab.tasks.base import Task

_CURE = "or take a norm that does not pool over the batch (norm=ln)"


def check_start(config: Mapping[str, Any], task: Task, model: nn.Module, world: Shard) -> None:
    """Raise ValueError, naming key and cure, where the norms cannot be trained on these batches."""
    _check_rows(config, task, model)
    norms = [norm for norm in running_norms(model) if world.size == 1 or not norm.sync]
    if not norms:  # those that are synced pool over the sequences of several processes
        return
    batches = task.planned(world, config["seed"])
    most = max(map(len, batches)) if batches else config["batch_size"]  # of a task without a plan
    _check_sequences(config, norms, most)
    if batches:
        _check_tokens(norms, min(map(task.fewest_pooled, batches)))


def _check_rows(config: Mapping[str, Any], task: Task, model: nn.Module) -> None:
    """Norms by position need a row for each position that there will be, outside a recurrence."""
    nodes = {site: config.get(site) or {} for site in NORM_KEYS}
    if not any(isinstance(m, PositionBatchNorm) and not m.by_position for m in model.modules()):
        return
    rows = {key: node["num_positions"] for key, node in nodes.items() if "num_positions" in node}
    if not rows:
        return
    site, least = min(rows.items(), key=lambda item: item[1])
    room = config["model"].get("max_positions", least)
    if (reach := task.reach(room)) > least:
        raise ValueError(
            f"{site}.num_positions={least} is less than the {reach} positions that the longest "
            f"sequence of this run may have: give {site}.num_positions={reach}, or shorten the "
            "sequences"
        )


def _check_sequences(config: Mapping[str, Any], norms: list[RunningNorm], most: int) -> None:
    """A norm that pools one value at each position gives every token the same output, the bias."""
    for norm in norms:
        if not isinstance(norm, BatchNorm) or "feature" in norm.pools:
            continue
        if "position" in norm.pools and not norm.by_position:
            continue
        if norm.ghost is not None and norm.pool.size == 1:
            key = f"norm.ghost={norm.ghost}"
        elif most == 1:
            key = f"batch_size={config['batch_size']} max_tokens={config['max_tokens']}"
        else:
            continue
        raise ValueError(
            f"{key}: {type(norm).__name__} pools each position over the sequences of a batch, and "
            f"here over a single one, so that every output is the bias: raise it, {_CURE}"
        )


def _check_tokens(norms: list[RunningNorm], fewest: int) -> None:
    """A norm that pools over batch and time needs two tokens in every batch."""
    for norm in norms:
        if isinstance(norm, BatchNorm) and "position" in norm.pools and fewest < 2:
            raise ValueError(
                f"a training batch may give {type(norm).__name__} a single token, and its "
                "statistics need at least two: raise batch_size, max_tokens or task.mask_share "
                f"until no batch is so small, {_CURE}"
            )
