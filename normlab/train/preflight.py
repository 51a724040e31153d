"""What is checked and said of a run before its first step.

Whether the memory holds its model and optimizer, counted from the sizes in the config: matrices,
embeddings, tables of positions and running statistics. Activations are left out, so a run that
fits by this count may still be too large; one that does not fit cannot run here. Whether its norms
can be trained on its batches, which would otherwise show only in the first long sentence, in the
last batch of an epoch, or never. And what schedules of their own the norms have.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from normlab.config.registry import TARGET, settings_of
from normlab.config.sites import NORM_KEYS
from normlab.distributed import Shard
from normlab.machine import memory_bytes
from normlab.models.base import incremental
from normlab.norms.base import RunningNorm, running_norms
from normlab.norms.batch import BatchNorm, PositionBatchNorm
from normlab.tasks.base import Task

_CURE = "or take a norm that does not pool over the batch (norm=ln)"
_MOMENTS = {"AdamW": 2, "Adam": 2, "RAdam": 2, "NAdam": 2}  # copies of all weights
_GIB = 2**30
_BEGINS_AFTER = ("freeze_statistics",)  # its milestone is the last step without it


def check_memory(
    config: Mapping[str, Any], *, training: bool, available: int | None = None
) -> None:
    """Raise ValueError, with the numbers, for a model that the memory cannot hold.

    `available` are bytes, by default those of this machine.
    """
    room = memory_bytes() if available is None else available
    numbers = parameters(config)
    width = 8 if config.get("precision") == "fp64" else 4
    copies = 1
    if training:
        optimizer = settings_of(config["optim"], "optim")[TARGET].rpartition(".")[2]
        copies = 2 + _MOMENTS.get(optimizer, int(bool(config["optim"].get("momentum"))))
    need = width * (copies * numbers + _tables(config))
    if room is not None and need > room:
        sizes = ", ".join(f"model.{key}={value}" for key, value in _sizes(config).items())
        what = f"weights, gradients and optimizer ({copies} copies)" if training else "weights"
        raise ValueError(
            f"{sizes}, task.vocab_size={_vocabulary(config)}: {numbers:,} parameters need "
            f"{need / _GIB:,.1f} GiB for {what}, and there are {room / _GIB:,.1f} GiB of memory: "
            "make the model smaller"
        )


def parameters(config: Mapping[str, Any]) -> int:
    """Estimate the parameters of a config's model from its sizes, without its vectors.

    Raises ValueError naming a size that is no whole number.
    """
    sizes = _sizes(config)
    dim, inner = sizes.get("dim", 0), sizes.get("ffn_dim", 0)
    attention, feed_forward = 4 * dim * dim, 2 * dim * inner
    stacks = (sizes.get("encoder_layers", 0) + sizes.get("num_layers", 0)) * (
        attention + feed_forward
    ) + sizes.get("decoder_layers", 0) * (2 * attention + feed_forward)
    matrices = {"none": 3, "target": 2}.get(str(config["model"].get("share_embeddings")), 1)
    learned = sizes.get("max_positions", 0) * dim if _learned(config) else 0
    return stacks + matrices * _vocabulary(config) * dim + learned


def _tables(config: Mapping[str, Any]) -> int:
    """Return the numbers that are kept and not learned: sinusoids and running statistics."""
    sizes = _sizes(config)
    dim = sizes.get("dim", 0)
    sinusoids = 0 if _learned(config) else sizes.get("max_positions", 0) * dim
    nodes = [*(config.get(site) for site in NORM_KEYS), *(config.get("sites") or {}).values()]
    norms = [node for node in nodes if isinstance(node, Mapping)]
    rows = max((node.get("num_positions") or 0 for node in norms), default=0)
    return sinusoids + 2 * rows


def _learned(config: Mapping[str, Any]) -> bool:
    return config["model"].get("positions") == "learned"


def _vocabulary(config: Mapping[str, Any]) -> int:
    value = config["task"].get("vocab_size")
    return value if isinstance(value, int) else 0


def _sizes(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the whole numbers of the model's node but `depth`, which others repeat."""
    model: Mapping[str, Any] = config["model"]
    return {
        key: value
        for key, value in model.items()
        if isinstance(value, int) and not isinstance(value, bool) and key != "depth"
    }


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


def notices(model: nn.Module, milestones: Mapping[str, int], total: int | None) -> Iterator[str]:
    """Yield what schedules of their own the norms have, and what is out of the ordinary.

    `milestones` are the last steps of these schedules by name, `total` the steps of the run.
    """
    if milestones:
        yield f"norms' own schedules: {_listed(milestones)}"
    late = {name: step for name, step in milestones.items() if total and step > total}
    if late:
        yield f"warning: the run ends at step {total:,}, within a norm's own schedule: " + _listed(
            late
        )
    decoder = _decoder(model)
    if decoder is not None and not _takes_one_token_at_a_time(decoder):
        yield (
            "decoding reads the whole prefix anew for each token: in evaluation a norm looks at "
            "other tokens"
        )
    if sees := seeing_future(model):
        yield (
            f"warning: {', '.join(sees)} shows a token the later ones of its sequence, in training "
            "too: losses and scores are those of a model that has seen what it predicts"
        )


def seeing_future(model: nn.Module) -> list[str]:
    """Return the classes of norms that show what predicts a token the later ones."""
    decoder = _decoder(model)
    parts = decoder.modules() if decoder is not None else ()
    return sorted({type(m).__name__ for m in parts if getattr(m, "sees_future", False)})


def _decoder(model: nn.Module) -> nn.Module | None:
    """Return the part of a model that predicts the next token; None of one that does not."""
    return getattr(model, "decoder", model) if hasattr(model, "start_decoding") else None


def _takes_one_token_at_a_time(decoder: nn.Module) -> bool:
    recurrent = getattr(decoder, "recurrent", None)  # its cells say it themselves
    return incremental(decoder) if recurrent is None else recurrent.incremental


def _listed(milestones: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name} from step {step + 1:,}"
        if name in _BEGINS_AFTER
        else f"{name.replace('/', ' ')} until step {step:,}"
        for name, step in milestones.items()
    )
