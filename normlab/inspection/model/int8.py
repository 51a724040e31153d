"""Measures how much the loss rises with 8-bit weights and activations.

`quantized_losses` works for any torch model.
"""

from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from normlab.any_model.surgery.ablation import quantized
from normlab.distributed.process_group import Shard
from normlab.findings.finding import Finding
from normlab.findings.question import question
from normlab.inspection.model.built_model import BuiltModel
from normlab.inspection.model.held_out_loss import ChangedLosses, held_out_loss
from normlab.inspection.model.layer_skip import NO_LAYERS
from normlab.models.seq2seq import Layer
from normlab.probes.sites import modules_by_site

HARMLESS_RISE = 0.03  # nats per token; the loss of BERT base and OPT rises less with W8A8
CALIBRATION = 16  # training batches


@question("int8", of="model", trained=True)
def int8(built: BuiltModel) -> Finding:
    """How much does the loss rise with 8-bit weights and activations?

        q(x)  step * clip(round(x / step), -127, 127),  step = max |x| / 127
        rise  loss(quantized) - loss, in nats per target token on the same held-out examples

    The weights (W8) and the inputs (A8) of the linear layers inside Transformer layers are
    quantized, with one step per tensor. For an input, max |x| is over 16 training batches,
    including padding. If a single value is as large as 1000 standard deviations, nearly all other
    values are rounded to 0.
    """
    linear_layers = [
        module
        for layer in modules_by_site(built.model, Layer).values()
        for module in layer.modules()
        if isinstance(module, nn.Linear)
    ]
    if not linear_layers:
        return NO_LAYERS
    loss = held_out_loss(built)
    plain = loss()
    losses = ChangedLosses(plain, quantized_losses(linear_layers, partial(_feed, built), loss))
    rises = losses.rises
    return Finding(
        f"{rises['W8A8']:+.3g} nats per token (weights alone {rises['W8']:+.3g}, activations alone "
        f"{rises['A8']:+.3g}), at a loss of {plain:.4g}",
        losses.values(),
        losses.table("bits"),
        board=rises,
        verdict="look" if rises["W8A8"] > HARMLESS_RISE else "fine",
        value=rises["W8A8"],
        threshold=HARMLESS_RISE,
    )


def _feed(built: BuiltModel) -> None:
    """Run the training batches that determine max |x| of the inputs."""
    for batch in islice(built.task.train_batches(Shard(0, 1), built.seed), CALIBRATION):
        built.losses(batch.to(built.runtime.device))


@torch.no_grad()
def quantized_losses(
    layers: Collection[nn.Module],
    feed: Callable[[], None],
    loss: Callable[[], float],
    *,
    bits: int = 8,
) -> dict[str, float]:
    """Return `loss()` with both weights and inputs of the layers in `bits` bits, and with either.

    The keys are `W8A8`, `W8` and `A8` for 8 bits. Each layer has a `weight`, which is restored, and
    takes a tensor as its first argument. `feed` runs the batches that determine the ranges of the
    inputs. If it does not run a layer, the layer's inputs are not quantized.
    """
    ranges: dict[nn.Module, Tensor] = {}

    def widen(layer: nn.Module, args: tuple[Any, ...]) -> None:
        largest = args[0].abs().amax()
        ranges[layer] = largest.maximum(ranges.get(layer, largest))

    def change(layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return quantized(args[0], ranges[layer], bits), *args[1:]

    with ExitStack() as undo:
        for layer in layers:
            undo.callback(layer.register_forward_pre_hook(widen).remove)
        feed()
    losses: dict[str, float] = {}
    for parts in ("WA", "W", "A"):
        with ExitStack() as undo:
            for layer in layers:
                weight: Any = layer.weight
                if "W" in parts:
                    undo.callback(weight.copy_, weight.clone())
                    weight.copy_(quantized(weight, weight.abs().amax(), bits))
                if "A" in parts and layer in ranges:
                    undo.callback(layer.register_forward_pre_hook(change).remove)
            losses["".join(f"{part}{bits}" for part in parts)] = loss()
    return losses
