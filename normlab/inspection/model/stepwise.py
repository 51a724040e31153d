"""Compares decoding token by token with processing whole sentences."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.inspection.model.built_model import BuiltModel
from normlab.inspection.model.recorded_pass import Mode, in_mode
from normlab.tasks.losses import log_probabilities

DECODED = 12  # number of sentences to decode
_ROUNDING = 1e-5  # relative to the largest log probability: float32 error over tens of layers
_STATISTICS = {"eval": "as evaluated", "batch": "of the sentence"}  # titles of the table's rows
_COLUMNS = (
    *("statistics", "loss, whole", "loss, stepwise", "difference, mean", "largest"),
    "next token changed",
)


@question("stepwise", of="model")
def stepwise(built: BuiltModel) -> Finding:
    """Does decoding token by token compute the same as processing whole sentences?

    Each held-out sentence is a batch. The model gets the true tokens: first all positions together,
    as in training, and then one position at a time, as in generation. With l and l' the log
    probability of a true token in nats, whole and stepwise:

        difference   mean and largest |l - l'| over the tokens
        changed      share of positions where the most likely next token differs
        loss         mean of -l (whole) and of -l' (stepwise), without label smoothing

    This is measured in eval mode and, if a norm uses running statistics, also with batch
    statistics. These pool over the tokens of a call, so a token depends on the rest of its sentence
    if the whole sentence is processed at once, but not if it is processed step by step.
    """
    permuted = built.generator("stepwise").permutation(built.number("valid"))
    sentences = np.sort(permuted[:DECODED]).tolist()
    by_statistics = differences_by_statistics(built, sentences)
    if not by_statistics:
        return Finding.none("the task does not generate text")
    in_eval = by_statistics["eval"]
    rows = [
        (_STATISTICS[name], of.whole_loss, of.stepwise_loss, of.mean, of.largest, of.changed)
        for name, of in by_statistics.items()
    ]
    return Finding(
        _in_words(in_eval),
        {
            "sentences": len(sentences),
            **{name: each.values() for name, each in by_statistics.items()},
        },
        AnswerTable(_COLUMNS, rows),
        board={"stepwise": in_eval.mean},
        verdict="fine" if in_eval.same else "broken",
        value=in_eval.largest,
        threshold=in_eval.rounding,
    )


class StepwiseDifference(NamedTuple):
    """How stepwise decoding differs from processing whole sentences.

    Attributes:
        tokens: the number of tokens.
        whole_loss, stepwise_loss: the losses, in nats per token.
        mean, largest: the mean and the largest difference of log probabilities, in nats.
        changed: the share of positions whose most likely next token differs.
        rounding: the largest difference that rounding can cause.
    """

    tokens: int
    whole_loss: float
    stepwise_loss: float
    mean: float
    largest: float
    changed: float
    rounding: float

    @property
    def same(self) -> bool:
        """Whether rounding explains all differences."""
        return self.largest <= self.rounding

    def values(self) -> dict[str, Any]:
        """Return the entry in `inspect.json`."""
        return {
            "tokens": self.tokens,
            "loss": {"whole": self.whole_loss, "stepwise": self.stepwise_loss},
            "difference": {"mean": self.mean, "largest": self.largest},
            "changed": self.changed,
            "rounding": self.rounding,
            "same": self.same,
        }


def differences_by_statistics(
    built: BuiltModel, sentences: list[int]
) -> dict[str, StepwiseDifference]:
    """Return the differences, keyed by `eval` and, if a norm uses running statistics, `batch`.

    The result is empty if the task does not generate text.
    """
    modes: dict[str, Mode] = {"eval": "eval"}
    if built.keeps_statistics:
        modes["batch"] = "training"
    by_statistics: dict[str, StepwiseDifference] = {}
    for name, mode in modes.items():
        with in_mode(built.model, mode):
            compared = _compare(built, sentences)
        if compared is None:
            return {}
        by_statistics[name] = compared
    return by_statistics


def _in_words(difference: StepwiseDifference) -> str:
    if difference.same:
        return f"the same up to rounding (at most {difference.largest:.1g} nats per token)"
    return (
        f"log probabilities differ by {difference.mean:.3g} nats per token, "
        f"{difference.changed:.0%} of the next tokens differ, and the loss is "
        f"{difference.stepwise_loss:.3g} instead of {difference.whole_loss:.3g}"
    )


def differences(
    whole: Float[Tensor, "N V"], stepwise: Float[Tensor, "N V"], targets: Int[Tensor, "N"]
) -> StepwiseDifference:
    """Compare the logits of whole sentences with stepwise logits for the same targets."""
    first, second = (log_probabilities(logits.double(), targets) for logits in (whole, stepwise))
    difference = (first - second).abs()
    return StepwiseDifference(
        tokens=len(targets),
        whole_loss=-float(first.mean()),
        stepwise_loss=-float(second.mean()),
        mean=float(difference.mean()),
        largest=float(difference.max()),
        changed=float((whole.argmax(-1) != stepwise.argmax(-1)).double().mean()),
        rounding=_ROUNDING * max(1.0, float(first.abs().max())),
    )


def _compare(built: BuiltModel, indices: Sequence[int]) -> StepwiseDifference | None:
    """Compare sentences, each in its own batch. Return None if the task generates no text."""
    each = []
    for index in indices:
        batch: Any = built.batch("valid", [index])  # has `tgt_out` if the task generates text
        logits = built.task.stepwise(built.model, batch)
        if logits is None:
            return None
        each.append((*logits, batch.tgt_out))
    return differences(*map(torch.cat, zip(*each, strict=True)))
