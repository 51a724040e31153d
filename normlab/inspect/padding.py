"""Padding: does it change the output of real tokens, or batch statistics?"""

import math
import sys
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.claims.evidence import Evidence
from normlab.inspect.computed import WIDTH, close, draw_tokens, new_norm, option, piece
from normlab.inspect.model import (
    MODES,
    NO_STACKS,
    ROUNDING,
    Subject,
    by_how_much,
    look,
    movement,
    over,
    rms,
    stacks,
)
from normlab.inspect.question import Finding, Table, question
from normlab.inspect.subject import padding_moves, run
from normlab.inspect.worked import PADDED, document
from normlab.norms.base import running_norms
from normlab.norms.batch import BatchNorm
from normlab.norms.pool import Moments

FIVE = (1.0, 2.0, 3.0, 4.0, 5.0)
SHARES = tuple(step / 10 for step in range(9))
SENTENCES = 32
FEWEST = 8  # sentences of one length combination that are enough


@question("padding", of="model")
@torch.no_grad()
def padding(subject: Subject) -> Finding:
    """Does padding change the output of real tokens or the batch statistics?

    The same sentences, of one length in each stream so that they start without any padding, are
    padded to growing shares p of the batch. With x_p what is found at share p and x_0 at the
    lowest share, over real tokens and features:

        moved        RMS(x_p - x_0) / RMS(x_0), of each stack's last values
        mean ratio   ||mu_p|| / ||mu_0||            mu, var: what a norm that pools over the batch
        mean offset  RMS(mu_p - mu_0) / RMS(sd_0)   normalizes real tokens by
        var ratio    sum var_p / sum var_0

    with the batch's statistics, as in training, and as the model evaluates. All but `moved` are
    means over the norms that pool over the batch, and are taken with the batch's statistics.

    Were padding zeros that count like tokens, a share p of them would give

        mu_p = (1 - p) mu_0        var_p = (1 - p) (var_0 + p mu_0^2)

    which for 1 2 3 4 5 and five zeros is the documents' mean 3 -> 1.5 and variance 2 -> 3.25.
    Padding is zeros where a stream begins, and no longer after the first layer.
    """
    if not subject.task.padded:
        return Finding.none("its batches have no padding")
    if not subject.stacks:
        return Finding.none(NO_STACKS)
    room, lengths = positions(subject.model), subject.task.lengths("train")
    generator = subject.generator("padding")
    picked = alike(lengths, longest=int(room * (1 - SHARES[-1])), generator=generator)
    longest = int(lengths[picked].max())
    shares = [share for share in SHARES if math.ceil(longest / (1 - share)) <= room]
    if len(shares) < 2:
        return Finding.none(
            f"sentences of {longest} tokens leave no room for padding in {room} positions"
        )
    passes = {
        mode: [_pass(subject, mode, picked.tolist(), share) for share in shares] for mode in MODES
    }
    moved: dict[str, dict[str, list[float]]] = {
        mode: {
            name: [movement(each.last[name], x) for each in found]
            for name, x in found[0].last.items()
        }
        for mode, found in passes.items()
    }
    moments = [list(each.moments.values()) for each in passes["training"]]
    compared = [list(map(compare, moments[0], each)) for each in moments]
    values = {
        "sentences": len(picked),
        "lengths": lengths[picked].mean(0).tolist(),
        "shares": shares,
        "real_share": {name: [p.padding[name] for p in passes["eval"]] for name in subject.stacks},
        "moved": moved,
        "statistics": {
            name: [fmean(by[name] for by in each) for each in compared]
            for name in ("mean_ratio", "mean_offset", "var_ratio")
            if moments[0]
        },
    }
    most = {mode: max(x[-1] for x in moved[mode].values()) for mode in MODES}
    start = max(each[0] for each in values["real_share"].values())
    answer = (
        f"real tokens' outputs change {by_how_much(most['training'])}"
        f"{f' from {start:.0%}' if start else ''} at {shares[-1]:.0%} padding (training "
        f"statistics), {by_how_much(most['eval'])} in eval"
    )
    series = {"padding": shares}
    for mode in MODES:
        series |= {f"{stack}, {mode}": found for stack, found in moved[mode].items()}
    if statistics := values["statistics"]:
        offset, ratio = statistics["mean_offset"][-1], statistics["var_ratio"][-1]
        series |= {"mean offset": statistics["mean_offset"], "var ratio": statistics["var_ratio"]}
        answer += (
            f"; batch means change {by_how_much(offset)} of a standard deviation, and batch "
            f"variances are {ratio:.3g} of what they were"
            if max(offset, abs(ratio - 1)) >= ROUNDING
            else "; batch statistics stay as they are"
        )
    table = Table(list(series), list(map(list, zip(*series.values(), strict=True))))
    return Finding(answer, values, table, board={"padding": most["training"]})


class _Pass(NamedTuple):
    """By stack the share of padding and the last values of real tokens, by norm its moments."""

    padding: dict[str, float]
    last: dict[str, Float[Tensor, "N D"]]
    moments: dict[str, Moments]


