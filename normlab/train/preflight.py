"""What is checked and said about a run before its first step.

Norms that cannot be trained on the run's batches are refused here; else that would show only in the
first long sentence, in the last batch of an epoch, or never.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from normlab.config.sites import NORM_KEYS
from normlab.distributed import Shard
from normlab.models.base import incremental
from normlab.norms.base import running_norms
from normlab.norms.batch import BatchNorm, PositionBatchNorm
from normlab.tasks.base import Task

_CURE = "or take a norm that does not pool over the batch (norm=ln)"


def check_start(config: Mapping[str, Any], task: Task, model: nn.Module, world: Shard) -> None:
    """Raise ValueError, naming key and cure, where the norms cannot be trained on these batches."""
    _check_positions(config, task, model)
    # Norms that are synced pool over the sequences of several processes.
    norms = [n for n in running_norms(model) if isinstance(n, BatchNorm)]
    norms = [norm for norm in norms if world.size == 1 or not norm.sync]
    if not norms:
        return
    batches = task.planned(world, config["seed"])  # none for a task without a plan
    sequences = max(map(len, batches)) if batches else config["batch_size"]
    tokens = min(map(task.fewest_pooled, batches)) if batches else 2
    for norm in norms:
        name = type(norm).__name__
        by_position = "position" not in norm.pools or norm.by_position
        if by_position and "feature" not in norm.pools:
            key = f"batch_size={config['batch_size']} max_tokens={config['max_tokens']}"
            if norm.ghost is not None and norm.pool.size == 1:
                key = f"norm.ghost={norm.ghost}"
            elif sequences > 1:
                continue
            raise ValueError(
                f"{key}: {name} pools each position over the sequences of a batch, and here over a "
                f"single one, so that every output is the bias: raise it, {_CURE}"
            )
        if "position" in norm.pools and tokens < 2:
            raise ValueError(
                f"a training batch may give {name} a single token, and its statistics need at "
                "least two: raise batch_size, max_tokens or task.mask_share until no batch is so "
                f"small, {_CURE}"
            )


def _check_positions(config: Mapping[str, Any], task: Task, model: nn.Module) -> None:
    """Norms by position need a row for each position that there will be, outside a recurrence."""
    if not any(isinstance(m, PositionBatchNorm) and not m.by_position for m in model.modules()):
        return
    nodes = {key: config.get(key) or {} for key in NORM_KEYS}
    rows = {key: node["num_positions"] for key, node in nodes.items() if "num_positions" in node}
    if not rows:
        return
    key, least = min(rows.items(), key=lambda item: item[1])
    reach = task.reach(config["model"].get("max_positions", least))
    if reach > least:
        raise ValueError(
            f"{key}.num_positions={least} is less than the {reach} positions that the longest "
            f"sequence of this run may have: give {key}.num_positions={reach}, or shorten the "
            "sequences"
        )


def notices(model: nn.Module, milestones: Mapping[str, int], total: int | None) -> Iterator[str]:
    """Yield the phases of the norms, and what is out of the ordinary.

    `milestones` are the last steps of these phases by name, `total` the steps of the run.
    """
    if milestones:
        yield f"norms' own schedules: {_listed(milestones)}"
    late = {name: step for name, step in milestones.items() if total and step > total}
    if late:
        where = f"the run ends at step {total:,}, within a norm's own schedule"
        yield f"warning: {where}: {_listed(late)}"
    decoder = _decoder(model)
    if decoder is not None:
        recurrent = getattr(decoder, "recurrent", None)
        if not (incremental(decoder) if recurrent is None else recurrent.incremental):
            yield (
                "decoding reads the whole prefix again for each token: in evaluation a norm looks "
                "at other tokens"
            )
    if sees := seeing_future(model):
        yield (
            f"warning: {', '.join(sees)} shows a token the later ones of its sequence, in training "
            "too: losses and scores are those of a model that has seen what it predicts"
        )


def seeing_future(model: nn.Module) -> list[str]:
    """Return the classes of norms that let a decoder see later tokens."""
    decoder = _decoder(model)
    parts = decoder.modules() if decoder is not None else ()
    return sorted({type(m).__name__ for m in parts if getattr(m, "sees_future", False)})


def _decoder(model: nn.Module) -> nn.Module | None:
    """Return the part of a model that predicts the next token; None if there is none."""
    return getattr(model, "decoder", model) if hasattr(model, "start_decoding") else None


def _listed(milestones: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name} from step {step + 1:,}"  # the last step before statistics are frozen
        if name == "freeze_statistics"
        else f"{name.replace('/', ' ')} until step {step:,}"
        for name, step in milestones.items()
    )
