"""Training and inference: what do running statistics cost, and decoding token by token?"""

import copy
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from normlab.data.batching import eval_batches
from normlab.inspect.model import Subject
from normlab.inspect.question import Finding, Table, question
from normlab.norms.base import Norm, normalized_by, running_norms
from normlab.norms.ranks import Shard
from normlab.norms.recalibration import recalibrated
from normlab.tasks.base import Batch
from normlab.tasks.cross_entropy import log_probabilities

SENTENCES = 256
DECODED = 12  # sentences
BATCH = 32
SIZES = (1, 8, 32, 128)
RECALIBRATION_BATCHES = 32
RECALIBRATION_TOKENS = 40_000
_COLUMNS = ("statistics", "sentences per batch", "loss", "above the batch's")
_LEAST_GAP = 1e-3  # nats a token, below which there is nothing to close
_ROUNDING = 1e-5  # of the largest log probability: float32 through some tens of layers


@question("statistics", of="model")
def statistics(subject: Subject) -> Finding:
    """What do running statistics cost, compared with the batch's own that training had?

    The loss per target token of held-out text, on the same weights and sentences, normalized by

        running        what evaluation has: averages over past training batches
        batch          what training has: each batch's own, here of 32 sentences, and of 1, 8, 128
        recalibrated   the pooled moments of some training batches under the final weights
                       ("precise BN", Wu and Johnson 2021)

        gap      loss(running) - loss(batch), nats a token
        closed   what recalibration closes of it, 1 - (loss(recalibrated) - loss(batch)) / gap

    Batches are cut from sentences sorted by length, as in evaluation; where lengths differ, also in
    random order, which shows what batch statistics owe to the common length of their sentences. A
    gap that stays after recalibration is no fault of the running statistics: what the batch's own
    reveal of the batch, such as its future tokens, is missing. Norms without running statistics
    have one loss: that training mode gives the same is verified.
    """
    model = subject.model
    picked = subject.generator("statistics").permutation(subject.number("valid"))
    held_out = np.sort(picked[:SENTENCES])
    if not running_norms(model):
        return _without_statistics(subject, held_out)
    batches = {size: by_length(subject, held_out, size=size) for size in SIZES}
    with normalized_by(model, "batch"):
        batch = {size: loss(subject, each) for size, each in batches.items()}
    used = {"batches": 0, "tokens": 0}
    with normalized_by(model, "running"):
        kept = loss(subject, batches[BATCH])
    with recalibrated(model, lambda: _feed(subject, used)), normalized_by(model, "running"):
        fresh = loss(subject, batches[BATCH])
    own = batch[BATCH]
    values = {
        "sentences": len(held_out),
        "loss": {"running": kept, "batch": own, "recalibrated": fresh},
        "loss_by_batch_size": {str(size): value for size, value in batch.items()},
        "recalibration": used,
        **closing(kept, own, fresh),
    }
    rows = [("running", BATCH, kept), ("recalibrated", BATCH, fresh)]
    rows += [("batch", size, value) for size, value in batch.items()]
    if subject.task.padded:
        starts = range(0, len(held_out), BATCH)
        unsorted = [subject.batch("valid", held_out[i : i + BATCH].tolist()) for i in starts]
        with normalized_by(model, "batch"):
            mixed = values["loss_of_mixed_lengths"] = loss(subject, unsorted)
        rows.append(("batch, mixed lengths", BATCH, mixed))
    first = "" if subject.step else " (at initialization, before any statistics were taken)"
    answer = f"{values['gap']:+.3g} nats a token{first}: loss {kept:.4g} against {own:.4g}"
    if (closed := values["closed"]) is not None:
        answer += f"; recalibration closes {closed:.0%} of it"
    table = Table(_COLUMNS, [(*row, row[-1] - own) for row in rows])
    return Finding(answer, values, table, board={"train-eval gap": values["gap"]})


def by_length(subject: Subject, indices: np.ndarray, *, size: int) -> list[Batch]:
    """Return batches of held-out examples, cut as evaluation does: the longest first."""
    cut = eval_batches(subject.task.lengths("valid")[indices], batch_size=size)
    return [subject.batch("valid", indices[batch].tolist()) for batch in cut]


