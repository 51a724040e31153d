"""How do the gradient, and what one update changes, go by depth?

A deep and narrow model at its first values, on one training batch, with training statistics and no
dropout. The gradient is that of the health sheet. The update is one of Adam at the usual rate
without warm-up; by layer, with x its output on the same batch before and x' after,

    moved   RMS(x' - x) / RMS(x) over real tokens

which is what Liu et al. 2020 (Admin) and Wang et al. 2022 (DeepNet) follow instead of the gradient:
a model whose function moves too far in its first updates does not recover.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from normlab.build import build_optimizer
from normlab.card.finding import Finding
from normlab.card.subject import Examined
from normlab.config import to_dict
from normlab.health import gradients
from normlab.health.movement import movement
from normlab.health.subject import Subject, subject_of
from normlab.models.anatomy import stacks
from normlab.norms.base import batch_statistics
from normlab.probes.sites import real_values
from normlab.tasks.base import Batch

QUESTION = "How do gradient and first update go by depth, in a deep narrow model?"
COLUMNS = ("layer", "gradient norm", "moved by one update")


def examine(examined: Examined) -> Finding:
    """Take the gradient and one update of a deep model."""
    depth = examined.sizes.depth
    config = to_dict(
        examined.config("translation", "model.dim=64", "model.ffn_dim=128", f"model.depth={depth}")
    )
    subject = subject_of(config)
    found = gradients.examine(subject)
    moved = _moved(subject)
    layers = {name: value for name, value in found.figures["layers"].items() if name in moved}
    growth = found.figures["growth"]
    figures: dict[str, Any] = {
        "layers": depth,
        "gradient": layers,
        "growth": growth,
        "moved": moved,
    }
    shown = [row[0] for row in found.rows if row[0] in moved]
    rows = [(name, layers[name], moved[name]) for name in shown]
    last = list(moved.values())[-1]
    answer = (
        f"{depth}+{depth} layers: the gradient grows "
        + " and ".join(f"x {value:.2g} over the {stack}" for stack, value in growth.items())
        + f"; one update moves the last layer's output by {last:.0%}"
    )
    cells = {"grad growth": growth.get("decoder"), "first update": last}
    return Finding(QUESTION, answer, figures, COLUMNS, rows, cells)


def _moved(subject: Subject) -> dict[str, float]:
    """Return by layer how far one update moves its output."""
    model, batch = subject.model, gradients.training_batch(subject)
    before = _outputs(subject, batch)
    optimizer = build_optimizer(subject.config, model)
    gradients.backward(subject.task, model, batch)
    optimizer.step()
    after = _outputs(subject, batch)
    return {name: movement(after[name], x) for name, x in before.items()}


@torch.no_grad()
def _outputs(subject: Subject, batch: Batch) -> dict[str, Tensor]:
    with batch_statistics(subject.model), _layers_watched(subject.model) as seen:
        subject.task.losses(subject.model, batch)
    return seen


@contextmanager
def _layers_watched(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Collect the outputs of the layers at real tokens, by names such as `encoder.0`."""
    seen: dict[str, Tensor] = {}
    handles = []
    for name, stack in stacks(model).items():
        for number, block in enumerate(stack.blocks):
            short = f"{name}.{number}"

            def look(_: nn.Module, given: tuple[Any, ...], out: Tensor, short: str = short) -> None:
                values, real = real_values(out, given)
                seen[short] = values[real].clone()

            handles.append(block.register_forward_hook(look))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
