"""What a run's model and optimizer need at least, against the memory of this machine.

Counted from the sizes in the config, before anything is built: matrices, embeddings, tables of
positions and running statistics. Activations are left out, so a run that fits by this count may
still be too large; one that does not fit cannot run here.
"""

from collections.abc import Mapping
from typing import Any

from normlab.machine import memory_bytes
from normlab.registry import TARGET, settings_of
from normlab.sites import NORM_KEYS

_MOMENTS = {"AdamW": 2, "Adam": 2, "RAdam": 2, "NAdam": 2}  # copies of all weights
_GIB = 2**30


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
