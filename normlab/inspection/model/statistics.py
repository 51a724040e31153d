"""Measures how much higher the loss is with running statistics than with batch statistics."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from normlab.any_model.questions.statistics import LARGEST_RISE, loss_rise
from normlab.distributed.process_group import Shard
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.inspection.model.built_model import BuiltModel
from normlab.inspection.model.held_out_loss import BATCH_SIZE, by_length, loss_per_token
from normlab.norms.model_norms import recalibrated
from normlab.norms.running import normalized_by, running_norms
from normlab.tasks.base import Batch

SENTENCES = 256
RECALIBRATION_BATCHES = 32
RECALIBRATION_TOKENS = 40_000
_LEAST_GAP = 1e-3  # nats per token; `closed` is not computed for a smaller gap


@question("statistics", of="model", trained=True)
def statistics(built: BuiltModel) -> Finding:
    """How much higher is the loss with running statistics than with each batch's own?

    The loss per target token is computed on the same held-out text, with the same weights, and with

        running        running statistics, as in evaluation: averages over past training batches
        batch          batch statistics, as in training, of each batch of 32 sentences
        recalibrated   the pooled moments of some training batches under the final weights
                       ("precise BN", Wu and Johnson 2021)

    From these losses,

        gap      loss(running) - loss(batch), in nats per token
        closed   the share that recalibration closes, 1 - (loss(recalibrated) - loss(batch)) / gap

    Sentences are sorted by length and then batched, as in evaluation. If lengths differ, they are
    also batched unsorted, which shows how much batch statistics gain from similar lengths. If a gap
    remains after recalibration, poor running statistics do not cause it: batch statistics also
    contain information about the batch, such as future tokens, which running statistics lack.
    """
    picked = built.generator("statistics").permutation(built.number("valid"))
    held_out = np.sort(picked[:SENTENCES])
    batches = by_length(built, held_out, size=BATCH_SIZE)
    if not running_norms(built.model):
        return _without_running_statistics(len(held_out), loss_per_token(built, batches))
    losses = losses_by_statistics(built, batches, held_out)
    gap = gap_of(losses)
    stale = loss_rise(losses)
    return Finding(
        _in_words(losses, gap, trained=built.step > 0),
        {
            "sentences": len(held_out),
            "loss_of_mixed_lengths": losses.get("batch, mixed lengths"),
            "loss": losses,
            "gap": gap.size,
            "closed": gap.closed,
        },
        AnswerTable(
            ("statistics", "loss", "above batch"),
            [(name, value, value - losses["batch"]) for name, value in losses.items()],
        ),
        board={"train-eval gap": gap.size},
        verdict="look" if stale > LARGEST_RISE else "fine",
        value=stale,
        threshold=LARGEST_RISE,
    )


def _without_running_statistics(sentences: int, loss: float) -> Finding:
    return Finding(
        f"no higher, because no norm keeps running statistics; the loss is {loss:.4g}",
        {
            "sentences": sentences,
            "loss_of_mixed_lengths": None,
            "loss": {"running": loss, "batch": loss},
            "gap": 0.0,
            "closed": None,
        },
        board={"train-eval gap": 0.0},
    )


class TrainEvalGap(NamedTuple):
    """The size of the gap and the share that recalibration closes, as `statistics` defines them.

    `closed` is None if the gap is too small.
    """

    size: float
    closed: float | None


def gap_of(losses: Mapping[str, float]) -> TrainEvalGap:
    """Return the gap between the losses with running and with batch statistics."""
    size = losses["running"] - losses["batch"]
    if not size > _LEAST_GAP:  # or NaN
        return TrainEvalGap(size, None)
    return TrainEvalGap(size, 1 - (losses["recalibrated"] - losses["batch"]) / size)


def _in_words(losses: Mapping[str, float], gap: TrainEvalGap, *, trained: bool) -> str:
    first = "" if trained else " (at initialization, before any statistics were taken)"
    text = (
        f"{gap.size:+.3g} nats per token{first}: loss {losses['running']:.4g} against "
        f"{losses['batch']:.4g}"
    )
    return text if gap.closed is None else f"{text}; recalibration closes {gap.closed:.0%} of it"


def losses_by_statistics(
    built: BuiltModel, batches: Sequence[Batch], held_out: np.ndarray
) -> dict[str, float]:
    """Return the loss with each kind of statistics and, if lengths differ, for unsorted batches."""
    model, losses = built.model, dict[str, float]()
    with normalized_by(model, "running"):
        losses["running"] = loss_per_token(built, batches)
    with recalibrated(model, lambda: _feed(built)), normalized_by(model, "running"):
        losses["recalibrated"] = loss_per_token(built, batches)
    with normalized_by(model, "batch"):
        losses["batch"] = loss_per_token(built, batches)
        if built.task.padded:
            starts = range(0, len(held_out), BATCH_SIZE)
            unsorted = [built.batch("valid", held_out[i : i + BATCH_SIZE].tolist()) for i in starts]
            losses["batch, mixed lengths"] = loss_per_token(built, unsorted)
    return losses


def _feed(built: BuiltModel) -> None:
    """Run training batches through the model, until 32 batches or 40,000 tokens are reached."""
    tokens, batches = 0, built.task.train_batches(Shard(0, 1), built.seed)
    for batch in islice(batches, RECALIBRATION_BATCHES):
        built.losses(batch.to(built.runtime.device))
        tokens += batch.tokens
        if tokens >= RECALIBRATION_TOKENS:
            break
