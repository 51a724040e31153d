"""Training compared with inference: the cost of running statistics and stepwise decoding."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from normlab.any_model.questions.statistics import COST, cost
from normlab.data.batching import eval_batches
from normlab.distributed.process_group import Shard
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question
from normlab.inspection.recording import taking
from normlab.inspection.subject import Subject
from normlab.norms.model_norms import recalibrated
from normlab.norms.running import normalized_by, running_norms
from normlab.tasks.batch import Batch
from normlab.tasks.losses import log_probabilities

SENTENCES = 256
DECODED = 12  # number of sentences to decode
BATCH = 32
RECALIBRATION_BATCHES = 32
RECALIBRATION_TOKENS = 40_000
_LEAST_GAP = 1e-3  # nats per token; below it there is no gap for recalibration to close
_ROUNDING = 1e-5  # relative to the largest log probability: float32 error over tens of layers


@question("statistics", of="model", trained=True)
def statistics(subject: Subject) -> Finding:
    """How much loss do running statistics cost compared with each batch's own statistics?

    This compares the loss per target token of the same weights on the same held-out text, with

        running        running statistics, as in evaluation: averages over past training batches
        batch          batch statistics, as in training: each batch's own, of 32 sentences
        recalibrated   the pooled moments of some training batches under the final weights
                       ("precise BN", Wu and Johnson 2021)

        gap      loss(running) - loss(batch), in nats per token
        closed   the share that recalibration closes, 1 - (loss(recalibrated) - loss(batch)) / gap

    Sentences are sorted by length and then batched, as in evaluation. If lengths differ, they are
    also batched unsorted, which shows how much batch statistics gain from similar lengths. A gap
    that remains after recalibration is not caused by poor running statistics: batch statistics also
    carry information about the batch, such as future tokens, which the model then lacks.
    """
    model = subject.model
    picked = subject.generator("statistics").permutation(subject.number("valid"))
    held_out = np.sort(picked[:SENTENCES])
    batches = by_length(subject, held_out, size=BATCH)
    if not running_norms(model):
        batch_loss = loss(subject, batches)
        answer = f"nothing: no norm keeps running statistics; the loss is {batch_loss:.4g}"
        losses = {"training": batch_loss, "eval": batch_loss}
        values = {"sentences": len(held_out), "loss": losses, "gap": 0.0}
        return Finding(answer, values, board={"train-eval gap": 0.0})
    losses = _losses_by_statistics(subject, batches, held_out)
    batch_loss, least = losses["batch"], losses["recalibrated"]
    gap = losses["running"] - batch_loss
    closed = 1 - (least - batch_loss) / gap if gap > _LEAST_GAP else None
    values = {
        "sentences": len(held_out),
        "loss_of_mixed_lengths": losses.get("batch, mixed lengths"),
        "loss": losses,
        "gap": gap,
        "closed": closed,
    }
    first = "" if subject.step else " (at initialization, before any statistics were taken)"
    answer = (
        f"{gap:+.3g} nats per token{first}: loss {losses['running']:.4g} against {batch_loss:.4g}"
    )
    if closed is not None:
        answer += f"; recalibration closes {closed:.0%} of it"
    rows = [(name, value, value - batch_loss) for name, value in losses.items()]
    stale = cost(losses)
    return Finding(
        answer,
        values,
        AnswerTable(("statistics", "loss", "above batch"), rows),
        board={"train-eval gap": gap},
        verdict="look" if stale > COST else "fine",
        value=stale,
        threshold=COST,
    )


def _losses_by_statistics(
    subject: Subject, batches: Sequence[Batch], held_out: np.ndarray
) -> dict[str, float]:
    """Return the loss with running, recalibrated and batch statistics, and for unsorted batches."""
    model, losses = subject.model, dict[str, float]()
    with normalized_by(model, "running"):
        losses["running"] = loss(subject, batches)
    with recalibrated(model, lambda: _feed(subject)), normalized_by(model, "running"):
        losses["recalibrated"] = loss(subject, batches)
    with normalized_by(model, "batch"):
        losses["batch"] = loss(subject, batches)
        if subject.task.padded:
            starts = range(0, len(held_out), BATCH)
            unsorted = [subject.batch("valid", held_out[i : i + BATCH].tolist()) for i in starts]
            losses["batch, mixed lengths"] = loss(subject, unsorted)
    return losses


def by_length(subject: Subject, indices: np.ndarray, *, size: int) -> list[Batch]:
    """Return held-out examples batched as in evaluation, the longest first."""
    cut = eval_batches(subject.task.lengths("valid")[indices], batch_size=size)
    return [subject.batch("valid", indices[batch].tolist()) for batch in cut]


@torch.no_grad()
def loss(subject: Subject, batches: Iterable[Batch]) -> float:
    """Return the loss per target token over all batches, summed over the task's losses."""
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for batch in batches:
        for name, value in subject.losses(batch).items():
            sums[name] += float(value)
            counts[name] += batch.counts[name]
    return sum(sums[name] / counts[name] for name in sums)


def _feed(subject: Subject) -> None:
    """Run at most 32 training batches or about 40,000 tokens through the model."""
    tokens, batches = 0, subject.task.train_batches(Shard(0, 1), subject.seed)
    for batch in islice(batches, RECALIBRATION_BATCHES):
        subject.losses(batch.to(subject.runtime.device))
        tokens += batch.tokens
        if tokens >= RECALIBRATION_TOKENS:
            break


@question("stepwise", of="model")
def stepwise(subject: Subject) -> Finding:
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
    picked = subject.generator("stepwise").permutation(subject.number("valid"))[:DECODED]
    ways = {"eval": ("as evaluated", "eval")}
    if subject.keeps_statistics:
        ways["batch"] = ("of the sentence", "training")
    values: dict[str, Any] = {"sentences": len(picked)}
    rows = []
    for name, (statistics, mode) in ways.items():
        with taking(subject.model, mode):
            metrics = _compare(subject, np.sort(picked).tolist())
        if metrics is None:
            return Finding.none("the task does not generate text")
        values[name], loss, difference = metrics, metrics["loss"], metrics["difference"]
        rows.append((statistics, *loss.values(), *difference.values(), metrics["changed"]))
    columns = ("statistics", "loss, whole", "loss, stepwise", "difference, mean", "largest")
    table = AnswerTable((*columns, "next token changed"), rows)
    metrics = values["eval"]
    difference, loss = metrics["difference"], metrics["loss"]
    if metrics["same"]:
        answer = f"the same up to rounding (at most {difference['largest']:.1g} nats per token)"
    else:
        answer = (
            f"{difference['mean']:.3g} nats per token different, {metrics['changed']:.0%} of the "
            f"next tokens differ, and the loss is {loss['stepwise']:.3g} instead of "
            f"{loss['whole']:.3g}"
        )
    return Finding(
        answer,
        values,
        table,
        board={"stepwise": difference["mean"]},
        verdict="fine" if metrics["same"] else "broken",
        value=difference["largest"],
        threshold=metrics["rounding"],
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


def _compare(subject: Subject, indices: Sequence[int]) -> dict[str, Any] | None:
    """Return the metrics over sentences, one per batch; None if the task does not decode."""
    each = []
    for index in indices:
        batch: Any = subject.batch("valid", [index])  # has `tgt_out` if the task generates text
        logits = subject.task.stepwise(subject.model, batch)
        if logits is None:
            return None
        each.append((*logits, batch.tgt_out))
    return differences(*map(torch.cat, zip(*each, strict=True)))
