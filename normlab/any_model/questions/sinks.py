"""The question of attention sinks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normlab.any_model.batches.example import call_model
from normlab.any_model.questions.examination import Examination
from normlab.any_model.questions.slow_questions import NOTHING, look_above
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.findings.relative_change import percent
from normlab.probes.activations import SINK, SINK_KEYS, SINK_QUERIES


@question("sinks", of="module", slow=True)
@torch.no_grad()
def sinks(examination: Examination) -> Finding:
    """How many attention heads give most of their attention to the first token?

    Such a head is called a sink. For the longest row, the mean of its weights on the first token is
    above 0.3, over the first 64 queries or, without a causal mask, over all queries (Gu et al.
    2025). This needs 16 tokens, and a model of transformers that returns `attentions`.
    """
    has_attentions = hasattr(examination.model, "set_attn_implementation")
    if not has_attentions or examination.example.length < SINK_KEYS:
        return Finding.none(f"needs {SINK_KEYS} tokens and a model that returns its attentions")
    heads = _weights_on_first_token(_attentions(examination))
    if not heads:
        return NOTHING
    share = sum(head.first_token > SINK for head in heads) / len(heads)
    answer = f"{percent(share)} of {len(heads)} heads attend mostly to the first token"
    table = AnswerTable(("layer", "head", "first token"), heads)
    return look_above(answer, share, torch.inf, table)


class HeadWeight(NamedTuple):
    """The mean weight that a head gives to the first token; layers and heads count from 0."""

    layer: int
    head: int
    first_token: float


def _attentions(examination: Examination) -> list[Tensor]:
    """Return each layer's attention weights for the longest row, [heads, queries, keys]."""
    model: Any = examination.model
    row = examination.longest_row
    former = model.config._attn_implementation
    try:
        model.set_attn_implementation("eager")
        asking = replace(row, values={**row.values, "output_attentions": True})
        output = call_model(model, asking, examination.runner.forward)
    finally:
        model.set_attn_implementation(former)
    attentions = getattr(output, "attentions", None) or ()
    return [of_layer[0] for of_layer in attentions if of_layer is not None]


def _weights_on_first_token(attentions: Sequence[Tensor]) -> list[HeadWeight]:
    causal = not any(bool(of_layer.triu(1).any()) for of_layer in attentions)
    queries = slice(SINK_QUERIES if causal else None)
    return [
        HeadWeight(layer, head, weight)
        for layer, of_layer in enumerate(attentions)
        for head, weight in enumerate(of_layer[:, queries, 0].mean(-1).tolist())
    ]
