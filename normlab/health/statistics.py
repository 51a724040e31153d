"""What do running statistics cost where training had the batch's own, and why?

The loss per target token of held-out text, on the same weights and sentences, normalized by

    running        what evaluation has: averages over past training batches
    batch          what training has: each batch's own, here of 32 sentences, also of 1, 8 and 128
    recalibrated   the pooled moments of some training batches under the final weights
                   ("precise BN", Wu and Johnson 2021)

    gap      loss(running) - loss(batch), nats a token
    closed   what recalibration closes of it, 1 - (loss(recalibrated) - loss(batch)) / gap

Beside it the same on training text, and the training-inference discrepancy of Wang, Wu and Huang
2022, per norm, over the held-out batches B, with the running mu and sigma:

    mean = E_B ||mu_B - mu|| / ||sigma||        var = E_B ||sigma_B - sigma|| / ||sigma||

Batches are cut from sentences sorted by length, as in evaluation; where lengths differ, once as
they come, which tells what the batch's statistics owe to the common length of its sentences. A gap
that stays under recalibration is no fault of the running statistics: what the batch's own tell of
the batch, its future tokens among it, is missing. A norm that pools over the batch alone erases
what it normalizes in a batch of one. Norms without running statistics have one loss: that training
mode gives the same is verified. Claims 12, 13 and 15.
"""

import copy
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import nn

from normlab.data.batching import eval_batches
from normlab.distributed import Shard
from normlab.health.subject import Finding, Subject
from normlab.norms.base import (
    Norm,
    RunningNorm,
    batch_statistics,
    recalibrated,
    running_norms,
)
from normlab.norms.moments import Moments
from normlab.norms.tally import Tally
from normlab.probes.batch_statistics import Statistics
from normlab.probes.sites import sites
from normlab.probes.tid import discrepancy
from normlab.tasks.base import Batch

QUESTION = "What do running statistics cost against the batch's own, which training had?"
SENTENCES = 256
BATCH = 32
SIZES = (1, 8, 32, 128)
RECALIBRATION_BATCHES = 32
RECALIBRATION_TOKENS = 40_000
COLUMNS = ("statistics", "text", "sentences a batch", "loss", "above the batch's")
_LEAST_GAP = 1e-3  # nats a token, below which there is nothing to close


def examine(subject: Subject) -> Finding:
    """Compare the losses of the ways to normalize, and the statistics themselves."""
    chosen = {split: _sentences(subject, split) for split in ("valid", "train")}
    if not running_norms(subject.model):
        return _without_statistics(subject, chosen["valid"])
    valid = [by_length(subject, "valid", chosen["valid"], size=size) for size in SIZES]
    train = by_length(subject, "train", chosen["train"], size=BATCH)
    model = subject.model
    middle = valid[SIZES.index(BATCH)]
    with batch_statistics(model):
        batch = {size: loss(subject, model, of) for size, of in zip(SIZES, valid, strict=True)}
        train_batch = loss(subject, model, train)
    with _running_statistics(model):
        running, train_running = loss(subject, model, middle), loss(subject, model, train)
    used = {"batches": 0, "tokens": 0}
    with (
        recalibrated(model, lambda: _feed(subject, used)),
        _running_statistics(model),
    ):
        fresh, train_fresh = loss(subject, model, middle), loss(subject, model, train)
    figures = {
        "sentences": {split: len(indices) for split, indices in chosen.items()},
        "loss": {"running": running, "batch": batch[BATCH], "recalibrated": fresh},
        "loss_by_batch_size": {str(size): value for size, value in batch.items()},
        "train_loss": {
            "running": train_running,
            "batch": train_batch,
            "recalibrated": train_fresh,
        },
        "recalibration": used,
        **closing(running, batch[BATCH], fresh),
        "tid": discrepancies(subject, middle),
    }
    rows = [
        ("running", "held out", BATCH, running, running - batch[BATCH]),
        ("recalibrated", "held out", BATCH, fresh, fresh - batch[BATCH]),
        *(("batch", "held out", s, value, value - batch[BATCH]) for s, value in batch.items()),
    ]
    if subject.task.padded:
        with batch_statistics(model):
            mixed = loss(subject, model, in_order(subject, "valid", chosen["valid"], size=BATCH))
        figures["loss_of_mixed_lengths"] = mixed
        rows.append(("batch", "held out, mixed lengths", BATCH, mixed, mixed - batch[BATCH]))
    rows += [
        ("running", "training", BATCH, train_running, train_running - train_batch),
        ("batch", "training", BATCH, train_batch, 0.0),
    ]
    return Finding(QUESTION, _answer(subject, figures), figures, COLUMNS, rows)


def by_length(subject: Subject, split: str, indices: np.ndarray, *, size: int) -> list[Batch]:
    """Return batches of chosen examples of a split, cut as evaluation does: the longest first."""
    cut = eval_batches(subject.task.lengths(split)[indices], batch_size=size)
    return [subject.batch(split, indices[batch].tolist()) for batch in cut]


def in_order(subject: Subject, split: str, indices: np.ndarray, *, size: int) -> list[Batch]:
    """Return batches of chosen examples of a split as they come, of whatever lengths."""
    starts = range(0, len(indices), size)
    return [subject.batch(split, indices[i : i + size].tolist()) for i in starts]


