"""How the loss rises without each layer, and with 8-bit weights and activations.

`losses_without` and `quantized_losses` work on any torch model.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import islice
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from normlab.any_model.surgery.ablation import quantized, skip
from normlab.distributed.process_group import Shard
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.inspection.inference import BATCH, by_length, loss
from normlab.inspection.subject import Subject
from normlab.models.seq2seq import Layer
from normlab.probes.sites import modules_by_site
from normlab.tasks.base import spread

COST = 0.03  # nats per token; BERT base and OPT lose less with W8A8
EXAMPLES, CALIBRATION = 64, 16  # held-out examples, and training batches
_NO_LAYERS = Finding.none("the model has no Transformer layers")


@question("layer_skip", of="model", trained=True)
def layer_skip(subject: Subject) -> Finding:
    """How much does the loss rise without each layer?

        rise  loss(layer replaced by the identity on the residual stream) - loss

    in nats per target token, on the same held-out examples, without retraining. If a placement has
    two residual streams, both skip the layer.
    """
    if not (layers := modules_by_site(subject.model, Layer)):
        return _NO_LAYERS
    measure = held_out_loss(subject)
    whole = measure()
    losses = losses_without(layers, measure)
    (low, least), (high, most) = (f((x, name) for name, x in losses.items()) for f in (min, max))
    answer = f"from {low - whole:+.3g} nats per token without {least} to {high - whole:+.3g}"
    mean = fmean(losses.values()) - whole
    losses = _rises(f"{answer} without {most}", whole, losses, "without", {"without a layer": mean})
    unused = low <= whole  # a layer may be unused
    return replace(losses, verdict="look" if unused else "fine", value=low - whole, threshold=0.0)


@question("int8", of="model", trained=True)
def int8(subject: Subject) -> Finding:
    """How much does the loss rise with 8-bit weights and activations?

        q(x)  step * clip(round(x / step), -127, 127),  step = max |x| / 127
        rise  loss(quantized) - loss, in nats per target token on the same held-out examples

    The weights (W8) and the inputs (A8) of the linear layers inside Transformer layers are
    quantized, with one step per tensor. An input's max |x| is taken over 16 training batches,
    padding included. A single value at 1000 standard deviations makes nearly all others round to 0.
    """
    inside = [
        module
        for layer in modules_by_site(subject.model, Layer).values()
        for module in layer.modules()
    ]
    layers = [module for module in inside if isinstance(module, nn.Linear)]
    if not layers:
        return _NO_LAYERS

    def feed() -> None:
        training = subject.task.train_batches(Shard(0, 1), subject.seed)
        for batch in islice(training, CALIBRATION):
            subject.losses(batch.to(subject.runtime.device))

    measure = held_out_loss(subject)
    whole, losses = measure(), quantized_losses(layers, feed, measure)
    rises = {name: value - whole for name, value in losses.items()}
    answer = "{W8A8:+.3g} nats per token (weights alone {W8:+.3g}, activations alone {A8:+.3g})"
    losses, rise = _rises(answer.format(**rises), whole, losses, "bits", rises), rises["W8A8"]
    return replace(losses, verdict="look" if rise > COST else "fine", value=rise, threshold=COST)


def held_out_loss(subject: Subject) -> Callable[[], float]:
    """Return a function that computes the loss per target token on fixed held-out examples."""
    picked = spread(subject.number("valid"), EXAMPLES)
    return partial(loss, subject, by_length(subject, picked, size=BATCH))


def _rises(
    answer: str, whole: float, losses: Mapping[str, float], what: str, board: Mapping[str, float]
) -> Finding:
    rows = [(name, value, value - whole) for name, value in losses.items()]
    values = {"loss": whole, "rise": {name: rise for name, _, rise in rows}}
    table = AnswerTable((what, "loss", "rise"), rows)
    return Finding(f"{answer}, at a loss of {whole:.4g}", values, table, board=board)


def losses_without(layers: Mapping[str, nn.Module], loss: Callable[[], float]) -> dict[str, float]:
    """Return `loss()` with each layer replaced by the identity on its first argument, by name.

    If a layer returns a tuple, the identity replaces only the first entry.
    """
    losses: dict[str, float] = {}
    for name, layer in layers.items():
        with ExitStack() as undo:
            undo.callback(layer.register_forward_hook(skip, with_kwargs=True).remove)
            losses[name] = loss()
    return losses


@torch.no_grad()
def quantized_losses(
    layers: Collection[nn.Module],
    feed: Callable[[], None],
    loss: Callable[[], float],
    *,
    bits: int = 8,
) -> dict[str, float]:
    """Return `loss()` with the layers' weights and inputs in `bits` bits: `W8A8`, `W8` and `A8`.

    Each layer has a `weight`, which is restored, and takes a tensor as its first argument. `feed`
    runs the batches that set the input ranges; inputs of layers that it does not reach are not
    quantized.
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