@torch.no_grad()
def loss(subject: Subject, batches: Iterable[Batch], model: nn.Module | None = None) -> float:
    """Return the loss per target token over all batches: sums over counts."""
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for batch in batches:
        for name, value in subject.losses(batch, model).items():
            sums[name] += float(value)
            counts[name] += batch.counts[name]
    return sum(sums[name] / counts[name] for name in sums)


def closing(running: float, batch: float, fresh: float) -> dict[str, float | None]:
    """Return the gap, and the share of it that fresh statistics close; None without a gap."""
    gap = running - batch
    return {"gap": gap, "closed": 1 - (fresh - batch) / gap if gap > _LEAST_GAP else None}


def _feed(subject: Subject, used: dict[str, int]) -> None:
    """Feed training batches to the model, and count them."""
    stream = subject.task.train_batches(Shard(0, 1), subject.seed)
    for batch in islice(stream, RECALIBRATION_BATCHES):
        subject.losses(batch.to(subject.runtime.device))
        used["batches"] += 1
        used["tokens"] += batch.tokens
        if used["tokens"] >= RECALIBRATION_TOKENS:
            break


def _without_statistics(subject: Subject, indices: np.ndarray) -> Finding:
    """Verify that a copy whose norms are in training mode has the same loss."""
    batches = by_length(subject, indices, size=BATCH)
    training = copy.deepcopy(subject.model)
    for module in training.modules():
        if isinstance(module, Norm):
            module.train()
    in_eval, in_training = loss(subject, batches), loss(subject, batches, training)
    same = in_eval == in_training or (math.isnan(in_eval) and math.isnan(in_training))
    answer = (
        f"no norm keeps running statistics, yet the loss is {in_training:.6g} in training and "
        f"{in_eval:.6g} in eval"
    )
    if same:
        answer = (
            f"nothing: no norm keeps running statistics, and the loss is {in_eval:.4g} in "
            "training and in eval, to the last bit"
        )
    gap, losses = in_eval - in_training, {"training": in_training, "eval": in_eval}
    values = {"sentences": len(indices), "loss": losses, "gap": gap, "same": same}
    table = Table(_COLUMNS, [("none, in eval", BATCH, in_eval, gap)])
    return Finding(answer, values, table, board={"train-eval gap": gap})


@question("stepwise", of="model")
def stepwise(subject: Subject) -> Finding:
    """Does decoding token by token compute the same as whole sentences?

    Held-out sentences, each a batch of its own, with the true tokens so far: once as in training,
    all positions at once, and once as in generation, one position after the other. With l and l'
    the log probabilities of a true token, in nats,

        difference   mean and largest |l - l'| over the tokens
        changed      share of positions where the most likely next token is another
        loss         mean of -l (whole) and of -l' (stepwise), without label smoothing

    Once as the model evaluates and, where a norm has running statistics, once with the batch's own
    in their place: these pool over what there is, so a token sees the future of its sentence in
    the whole and not step by step.
    """
    picked = subject.generator("stepwise").permutation(subject.number("valid"))[:DECODED]
    ways: dict[str, tuple[str, str, AbstractContextManager[None]]]
    ways = {"eval": ("as evaluated", "", nullcontext())}
    if subject.keeps_statistics:
        said = "; with the statistics of the sentence itself: "
        ways["batch"] = ("of the sentence", said, normalized_by(subject.model, "batch"))
    values: dict[str, Any] = {"sentences": len(picked)}
    rows, answer = [], ""
    for name, (statistics, said, mode) in ways.items():
        with mode:
            found = _compare(subject, np.sort(picked).tolist())
        if found is None:
            return Finding.none("the task does not generate text")
        values[name], losses, apart = found, found["loss"].values(), found["difference"].values()
        rows.append((statistics, *losses, *apart, found["changed"]))
        answer += said + _in_words(found)
    columns = ("statistics", "loss, whole", "loss, stepwise", "difference, mean", "largest")
    board = {"stepwise": values["eval"]["difference"]["mean"]}
    return Finding(answer, values, Table((*columns, "next token changed"), rows), board=board)


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
    """Compare sentences that are each a batch of its own; None for a task without decoding."""
    each = []
    for index in indices:
        batch: Any = subject.batch("valid", [index])  # of a task that generates, with `tgt_out`
        logits = subject.task.stepwise(subject.model, batch)
        if logits is None:
            return None
        each.append((*logits, batch.tgt_out))
    return differences(*map(torch.cat, zip(*each, strict=True)))


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
