"""Measures the gradient of each layer, and how much one update changes its output."""

import copy
import math
from dataclasses import replace
from typing import NamedTuple

import torch

from normlab.data.batching import Batches
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.findings.relative_change import relative_change
from normlab.inspection.model.built_model import BuiltModel
from normlab.inspection.model.recorded_pass import record
from normlab.norms.running import normalized_by
from normlab.probes.gradients import STEEP, gradients_by_layer, growth_by_stack, steepest
from normlab.tasks.base import Batch
from normlab.training.optimizer import build_optimizer

MOST_SENTENCES = 32  # so that 50 layers fit in a laptop's memory
_SECOND_WEIGHT = "feed_forward.fc2.weight"


@question("gradients", of="model")
def gradients(built: BuiltModel) -> Finding:
    """How large is the gradient in each layer, with training statistics and no dropout?

    L is the training loss per token on one batch of training text:

        gradient norm of a layer   ||dL/dw||_2 over all parameters w of the layer
        growth of a stack          the last layer's gradient norm divided by the first layer's

    An embedding that stacks share, or that is tied to the output layer, counts for the layer in
    which it first occurs.

    Xiong et al. 2020 ("On Layer Normalization in the Transformer Architecture", theorem 1,
    figure 3) analyze layer norm at initialization: the gradient of the last feed-forward layer's
    second weight is of order d sqrt(ln d) at any depth with post-norm, and sqrt(depth) times
    smaller with pre-norm. With post-norm it grows towards the top layer; with pre-norm it is flat.
    Claim 26 ("the gradient vanishes" in deep post-norm models) predicts a large growth.
    """
    measured = layer_gradients(built)
    growth = growth_by_stack(measured.by_layer)
    norm, worst = math.hypot(*measured.by_layer.values()), steepest(growth)
    grows = " and ".join(
        f"x {value:.2g} from first to last layer of the {stack}" for stack, value in growth.items()
    )
    return Finding(
        f"{grows}; {norm:.3g} in total",
        {
            "loss": measured.loss,
            "norm": norm,
            "layers": measured.by_layer,
            "growth": growth,
            "last_second_weight": measured.last_second_weight,
        },
        AnswerTable(("layer", "gradient norm"), [*measured.by_layer.items()]),
        verdict="look" if worst > STEEP else "fine",
        value=worst,
        threshold=STEEP,
    )


class LayerGradients(NamedTuple):
    """The loss of a batch, and the gradient norms of each layer and of one weight.

    `last_second_weight` is the gradient norm of the last feed-forward layer's second weight, or
    None if there is no feed-forward layer.
    """

    loss: float
    by_layer: dict[str, float]
    last_second_weight: float | None


def layer_gradients(built: BuiltModel) -> LayerGradients:
    """Return the gradients for the run's first batch. This sets the model's gradients to None."""
    model = built.model
    loss = backward(built, training_batch(built))
    by_layer = gradients_by_layer(model)
    second = [  # one per feed-forward layer, in model order
        float(torch.linalg.vector_norm(parameter.grad.double()))
        for name, parameter in model.named_parameters()
        if name.endswith(_SECOND_WEIGHT) and parameter.grad is not None
    ]
    model.zero_grad(set_to_none=True)
    return LayerGradients(loss, by_layer, second[-1] if second else None)


def backward(built: BuiltModel, batch: Batch) -> float:
    """Return a batch's loss with batch statistics, and leave its gradient in the parameters."""
    with normalized_by(built.model, "batch"), torch.enable_grad():
        losses = built.losses(batch)
        loss = torch.stack([losses[name] / batch.counts[name] for name in sorted(losses)]).sum()
        loss.backward()
    return float(loss.detach())


def training_batch(built: BuiltModel) -> Batch:
    """Return the run's first training batch, with a batch size of at most 32."""
    config = built.config
    batches = Batches(
        built.task.lengths("train"),
        batching=config["batching"],
        batch_size=min(config["batch_size"] or MOST_SENTENCES, MOST_SENTENCES),
        max_tokens=None,
        seed=built.seed,
    )
    return built.batch("train", next(batches).tolist())


def first_update(built: BuiltModel) -> dict[str, float]:
    """Return how much one update of the run's optimizer changes each layer's output.

    This is RMS(x' - x) / RMS(x) over real tokens, where x and x' are a layer's output on one batch
    before and after the update. Liu et al. 2020 (Admin) and Wang et al. 2022 (DeepNet) track it
    instead of the gradient, because a model that moves too far in its first updates does not
    recover. Only a copy of the model is updated.
    """
    batch = training_batch(built)
    updated = replace(built, model=copy.deepcopy(built.model))
    optimizer = build_optimizer(built.config, updated.model)
    backward(updated, batch)
    optimizer.step()
    with torch.no_grad():
        before, after = (
            record(each, batch, "training").outputs("layer") for each in (built, updated)
        )
    return {name: relative_change(after[name].real, x.real) for name, x in before.items()}