@torch.no_grad()
def loss(subject: Subject, model: nn.Module, batches: Iterable[Batch]) -> float:
    """Return the loss per target token over all batches: sums over counts."""
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for batch in batches:
        for name, value in subject.task.losses(model, batch).items():
            sums[name] += float(value)
            counts[name] += batch.counts[name]
    return sum(sums[name] / counts[name] for name in sums)


def closing(running: float, batch: float, fresh: float) -> dict[str, float | None]:
    """Return the gap, and the share of it that fresh statistics close; None without a gap."""
    gap = running - batch
    return {"gap": gap, "closed": 1 - (fresh - batch) / gap if gap > _LEAST_GAP else None}


@torch.no_grad()
def discrepancies(subject: Subject, batches: Iterable[Batch]) -> dict[str, Any]:
    """Return the mean over batches of the discrepancy, `mean` and `var`, whole and by site.

    The moments are those that the norm hands on when it normalizes by the batch. Entries of too
    few values are left out, and norms without any other.
    """
    norms = sites(subject.model, RunningNorm)
    newest = {name: _Newest(norm.running_moments()[0]) for name, norm in norms.items()}
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    try:
        for name, norm in norms.items():
            norm.tally = newest[name]
        with batch_statistics(subject.model):
            for batch in batches:
                for tally in newest.values():
                    tally.begin()
                subject.task.losses(subject.model, batch)
                for name, norm in norms.items():
                    compared = against_running(norm, newest[name].moments)
                    if compared.mean.numel():
                        both = discrepancy(compared, eps=norm.eps)
                        found[name].append({key: float(both[key]) for key in ("mean", "var")})
    finally:
        for norm in norms.values():
            norm.tally = None
    by_site = {name: _means(values) for name, values in found.items()}
    return {**_means(list(by_site.values())), "by_site": by_site}


def against_running(norm: RunningNorm, found: Moments) -> Statistics:
    """Return a batch's statistics beside the running ones, which it does not enter."""
    mean, var = norm.estimates(found)
    rows = slice(mean.shape[0])
    pooled = (found.count[0] > 1).expand(mean.shape)
    running_mean, running_var = (moment[rows][pooled] for moment in norm.running_moments())
    return Statistics(
        mean=mean[pooled],
        var=var[pooled],
        mean_before=running_mean,
        var_before=running_var,
        mean_after=running_mean,
        var_after=running_var,
        count=found.count.mean(),
    )


class _Newest(Tally):
    """A tally of the newest batch alone, whose positions a recurrence gives one at a time."""

    calls: int = 0
    last: Moments

    def begin(self) -> None:
        """Forget the batch before."""
        self.calls = 0
        self.sums.zero_()

    def add(self, found: Moments, first: int = 0) -> None:
        """Add what a call gives to the rows from `first` on."""
        self.calls, self.last = self.calls + 1, found
        super().add(found, first)

    @property
    def moments(self) -> Moments:
        """The moments of the batch."""
        return self.last if self.calls == 1 else self.result()


@contextmanager
def _running_statistics(model: nn.Module) -> Iterator[None]:
    """Let norms take running statistics, also those that evaluate by the batch's own."""
    norms = running_norms(model)
    by_batch = [norm.eval_by_batch for norm in norms]
    try:
        for norm in norms:
            norm.eval_by_batch = False
        yield
    finally:
        for norm, was in zip(norms, by_batch, strict=True):
            norm.eval_by_batch = was


def _sentences(subject: Subject, split: str) -> np.ndarray:
    number = len(subject.task.lengths(split))
    picked = subject.generator("statistics").permutation(number)
    return np.sort(picked[:SENTENCES])


def _feed(subject: Subject, used: dict[str, int]) -> None:
    """Feed training batches to the model, and count them."""
    stream = subject.task.train_batches(Shard(0, 1), subject.seed)
    for batch in islice(stream, RECALIBRATION_BATCHES):
        subject.task.losses(subject.model, batch.to(subject.device))
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
    in_eval = loss(subject, subject.model, batches)
    in_training = loss(subject, training, batches)
    same = in_eval == in_training or (math.isnan(in_eval) and math.isnan(in_training))
    answer = (
        f"nothing: no norm keeps running statistics, and the loss is {in_eval:.4g} in training and "
        "in eval, to the last bit"
        if same
        else f"no norm keeps running statistics, yet the loss is {in_training:.6g} in training and "
        f"{in_eval:.6g} in eval"
    )
    figures = {
        "sentences": {"valid": len(indices)},
        "loss": {"training": in_training, "eval": in_eval},
        "gap": in_eval - in_training,
        "same": same,
    }
    rows = [("none, in eval", "held out", BATCH, in_eval, in_eval - in_training)]
    return Finding(QUESTION, answer, figures, COLUMNS, rows)


def _answer(subject: Subject, figures: Mapping[str, Any]) -> str:
    gap, closed, tid = figures["gap"], figures["closed"], figures["tid"]
    losses = f"loss {figures['loss']['running']:.4g} against {figures['loss']['batch']:.4g}"
    first = "" if subject.step else " (at initialisation they are still mean 0 and variance 1)"
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
