"""The question of attention sinks."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch

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
    model: Any = examination.model
    row = examination.lead
    if not hasattr(model, "set_attn_implementation") or examination.example.length < SINK_KEYS:
        return Finding.none(f"needs {SINK_KEYS} tokens and a model that returns its attentions")
    former = model.config._attn_implementation
    try:
        model.set_attn_implementation("eager")
        asking = replace(row, values={**row.values, "output_attentions": True})
        output = call_model(model, asking, examination.runner.forward)
        attentions = getattr(output, "attentions", None) or ()
    finally:
        model.set_attn_implementation(former)
    weights = [of_layer[0] for of_layer in attentions if of_layer is not None]
    causal = not any(bool(of_layer.triu(1).any()) for of_layer in weights)
    queries = slice(SINK_QUERIES if causal else None)
    by_layer = [of_layer[:, queries, 0].mean(-1).tolist() for of_layer in weights]
    rows = [
        HeadWeight(layer, head, weight)
        for layer, by_head in enumerate(by_layer)
        for head, weight in enumerate(by_head)
    ]
    if not rows:
        return NOTHING
    share = sum(row.first_token > SINK for row in rows) / len(rows)
    answer = f"{percent(share)} of {len(rows)} heads attend mostly to the first token"
    return look_above(answer, share, torch.inf, AnswerTable(("layer", "head", "first token"), rows))


class HeadWeight(NamedTuple):
    """The mean weight that a head gives to the first token; layers and heads count from 0."""

    layer: int
    head: int
    first_token: float
