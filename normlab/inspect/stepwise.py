"""Stepwise decoding: is token by token the same as the whole sentence?"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from normlab.inspect.model import Subject
from normlab.inspect.question import Cell, Finding, Table, question
from normlab.inspect.subject import batch_statistics, evaluates_by_batch, running_norms
from normlab.tasks.cross_entropy import log_probabilities

SENTENCES = 12
_COLUMNS = (
    *("statistics", "loss, whole", "loss, stepwise"),
    *("difference, mean", "largest", "next token changed"),
)
_ROUNDING = 1e-5  # of the largest log probability: float32 through some tens of layers


@runtime_checkable
class Targeted(Protocol):
    """A batch that says which tokens its logits are for, in the order of `Task.stepwise`."""

    tgt_out: Int[Tensor, "N"]


@question("stepwise", of="model", claims=(17, 41))
def stepwise(subject: Subject) -> Finding:
    """Does decoding token by token compute the same as whole sentences?

    Held-out sentences, each a batch of its own, with the true tokens so far: once as in training,
    all positions at once, and once as in generation, one position after the other. With l and l'
    the log probabilities of a true token, in nats,

        difference   mean and largest |l - l'| over the tokens
        changed      share of positions where the most likely next token is another
        loss         mean of -l (whole) and of -l' (stepwise), without label smoothing

    Once as the model evaluates and, where a norm has running statistics, once with the batch's own
    in their place: these pool over what there is, so a token sees the future of its sentence on
    the whole and not step by step. `together` is the loss on the whole with all sentences in one
    batch and its own statistics, which is nearest to what training saw.
    """
    number = subject.number("valid")
    picked = subject.generator("stepwise").permutation(number)[:SENTENCES]
    indices = np.sort(picked).tolist()
    if (found := _compare(subject, indices)) is None:
        return Finding.none("the task does not generate text")
    values: dict[str, Any] = {"sentences": len(indices), "eval": found}
    rows: list[Sequence[Cell]] = [_row("as evaluated", found)]
    answer = _in_words(found)
    if any(not evaluates_by_batch(norm) for norm in running_norms(subject.model)):
        with batch_statistics(subject.model):
            by_batch, together = _compare(subject, indices), _whole(subject, indices)
        assert by_batch is not None, "the same task compared these sentences before"
        values |= {"batch": by_batch, "together": together}
        rows.append(_row("of the sentence", by_batch))
        rows.append((f"of all {len(indices)}", together, *[None] * 4))
        answer += f"; with the statistics of the sentence itself: {_in_words(by_batch)}"
    return Finding(answer, values, Table(_COLUMNS, rows))


def _row(name: str, found: Mapping[str, Any]) -> Sequence[Cell]:
    loss, apart = found["loss"], found["difference"]
    return name, loss["whole"], loss["stepwise"], apart["mean"], apart["largest"], found["changed"]


def differences(
    whole: Float[Tensor, "N V"], stepwise: Float[Tensor, "N V"], targets: Int[Tensor, "N"]
) -> dict[str, Any]:
    """Return what `stepwise` defines, of logits for the same targets."""
    first, second = (log_probabilities(logits.double(), targets) for logits in (whole, stepwise))
    apart = (first - second).abs()
    return {
        "tokens": len(targets),
        "loss": {"whole": -float(first.mean()), "stepwise": -float(second.mean())},
        "difference": {"mean": float(apart.mean()), "largest": float(apart.max())},
        "changed": float((whole.argmax(-1) != stepwise.argmax(-1)).double().mean()),
        "same": bool(apart.max() <= _ROUNDING * max(1.0, float(first.abs().max()))),
    }


def _compare(subject: Subject, indices: Sequence[int]) -> dict[str, Any] | None:
    wholes, steps, targets = [], [], []
    for index in indices:
        batch = subject.batch("valid", [index])
        if (logits := subject.task.stepwise(subject.model, batch)) is None:
            return None
        wholes.append(logits[0])
        steps.append(logits[1])
        targets.append(_targets(batch))
    return differences(torch.cat(wholes), torch.cat(steps), torch.cat(targets))


def _whole(subject: Subject, indices: Sequence[int]) -> float:
    """Return the loss on whole sentences that make up one batch."""
    batch = subject.batch("valid", indices)
    logits = subject.task.stepwise(subject.model, batch)
    assert logits is not None, "the same task gave logits for single sentences"
    return -float(log_probabilities(logits[0].double(), _targets(batch)).mean())


def _targets(batch: object) -> Int[Tensor, "N"]:
    if not isinstance(batch, Targeted):
        raise TypeError(f"{type(batch).__name__} has no tgt_out, the tokens of stepwise's logits")
    return batch.tgt_out


def _in_words(found: Mapping[str, Any]) -> str:
    apart, loss = found["difference"], found["loss"]
    if found["same"]:
        return (
            f"the same to rounding (at most {apart['largest']:.1g} nats a token, at a loss of "
            f"{loss['whole']:.3g})"
        )
    return (
        f"not the same: {apart['mean']:.3g} nats a token apart (at most {apart['largest']:.3g}), "
        f"{found['changed']:.0%} of the next tokens differ, and the loss is "
        f"{loss['stepwise']:.3g} instead of {loss['whole']:.3g}"
    )
