"""Compares decoding token by token with processing whole sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.inspection.model.built_model import BuiltModel
from normlab.inspection.model.recorded_pass import in_mode
from normlab.tasks.losses import log_probabilities

DECODED = 12  # number of sentences to decode
_ROUNDING = 1e-5  # relative to the largest log probability: float32 error over tens of layers
_STATISTICS = {"eval": "as evaluated", "batch": "of the sentence"}
_COLUMNS = (
    *("statistics", "loss, whole", "loss, stepwise", "difference, mean", "largest"),
    "next token changed",
)


@question("stepwise", of="model")
def stepwise(built: BuiltModel) -> Finding:
    """Does decoding token by token compute the same as processing whole sentences?

    Each held-out sentence is its own batch. The model is given the true tokens: once all positions
    together, as in training, and once one position at a time, as in generation. With l and l' the
    log probabilities of a true token, whole and stepwise, in nats:

        difference   mean and largest |l - l'| over the tokens
        changed      share of positions where the most likely next token differs
        loss         mean of -l (whole) and of -l' (stepwise), without label smoothing

    This is measured in eval mode and, if a norm uses running statistics, also with batch
    statistics. These pool over the tokens in the call, so a token depends on the rest of its
    sentence when the whole sentence is processed at once, but not step by step.
    """
    permuted = built.generator("stepwise").permutation(built.number("valid"))
    sentences = np.sort(permuted[:DECODED]).tolist()
    by_statistics = differences_by_statistics(built, sentences)
    if not by_statistics:
        return Finding.none("the task does not generate text")
    in_eval = by_statistics["eval"]
    rows = [
        (_STATISTICS[name], *of["loss"].values(), *of["difference"].values(), of["changed"])
        for name, of in by_statistics.items()
    ]
    return Finding(
        _in_words(in_eval),
        {"sentences": len(sentences), **by_statistics},
        AnswerTable(_COLUMNS, rows),
        board={"stepwise": in_eval["difference"]["mean"]},
        verdict="fine" if in_eval["same"] else "broken",
        value=in_eval["difference"]["largest"],
        threshold=in_eval["rounding"],
    )


def differences_by_statistics(built: BuiltModel, sentences: list[int]) -> dict[str, dict[str, Any]]:
    """Return the differences in eval and, if a norm keeps statistics, with those of the batch.

    The result is empty if the task does not generate text.
    """
    modes = {"eval": "eval", "batch": "training"} if built.keeps_statistics else {"eval": "eval"}
    by_statistics: dict[str, dict[str, Any]] = {}
    for name, mode in modes.items():
        with in_mode(built.model, mode):
            compared = _compare(built, sentences)
        if compared is None:
            return {}
        by_statistics[name] = compared
    return by_statistics


def _in_words(compared: Mapping[str, Any]) -> str:
    difference, loss = compared["difference"], compared["loss"]
    if compared["same"]:
        return f"the same up to rounding (at most {difference['largest']:.1g} nats per token)"
    return (
        f"{difference['mean']:.3g} nats per token different, {compared['changed']:.0%} of the "
        f"next tokens differ, and the loss is {loss['stepwise']:.3g} instead of "
        f"{loss['whole']:.3g}"
    )


def differences(
    whole: Float[Tensor, "N V"], stepwise: Float[Tensor, "N V"], targets: Int[Tensor, "N"]
) -> dict[str, Any]:
    """Return the metrics of `stepwise` for whole and stepwise logits of the same targets."""
    first, second = (log_probabilities(logits.double(), targets) for logits in (whole, stepwise))
    difference = (first - second).abs()
    return {
        "tokens": len(targets),
        "loss": {"whole": -float(first.mean()), "stepwise": -float(second.mean())},
        "difference": {"mean": float(difference.mean()), "largest": float(difference.max())},
        "changed": float((whole.argmax(-1) != stepwise.argmax(-1)).double().mean()),
        "rounding": (limit := _ROUNDING * max(1.0, float(first.abs().max()))),
        "same": bool(difference.max() <= limit),
    }


def _compare(built: BuiltModel, indices: Sequence[int]) -> dict[str, Any] | None:
    """Return the metrics over sentences, one per batch, or None if the task does not decode."""
    each = []
    for index in indices:
        batch: Any = built.batch("valid", [index])  # has `tgt_out` if the task generates text
        logits = built.task.stepwise(built.model, batch)
        if logits is None:
            return None
        each.append((*logits, batch.tgt_out))
    return differences(*map(torch.cat, zip(*each, strict=True)))
