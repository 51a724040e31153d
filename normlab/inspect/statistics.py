"""Running statistics: what do they cost against the batch's own, which training had?"""

import copy
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import nn

from normlab.data.batching import eval_batches
from normlab.distributed import Shard
from normlab.inspect.model import Subject
from normlab.inspect.question import Finding, Table, question
from normlab.inspect.subject import (
    Moments,
    Norm,
    batch_statistics,
    estimates,
    moments_watched,
    recalibrated,
    running,
    running_norms,
    running_statistics,
)
from normlab.probes.tid import Statistics, discrepancy
from normlab.tasks.base import Batch

SENTENCES = 256
BATCH = 32
SIZES = (1, 8, 32, 128)
RECALIBRATION_BATCHES = 32
RECALIBRATION_TOKENS = 40_000
_COLUMNS = ("statistics", "text", "sentences a batch", "loss", "above the batch's")
_LEAST_GAP = 1e-3  # nats a token, below which there is nothing to close


@question("statistics", of="model", claims=(12, 13, 15))
def statistics(subject: Subject) -> Finding:
    """What do running statistics cost, compared with the batch's own that training had?

    The loss per target token of held-out text, on the same weights and sentences, normalized by

        running        what evaluation has: averages over past training batches
        batch          what training has: each batch's own, here of 32 sentences, and of 1, 8, 128
        recalibrated   the pooled moments of some training batches under the final weights
                       ("precise BN", Wu and Johnson 2021)

        gap      loss(running) - loss(batch), nats a token
        closed   what recalibration closes of it, 1 - (loss(recalibrated) - loss(batch)) / gap

    The same on training text, and the training-inference discrepancy of Wang, Wu and Huang 2022,
    per norm, over the held-out batches B, with the running mu and sigma:

        mean = E_B ||mu_B - mu|| / ||sigma||        var = E_B ||sigma_B - sigma|| / ||sigma||

    Batches are cut from sentences sorted by length, as in evaluation; where lengths differ, also in
    random order, which shows what batch statistics owe to the common length of their sentences. A
    gap that stays under recalibration is no fault of the running statistics: what the batch's own
    reveal of the batch, its future tokens among it, is missing. Norms without running statistics
    have one loss: that training mode gives the same is verified.
    """
    chosen = {split: _sentences(subject, split) for split in ("valid", "train")}
    if not running_norms(subject.model):
        return _without_statistics(subject, chosen["valid"])
    valid = [by_length(subject, "valid", chosen["valid"], size=size) for size in SIZES]
    train = by_length(subject, "train", chosen["train"], size=BATCH)
    model = subject.model
    middle = valid[SIZES.index(BATCH)]
    with batch_statistics(model):
        batch = {size: loss(subject, of) for size, of in zip(SIZES, valid, strict=True)}
        train_batch = loss(subject, train)
    with running_statistics(model):
        kept, train_kept = loss(subject, middle), loss(subject, train)
    used = {"batches": 0, "tokens": 0}
    with recalibrated(model, lambda: _feed(subject, used)), running_statistics(model):
        fresh, train_fresh = loss(subject, middle), loss(subject, train)
    own = batch[BATCH]
    values = {
        "sentences": {split: len(indices) for split, indices in chosen.items()},
        "loss": {"running": kept, "batch": own, "recalibrated": fresh},
        "loss_by_batch_size": {str(size): value for size, value in batch.items()},
        "train_loss": {"running": train_kept, "batch": train_batch, "recalibrated": train_fresh},
        "recalibration": used,
        **closing(kept, own, fresh),
        "tid": discrepancies(subject, middle),
    }
    rows = [
        ("running", "held out", BATCH, kept, kept - own),
        ("recalibrated", "held out", BATCH, fresh, fresh - own),
        *(("batch", "held out", size, value, value - own) for size, value in batch.items()),
    ]
    if subject.task.padded:
        with batch_statistics(model):
            mixed = loss(subject, in_order(subject, "valid", chosen["valid"], size=BATCH))
        values["loss_of_mixed_lengths"] = mixed
        rows.append(("batch", "held out, mixed lengths", BATCH, mixed, mixed - own))
    rows += [
        ("running", "training", BATCH, train_kept, train_kept - train_batch),
        ("batch", "training", BATCH, train_batch, 0.0),
    ]
    return Finding(_answer(subject, values), values, Table(_COLUMNS, rows))


