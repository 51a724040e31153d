"""The slow questions about layers: gradients, extreme activations and attention sinks."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normlab.any_model.batches.example import call, first_line, run
from normlab.any_model.batches.outputs import tensors
from normlab.any_model.questions.examination import Examination
from normlab.any_model.tracing.restore import unchanged
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.findings.relative_change import percent
from normlab.probes.activations import (
    MASSIVE,
    SINK,
    SINK_KEYS,
    SINK_QUERIES,
    TIMES,
    describe,
)
from normlab.probes.gradients import STEEP, gradients_by_layer, growth_by_stack, steepest

OUTLIER = 6.0  # a feature's RMS relative to the RMS of all features
FEWEST = 8  # positions needed before a channel can be called dead
NOTHING = Finding.none("the model has nothing that this question measures")


@question("depth", of="module", slow=True)
def depth(examination: Examination) -> Finding:
    """How does the gradient grow from the first to the last layer?

    The loss is sum(y cos(y)) of the longest row's output y, with the cosine detached, since no norm
    makes this loss constant. A layer's gradient norm is taken over all its parameters.
    """
    with unchanged(examination.model), torch.enable_grad():
        examination.model.requires_grad_(True).zero_grad()
        try:
            outputs = run(examination.model, examination.lead, examination.runner.forward)
            y = next(iter(outputs.values()))
            (y * y.detach().cos()).sum().backward()
        except RuntimeError as error:  # some layers have no backward pass in eval mode
            return Finding.none(f"no gradient: {first_line(error)}")
        layers = gradients_by_layer(examination.model)
    growth = growth_by_stack(layers)
    if not growth:
        return NOTHING
    answer = "; ".join(
        f"gradient x {v:.2g} from the first to the last layer{f' of {n}' * bool(n)}"
        for n, v in growth.items()
    )
    table = AnswerTable(("layer", "gradient"), [*layers.items()])
    return look_above(answer, steepest(growth), STEEP, table)


class LayerActivations(NamedTuple):
    """A layer's share of outlier features and of dead channels, and its largest magnitude."""

    layer: str
    outliers: float
    dead: float
    largest: float
    over_median: float


@question("channels", of="module", slow=True)
@torch.no_grad()
def channels(examination: Examination) -> Finding:
    """Do layers output outlier features, dead channels, or massive activations?

    For each layer's output for the longest row: the share of features whose RMS exceeds 6 times the
    RMS of all features (outliers), the share of features that are constant over positions (dead),
    and the largest magnitude divided by the median magnitude. A value is massive if it is above 100
    and this ratio is above 1000 (Sun et al. 2024).
    """
    rows: list[LayerActivations] = []
    for name, y in layer_outputs(examination).items():
        length = examination.example.length
        first = y.ndim == 4 or (y.ndim == 3 and y.shape[2] == length != y.shape[1])
        x = (y.flatten(2).mT if first else y.reshape(1, -1, y.shape[-1])).double()
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        described = describe(x, real, threshold=OUTLIER)
        dead = (x == x[:, :1]).all(1).double().mean() * (x.shape[1] >= FEWEST)
        shares = (described["outliers"], dead, described["largest"], described["over_median"])
        rows.append(LayerActivations(name, *map(float, shares)))
    if not rows:
        return NOTHING
    worst = max(rows, key=lambda row: row.over_median)
    outliers = percent(max(row.outliers for row in rows))
    dead = percent(max(row.dead for row in rows))
    answer = f"the largest magnitude is {worst.largest:.3g}, {worst.over_median:.3g} times the "
    answer += f"median, in {worst.layer}; in the worst layer {outliers} of features are outliers, "
    answer += f"{dead} of channels dead"
    table = AnswerTable(("layer", "outliers", "dead", "largest", "times the median"), rows)
    limit = TIMES if worst.largest > MASSIVE else torch.inf
    return look_above(answer, worst.over_median, limit, table)


@question("sinks", of="module", slow=True)
@torch.no_grad()
def sinks(examination: Examination) -> Finding:
    """How many attention heads give most of their attention to the first token?

    A head is a sink if the longest row's first token has a mean weight above 0.3 over the first 64
    queries, or over all queries without a causal mask (Gu et al. 2025). Needs 16 tokens, and a
    model of transformers that returns `attentions`.
    """
    model: Any = examination.model
    row = examination.lead
    if not hasattr(model, "set_attn_implementation") or examination.example.length < SINK_KEYS:
        return Finding.none(f"needs {SINK_KEYS} tokens and a model that returns its attentions")
    former = model.config._attn_implementation
    try:
        model.set_attn_implementation("eager")
        asking = replace(row, values={**row.values, "output_attentions": True})
        output = call(model, asking, examination.runner.forward)
        attentions = getattr(output, "attentions", None) or ()
    finally:
        model.set_attn_implementation(former)
    weights = [of_layer[0] for of_layer in attentions if of_layer is not None]
    causal = not any(bool(of_layer.triu(1).any()) for of_layer in weights)
    queries = slice(SINK_QUERIES if causal else None)
    first = [of_layer[:, queries, 0].mean(-1).tolist() for of_layer in weights]
    rows = [(n, head, w) for n, heads in enumerate(first) for head, w in enumerate(heads)]
    if not rows:
        return NOTHING
    share = sum(row[2] > SINK for row in rows) / len(rows)
    answer = f"{percent(share)} of {len(rows)} heads attend mostly to the first token"
    return look_above(answer, share, torch.inf, AnswerTable(("layer", "head", "first token"), rows))


def look_above(answer: str, value: float, limit: float, table: AnswerTable) -> Finding:
    """Return the finding, with the verdict `look` if the value is above the limit."""
    return Finding(
        answer,
        {"rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows]},
        table,
        verdict="fine" if value <= limit else "look",
        value=value,
        threshold=None if limit == torch.inf else limit,
    )


def layer_outputs(examination: Examination) -> dict[str, Tensor]:
    """Return the layers' outputs for the longest row by name, in the order of the calls."""

    def is_layer(name: str, module: nn.Module) -> bool:
        return name.rpartition(".")[2].isdigit() and bool(module._modules)

    calls, _ = examination.runner.record(examination.lead, keep=is_layer)
    outputs: dict[str, Tensor] = {}
    for call_ in calls:
        x, y = (next(tensors(value), None) for value in (call_.inputs, call_.output))
        if x is not None and y is not None and x.shape == y.shape:
            outputs[call_.name] = y
    return outputs
