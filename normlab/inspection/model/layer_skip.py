"""Measures how much the loss rises without each layer.

`losses_without` works for any torch model.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from statistics import fmean

from torch import nn

from normlab.any_model.surgery.ablation import skip
from normlab.findings.finding import Finding
from normlab.findings.question import question
from normlab.inspection.model.built_model import BuiltModel
from normlab.inspection.model.held_out_loss import ChangedLosses, held_out_loss
from normlab.models.seq2seq import Layer
from normlab.probes.sites import modules_by_site

UNUSED = 0.0  # the model may not use a layer without which the loss does not rise
NO_LAYERS = Finding.none("the model has no Transformer layers")


@question("layer_skip", of="model", trained=True)
def layer_skip(built: BuiltModel) -> Finding:
    """How much does the loss rise without each layer?

        rise  loss(layer replaced by the identity on the residual stream) - loss

    in nats per target token, on the same held-out examples, without retraining. If a placement has
    two residual streams, both skip the layer.
    """
    if not (layers := modules_by_site(built.model, Layer)):
        return NO_LAYERS
    loss = held_out_loss(built)
    losses = ChangedLosses(loss(), losses_without(layers, loss))
    rises = losses.rises
    least, most = (choose(rises, key=lambda name: (rises[name], name)) for choose in (min, max))
    return Finding(
        f"from {rises[least]:+.3g} nats per token without {least} to {rises[most]:+.3g} without "
        f"{most}, at a loss of {losses.plain:.4g}",
        losses.values(),
        losses.table("without"),
        board={"without a layer": fmean(losses.changed.values()) - losses.plain},
        verdict="look" if rises[least] <= UNUSED else "fine",
        value=rises[least],
        threshold=UNUSED,
    )


def losses_without(layers: Mapping[str, nn.Module], loss: Callable[[], float]) -> dict[str, float]:
    """Return the value of `loss()` when a layer returns its first argument, for each layer.

    If the layer returns a tuple, the argument replaces only the tuple's first entry.
    """
    losses: dict[str, float] = {}
    for name, layer in layers.items():
        with ExitStack() as undo:
            undo.callback(layer.register_forward_hook(skip, with_kwargs=True).remove)
            losses[name] = loss()
    return losses