def by_length(subject: Subject, split: str, indices: np.ndarray, *, size: int) -> list[Batch]:
    """Return batches of chosen examples of a split, cut as evaluation does: the longest first."""
    cut = eval_batches(subject.task.lengths(split)[indices], batch_size=size)
    return [subject.batch(split, indices[batch].tolist()) for batch in cut]


def in_order(subject: Subject, split: str, indices: np.ndarray, *, size: int) -> list[Batch]:
    """Return batches of chosen examples of a split in their order, whatever their lengths."""
    starts = range(0, len(indices), size)
    return [subject.batch(split, indices[i : i + size].tolist()) for i in starts]


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


@torch.no_grad()
def discrepancies(subject: Subject, batches: Iterable[Batch]) -> dict[str, Any]:
    """Return the mean over batches of the discrepancy, `mean` and `var`, over all and by norm.

    Entries of too few values are left out, and norms without any other.
    """
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    norms: dict[str, Any] = dict(subject.norms)
    with batch_statistics(subject.model), moments_watched(norms) as watches:
        for batch in batches:
            for watch in watches.values():
                watch.begin()
            subject.losses(batch)
            for name, watch in watches.items():
                compared = against_running(norms[name], watch.moments)
                if compared.mean.numel():
                    both = discrepancy(compared, eps=norms[name].eps)
                    found[name].append({key: float(both[key]) for key in ("mean", "var")})
    by_site = {name: _means(each) for name, each in found.items()}
    return {**_means(list(by_site.values())), "by_site": by_site}


def against_running(norm: Norm, found: Moments) -> Statistics:
    """Return a batch's statistics with the running ones, which it does not enter."""
    mean, var = estimates(norm, found)
    pooled = (found.count > 1).expand(mean.shape)
    kept = running(norm)
    assert kept is not None
    running_mean, running_var = (moment[: len(mean)][pooled] for moment in kept)
    return Statistics(
        mean=mean[pooled],
        var=var[pooled],
        mean_before=running_mean,
        var_before=running_var,
        mean_after=running_mean,
        var_after=running_var,
        count=found.count.mean(),
    )


def _sentences(subject: Subject, split: str) -> np.ndarray:
    picked = subject.generator("statistics").permutation(subject.number(split))
    return np.sort(picked[:SENTENCES])


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
    batches = by_length(subject, "valid", indices, size=BATCH)
    training = copy.deepcopy(subject.model)
    for module in training.modules():
        if isinstance(module, Norm):
            module.train()
    in_eval, in_training = loss(subject, batches), loss(subject, batches, training)
    same = in_eval == in_training or (math.isnan(in_eval) and math.isnan(in_training))
    answer = (
        f"nothing: no norm keeps running statistics, and the loss is {in_eval:.4g} in training and "
        "in eval, to the last bit"
        if same
        else f"no norm keeps running statistics, yet the loss is {in_training:.6g} in training and "
        f"{in_eval:.6g} in eval"
    )
    values = {
        "sentences": {"valid": len(indices)},
        "loss": {"training": in_training, "eval": in_eval},
        "gap": in_eval - in_training,
        "same": same,
    }
    rows = [("none, in eval", "held out", BATCH, in_eval, in_eval - in_training)]
    return Finding(answer, values, Table(_COLUMNS, rows))


def _answer(subject: Subject, values: Mapping[str, Any]) -> str:
    gap, closed, tid = values["gap"], values["closed"], values["tid"]
    losses = f"loss {values['loss']['running']:.4g} against {values['loss']['batch']:.4g}"
    first = "" if subject.step else " (at initialization, before any statistics were taken)"
    text = f"{gap:+.3g} nats a token{first}: {losses}"
    if closed is not None:
        text += f"; recalibration closes {closed:.0%} of it"
    if tid["by_site"]:
        worst = max(tid["by_site"], key=lambda name: tid["by_site"][name]["mean"])
        text += (
            f"; discrepancy {tid['mean']:.2g} of the means, {tid['var']:.2g} of the deviations, "
            f"largest at {worst} ({tid['by_site'][worst]['mean']:.2g})"
        )
    return text


def _means(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: fmean(value[key] for value in values) for key in values[0]} if values else {}
