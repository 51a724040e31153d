"""How large is the gradient in each layer: does it grow or vanish with depth?

On one batch of training text, with training statistics and without dropout, for the loss per token
as the training loop divides it:

    gradient norm of a layer   ||dL/dw||_2 over all parameters w of the layer
    growth of a stack          that of its last layer over that of its first

Embeddings that streams share with each other and with the output count as the first they are.

Xiong et al. 2020 ("On Layer Normalization in the Transformer Architecture", theorem 1, figure 3)
for layer norm at initialisation: the gradient of the last feed-forward layer's second weight is of
order d sqrt(ln d) at any depth in post-norm, and smaller by sqrt(depth) in pre-norm; by layer it
rises towards the top of a post-norm model and is flat in a pre-norm one. Claim 26, of post-norm
at depth ("the gradient vanishes"), predicts a large growth: little is left at the first layer.
"""

import math
import re
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.data.batching import BatchStream
from normlab.health.subject import Finding, Subject
from normlab.norms.base import batch_statistics
from normlab.probes.gradients import gradient_norms
from normlab.probes.sites import layer
from normlab.tasks.base import Batch, Task

QUESTION = "How large is the gradient in each layer, with training statistics and no dropout?"
MOST_SENTENCES = 32  # so that 50 layers fit into the memory of a laptop
SHOWN = 5  # layers of a stack in the table
_SECOND_WEIGHT = "feed_forward.fc2.weight"
_NUMBERED = re.compile(r"^(.+)\.\d+$")


def examine(subject: Subject) -> Finding:
    """Take the gradient of one training batch, by layer and by kind of parameter."""
    model = subject.model
    loss = backward(subject.task, model, training_batch(subject))
    norms = {name: float(value) for name, value in gradient_norms(model).items()}
    second = second_weights(model)
    model.zero_grad(set_to_none=True)
    layers = _below("norm/", norms)
    deepest = next(reversed(second), None)
    growth = {stack: ratio(layers, names) for stack, names in stacks(list(layers)).items()}
    figures = {
        "loss": loss,
        "norm": math.hypot(*layers.values()),
        "layers": layers,
        "kinds": _below("kind/", norms),
        "growth": growth,
        "second_weights": second,
        "last_second_weight": None if deepest is None else second[deepest],
    }
    rows = [(name, layers[name]) for name in _shown(list(layers))]
    return Finding(QUESTION, _answer(figures), figures, ("layer", "gradient norm"), rows)


def training_batch(subject: Subject) -> Batch:
    """Return the run's first training batch; its first as of 32 sentences if it had more."""
    config = subject.config
    stream = BatchStream(
        subject.task.lengths("train"),
        batching=config["batching"],
        batch_size=min(config["batch_size"] or MOST_SENTENCES, MOST_SENTENCES),
        max_tokens=None,
        seed=subject.seed,
    )
    return subject.batch("train", next(stream).tolist())


def mean_loss(task: Task, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
    """Return the loss of a batch as a step of training has it: each sum over its count, added."""
    losses = task.losses(model, batch)
    return torch.stack([losses[name] / batch.counts[name] for name in sorted(losses)]).sum()


def backward(task: Task, model: nn.Module, batch: Batch) -> float:
    """Leave the gradient of a batch in the parameters, and return the loss."""
    with batch_statistics(model), torch.enable_grad():
        loss = mean_loss(task, model, batch)
        loss.backward()
    return float(loss.detach())


def second_weights(model: nn.Module) -> dict[str, float]:
    """Return the gradient norm of each feed-forward layer's second weight, by layer."""
    return {
        layer(name): float(torch.linalg.vector_norm(parameter.grad.double()))
        for name, parameter in model.named_parameters()
        if name.endswith(_SECOND_WEIGHT) and parameter.grad is not None
    }


def stacks(layers: Sequence[str]) -> dict[str, list[str]]:
    """Gather numbered layers (`encoder.0`) by their stack, in the given order."""
    found: dict[str, list[str]] = {}
    for name in layers:
        if numbered := _NUMBERED.match(name):
            found.setdefault(numbered[1], []).append(name)
    return found


def ratio(norms: Mapping[str, float], names: Sequence[str]) -> float:
    """Return the norm of the last of some layers over that of the first."""
    first, last = norms[names[0]], norms[names[-1]]
    return last / first if first else math.inf if last else math.nan


def _below(prefix: str, norms: Mapping[str, float]) -> dict[str, float]:
    return {name.removeprefix(prefix): v for name, v in norms.items() if name.startswith(prefix)}


def _shown(layers: Sequence[str]) -> list[str]:
    """Return the layers for the table: of a deep stack only some, the first and last among them."""
    left_out: set[str] = set()
    for names in stacks(layers).values():
        last = len(names) - 1
        kept = {round(i * last / (SHOWN - 1)) for i in range(SHOWN)}
        left_out |= {name for i, name in enumerate(names) if i not in kept}
    return [name for name in layers if name not in left_out]


def _answer(figures: Mapping) -> str:
    growth = " and ".join(
        f"x {value:.2g} from the first to the last {stack} layer"
        for stack, value in figures["growth"].items()
    )
    second = figures["last_second_weight"]
    last = "" if second is None else f", {second:.2g} at the last feed-forward's second weight"
    return f"{growth}; {figures['norm']:.3g} over all{last}, at a loss of {figures['loss']:.3g}"