def _pass(subject: Subject, mode: str, indices: list[int], share: float) -> _Pass:
    seen = look(subject, subject.batch("train", indices, padding=share), mode)
    return _Pass(
        {name: 1 - float(end.valid.float().mean()) for name, end in seen.stacks.items()},
        {name: end.real for name, end in seen.stacks.items()},
        {name: watch.result() for name, watch in seen.moments.items()},
    )


def positions(model: nn.Module) -> int:
    """Return how many positions a model has: of its stacks and of its norms' statistics."""
    rooms = [stack.room for stack in stacks(model).values() if stack.room is not None]
    rows = [len(norm.running_moments()[0]) for norm in running_norms(model)]
    return min([*rooms, *(number for number in rows if number > 1)], default=sys.maxsize)


def alike(lengths: np.ndarray, *, longest: int, generator: np.random.Generator) -> np.ndarray:
    """Return the indices of at most 32 examples of the most common combination of lengths.

    `lengths` is `[n, k]`, of each example in each stream. Combinations with a length above
    `longest` are left out, unless there is no other. Where the most common one has fewer than 8
    examples, those nearest to it in length are taken with it.
    """
    combinations, counts = np.unique(lengths, axis=0, return_counts=True)
    fitting = combinations.max(1) <= longest
    if not fitting.any():
        fitting = combinations.max(1) == combinations.max(1).min()
    common = int(np.argmax(np.where(fitting, counts, 0)))
    order = generator.permutation(len(lengths))
    far = np.abs(lengths[order] - combinations[common]).sum(1)
    number = int(counts[common]) if counts[common] >= FEWEST else FEWEST
    return np.sort(order[np.argsort(far, kind="stable")[: min(number, SENTENCES)]])


def compare(first: Moments, other: Moments) -> dict[str, float]:
    """Return the ratios and the offset that `padding` defines, where `first` pooled anything."""
    there = (first.count > 0).expand_as(first.mean)
    mean, var = first.mean[there], first.var[there]
    other_mean, other_var = other.mean[there], other.var[there]
    return {
        "mean_ratio": over(rms(other_mean), rms(mean)),
        "mean_offset": over(rms(other_mean - mean), rms(var.sqrt())),
        "var_ratio": over(float(other_var.sum()), float(var.sum())),
    }


@question("padding.pollutes", of="claim")
def pollutes() -> list[Evidence]:
    """What are the statistics of 1 2 3 4 5 with five zeros of padding, counted and left out?"""
    padded = torch.tensor([*FIVE, *[0.0] * len(FIVE)], dtype=torch.float64)
    torchs = nn.BatchNorm1d(1, momentum=1.0).double()
    torchs(padded[:, None])
    assert torchs.running_mean is not None and torchs.running_var is not None
    # The buffer keeps the variance over n - 1; the batch is normalized by that over n.
    biased = float(torchs.running_var) * (len(padded) - 1) / len(padded)
    ours = {how: _batch_moments(padded, how) for how in ("include", "exclude")}
    move = "five zeros move mean 3 to 1.5 and variance 2 to 3.25"
    left_out = "it is the padding: left out (norm.padding=exclude), mean 3 and variance 2 are back"
    found = (
        (f"nn.BatchNorm1d: {move}", (float(torchs.running_mean), biased), (1.5, 3.25)),
        (f"bn: {move}", ours["include"], (1.5, 3.25)),
        (left_out, ours["exclude"], (3.0, 2.0)),
    )
    return [
        piece(
            text,
            f"mean {mean:.4g}, variance {var:.4g}",
            holds=close((mean, var), wanted),
            mean=mean,
            var=var,
        )
        for text, (mean, var), wanted in found
    ]


def _batch_moments(padded: Float[Tensor, " P"], padding: str) -> tuple[float, float]:
    """Return the mean and variance that batch norm takes of values whose latter half is padding."""
    norm = new_norm("bn", padding=padding)
    valid = (torch.arange(len(padded)) < len(FIVE))[None]
    run(norm, padded[None, :, None].expand(-1, -1, WIDTH), valid)
    assert isinstance(norm, BatchNorm) and norm.seen is not None
    return float(norm.seen.mean.flatten()[0]), float(norm.seen.var.flatten()[0])


@question("padding.spares", of="claim")
def spares() -> list[Evidence]:
    """Does padding change the output of layer norm at real tokens, bit by bit?"""
    x = draw_tokens(8, 12)
    before = run(new_norm("ln"), x)
    largest = 0.0
    for extra in (1, 12, 48):
        filler = torch.full((8, extra, WIDTH), 1e3, dtype=torch.float64)
        valid = torch.arange(12 + extra).expand(8, -1) < 12
        after = run(new_norm("ln"), torch.cat([x, filler], 1), valid)[:, :12]
        largest = max(largest, float((after - before).abs().max()))
    moves = padding_moves(option("ln"), document(), PADDED)
    return [
        piece(
            "ln: 8 to 80 % of padding does not change real tokens",
            f"changes by {largest:g} at most" if largest else "identical",
            holds=largest == 0,
            largest=largest,
        ),
        piece(
            "ln: padding does not change the documents' tensor, whatever its values",
            "changes" if moves else "identical",
            holds=not moves,
        ),
    ]
