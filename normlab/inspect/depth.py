"""Depth: how large is the gradient in each layer, and what does one update change?"""

import math
from collections.abc import Collection

import torch

from normlab.data.batching import BatchStream
from normlab.inspect.model import Subject, look, movement, over
from normlab.inspect.question import Finding, Table, question
from normlab.norms.base import normalized_by
from normlab.probes.gradients import gradient_norms
from normlab.tasks.base import Batch
from normlab.train.build import build_optimizer

MOST_SENTENCES = 32  # so that 50 layers fit into the memory of a laptop
_SECOND_WEIGHT = "feed_forward.fc2.weight"


@question("gradients", of="model")
def gradients(subject: Subject) -> Finding:
    """How large is the gradient in each layer, with training statistics and no dropout?

    On one batch of training text, for the loss per token as the training loop divides it:

        gradient norm of a layer   ||dL/dw||_2 over all parameters w of the layer
        growth of a stack          that of its last layer over that of its first

    Embeddings that streams share with each other and with the output count as the first they are.

    Xiong et al. 2020 ("On Layer Normalization in the Transformer Architecture", theorem 1,
    figure 3) for layer norm at initialization: the gradient of the last feed-forward layer's
    second weight is of order d sqrt(ln d) at any depth in post-norm, and smaller by sqrt(depth) in
    pre-norm; by layer it rises towards the top of a post-norm model and is flat in a pre-norm one.
    Claim 26, of post-norm at depth ("the gradient vanishes"), predicts a large growth.
    """
    model = subject.model
    loss = backward(subject, training_batch(subject))
    norms = {name: float(value) for name, value in gradient_norms(model).items()}
    second = [  # of each feed-forward layer, in the order of the model
        float(torch.linalg.vector_norm(parameter.grad.double()))
        for name, parameter in model.named_parameters()
        if name.endswith(_SECOND_WEIGHT) and parameter.grad is not None
    ]
    model.zero_grad(set_to_none=True)
    layers = {n.removeprefix("norm/"): v for n, v in norms.items() if n.startswith("norm/")}
    stacks = by_stack(layers).items()
    growth = {stack: over(layers[names[-1]], layers[names[0]]) for stack, names in stacks}
    values = {
        "loss": loss,
        "norm": math.hypot(*layers.values()),
        "layers": layers,
        "growth": growth,
        "last_second_weight": second[-1] if second else None,
    }
    grows = " and ".join(
        f"x {v:.2g} from the first to the last {n} layer" for n, v in growth.items()
    )
    answer = f"{grows}; {values['norm']:.3g} over all, at a loss of {loss:.3g}"
    return Finding(answer, values, Table(("layer", "gradient norm"), [*layers.items()]))


def backward(subject: Subject, batch: Batch) -> float:
    """Return the loss of a batch, and leave its gradient in the parameters, both as in training."""
    with normalized_by(subject.model, "batch"), torch.enable_grad():
        losses = subject.losses(batch)
        loss = torch.stack([losses[name] / batch.counts[name] for name in sorted(losses)]).sum()
        loss.backward()
    return float(loss.detach())


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


def by_stack(layers: Collection[str]) -> dict[str, list[str]]:
    """Gather numbered layers (`encoder.0`) by their stack, in the given order."""
    found: dict[str, list[str]] = {}
    for name in layers:
        stack, _, number = name.rpartition(".")
        if number.isdigit():
            found.setdefault(stack, []).append(name)
    return found


def first_update(subject: Subject) -> dict[str, float]:
    """Return by layer how far one update of the run's optimizer moves its output.

    With x the output on the same batch before and x' after, RMS(x' - x) / RMS(x) over real tokens:
    what Liu et al. 2020 (Admin) and Wang et al. 2022 (DeepNet) follow instead of the gradient. A
    model whose function moves too far in its first updates does not recover.
    """
    batch = training_batch(subject)
    with torch.no_grad():
        before = look(subject, batch, "training").outputs("layer")
    optimizer = build_optimizer(subject.config, subject.model)
    backward(subject, batch)
    optimizer.step()
    with torch.no_grad():
        after = look(subject, batch, "training").outputs("layer")
    return {name: movement(after[name].real, x.real) for name, x in before.items()}
