"""Checks and notices about a model's norms, before the first step.

The checks refuse norms that cannot be trained on the batches of a run. Without them, the problem
would show only at the first long sentence, in the last batch of an epoch, or never.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from normlab.config.schema import NORM_KEYS
from normlab.distributed.process_group import Shard
from normlab.errors import UserError
from normlab.norms.batch import BatchNorm, PositionBatchNorm
from normlab.norms.running import running_norms
from normlab.tasks.base import Task
from normlab.training.own_norms import check_own_norms
from normlab.training.sinks import Notice

_CURE = "or use a norm that does not pool over the batch (norm=ln)"


def check_start(config: Mapping[str, Any], task: Task, model: nn.Module, world: Shard) -> None:
    """Raise UserError, with key and remedy, if norms cannot be trained on the run's batches.

    `freeze_statistics` is refused as well if there are no statistics, and a norm of the user's own
    if it does not work.
    """
    check_own_norms(config, model)
    _check_freeze(config.get("freeze_statistics"), model)
    _check_positions(config, task, model)
    # Synced norms pool over the sequences of all processes.
    norms = [n for n in running_norms(model) if isinstance(n, BatchNorm)]
    norms = [norm for norm in norms if world.size == 1 or not norm.sync]
    if not norms:
        return
    batches = task.planned(world, config["seed"])
    sequences, tokens = max(map(len, batches)), min(map(task.fewest_pooled, batches))
    for norm in norms:
        name = type(norm).__name__
        by_position = "position" not in norm.pools or norm.by_position
        if by_position and "feature" not in norm.pools:
            key = f"batch_size={config['batch_size']} max_tokens={config['max_tokens']}"
            if norm.ghost == 1:
                key = f"norm.ghost={norm.ghost}"
            elif sequences > 1:
                continue
            elif sum(map(len, batches)) == 1:
                raise UserError(
                    f"the training data have one sequence, but {name} pools each position over "
                    f"several; add more text, {_CURE}"
                )
            raise UserError(
                f"{key} is too small; raise it, {_CURE}. {name} pools each position over the "
                "sequences of a batch, but a batch has only one, so every output would be the "
                "bias"
            )
        if "position" in norm.pools and tokens < 2:
            raise UserError(
                f"a training batch may give {name} a single token, but its statistics need at "
                "least two; raise batch_size, max_tokens or task.mask_share until no batch is so "
                f"small, {_CURE}"
            )


def _check_freeze(share: float | None, model: nn.Module) -> None:
    """Raise UserError if running statistics are to be frozen, but no norm of the model has any."""
    if share is not None and not running_norms(model):
        raise UserError(
            f"freeze_statistics={share} has no effect, because no norm of this model has running "
            "statistics; omit it, or set another norm (norm=bn)"
        )


def _check_positions(config: Mapping[str, Any], task: Task, model: nn.Module) -> None:
    """Raise UserError if a per-position norm outside a recurrence has too few positions."""
    if not any(isinstance(m, PositionBatchNorm) and not m.by_position for m in model.modules()):
        return
    nodes = {key: config.get(key) or {} for key in NORM_KEYS}
    nodes |= {f"sites.{pattern}": rule for pattern, rule in (config.get("sites") or {}).items()}
    rows = {key: node["num_positions"] for key, node in nodes.items() if "num_positions" in node}
    if not rows:
        return
    key, least = min(rows.items(), key=lambda item: item[1])
    longest = task.longest_fed(config["model"].get("max_positions", least))
    if longest > least:
        raise UserError(
            f"{key}.num_positions={least} is less than the {longest} positions that the longest "
            f"sequence of this run may have; set {key}.num_positions={longest}, or shorten the "
            "sequences"
        )


def notices(model: nn.Module, milestones: Mapping[str, int], total: int | None) -> Iterator[Notice]:
    """Yield notices about the norms' schedules, and warnings.

    `milestones` maps the name of each phase to its last step, and `total` is the run's number of
    steps.
    """
    texts = {
        name: f"{name} from step {step + 1:,}"  # the milestone is the step before the freeze
        if name == "freeze_statistics"
        else f"{name.replace('/', ' ')} until step {step:,}"
        for name, step in milestones.items()
    }
    if texts:
        yield Notice(f"the norms have schedules: {', '.join(texts.values())}")
    if late := [texts[name] for name, step in milestones.items() if total and step > total]:
        where = f"the run ends at step {total:,}, within a norm's own schedule"
        yield Notice(f"{where}: {', '.join(late)}", warning=True)
    if sees := seeing_future(model):
        yield Notice(
            f"{', '.join(sees)} leaks later tokens of a sequence to earlier ones, even in "
            "training, so losses and scores come from a model that has seen what it predicts",
            warning=True,
        )


def seeing_future(model: nn.Module) -> list[str]:
    """Return the classes of the norms that let a decoder see later tokens."""
    if not hasattr(model, "start_decoding"):  # the model does not predict next tokens
        return []
    parts = getattr(model, "decoder", model).modules()
    return sorted({type(m).__name__ for m in parts if getattr(m, "sees_future", False)})
