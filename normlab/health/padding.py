"""Do batch statistics, and real tokens' outputs, change with the share of padding?

The same sentences, of one length in each stream so that they start without any padding, are padded
to growing shares p of the batch. With x_p what is found at share p and x_0 at the lowest share,
over real tokens and features:

    moved        RMS(x_p - x_0) / RMS(x_0), of each stack's last values and of each norm's output
    mean ratio   ||mu_p|| / ||mu_0||            mu, var: what a norm that pools over the batch
    mean offset  RMS(mu_p - mu_0) / RMS(sd_0)   normalizes by, where real tokens stand
    var ratio    sum var_p / sum var_0

with the batch's statistics, as in training, and as the model evaluates. All but `moved` are means
over the norms that pool over the batch, and are taken with the batch's statistics.

Were padding zeros that count like tokens, a share p of them would give

    mu_p = (1 - p) mu_0        var_p = (1 - p) (var_0 + p mu_0^2)

which for 1 2 3 4 5 and five zeros is the documents' mean 3 -> 1.5 and variance 2 -> 3.25. Zeros
are what padding is where a stream begins, and no longer after the first layer. Claims 7 (padding
pollutes batch norm's statistics) and 8 (layer norm is untouched).
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.health.movement import ROUNDING, by_how_much, movement, over, rms
from normlab.health.subject import Finding, Subject
from normlab.health.watch import NO_STACKS, norms_watched, stacks_watched
from normlab.models.anatomy import stacks
from normlab.norms.base import Norm, RunningNorm, batch_statistics
from normlab.norms.local import NoNorm
from normlab.norms.moments import Moments
from normlab.norms.tally import Tally
from normlab.probes.sites import sites

QUESTION = "Do real tokens come out otherwise, and do batch statistics change, with more padding?"
SHARES = tuple(step / 10 for step in range(9))
SENTENCES = 32
FEWEST = 8  # sentences of one length combination that are enough
MODES = ("training", "eval")


@torch.no_grad()
def examine(subject: Subject) -> Finding:
    """Pad the same sentences to each share, with training statistics and in eval."""
    if not subject.task.padded:
        return Finding.none(QUESTION, "its batches have no padding")
    if not stacks(subject.model):
        return Finding.none(QUESTION, NO_STACKS)
    room, lengths = positions(subject.model), subject.task.lengths("train")
    generator = subject.generator("padding")
    picked = alike(lengths, longest=int(room * (1 - SHARES[-1])), generator=generator)
    longest = int(lengths[picked].max())
    shares = [share for share in SHARES if math.ceil(longest / (1 - share)) <= room]
    if len(shares) < 2:
        why = f"sentences of {longest} tokens leave no room for padding in {room} positions"
        return Finding.none(QUESTION, why)
    looks = {
        mode: [_look(subject, mode, picked, padding=share) for share in shares] for mode in MODES
    }
    figures = {
        "sentences": len(picked),
        "lengths": lengths[picked].mean(0).tolist(),
        "shares": shares,
        "real_share": _by_name([look.padding for look in looks["eval"]]),
        "moved": {mode: _by_name(moved(looks[mode], "last")) for mode in MODES},
        "norms": {mode: _over_norms(moved(looks[mode], "outputs")) for mode in MODES},
        "statistics": _over_sites([against(looks["training"][0], x) for x in looks["training"]]),
    }
    return Finding(QUESTION, _answer(figures), figures, *_table(figures))


def positions(model: nn.Module) -> int:
    """Return how many positions a model has: of its stacks and of its norms' statistics."""
    rooms = [stack.room for stack in stacks(model).values() if stack.room is not None]
    rows = [len(m.running_moments()[0]) for m in model.modules() if isinstance(m, RunningNorm)]
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


@dataclass(frozen=True)
class Look:
    """What one batch came to: by stack its share of padding and its last values, by site the rest.

    Values are those of real tokens, in their order, which padding does not change.
    """

    padding: dict[str, float]
    last: dict[str, Float[Tensor, "N D"]]
    outputs: dict[str, Float[Tensor, "N _"]]
    moments: dict[str, Moments]


def _look(subject: Subject, mode: str, indices: np.ndarray, *, padding: float) -> Look:
    model, batch = subject.model, subject.batch("train", indices.tolist(), padding=padding)
    acting = {name for name, norm in sites(model, Norm).items() if not isinstance(norm, NoNorm)}
    statistics = batch_statistics(model) if mode == "training" else nullcontext()
    with (
        statistics,
        _moments_taken(model) as tallies,
        norms_watched(model) as norms,
        stacks_watched(model) as ends,
    ):
        subject.task.losses(model, batch)
    return Look(
        padding={name: 1 - float(end.valid.float().mean()) for name, end in ends.items()},
        last={name: end.last[end.valid] for name, end in ends.items()},
        outputs={name: norms[name].y[norms[name].valid] for name in norms if name in acting},
        moments={name: tally.result() for name, tally in tallies.items()},
    )


@contextmanager
def _moments_taken(model: nn.Module) -> Iterator[dict[str, Tally]]:
    """Collect the moments that norms normalize by, where these are the batch's, by site."""
    norms = sites(model, RunningNorm)
    tallies = {name: Tally(norm.running_moments()[0]) for name, norm in norms.items()}
    try:
        for name, norm in norms.items():
            norm.tally = tallies[name]
        yield tallies
    finally:
        for norm in norms.values():
            norm.tally = None


def moved(looks: Sequence[Look], what: str) -> list[dict[str, float]]:
    """Return for each look by how much its `last` values or `outputs` moved since the first."""
    first = getattr(looks[0], what)
    return [
        {name: movement(values, first[name]) for name, values in getattr(look, what).items()}
        for look in looks
    ]


def against(first: Look, look: Look) -> dict[str, dict[str, float]]:
    """Return `mean_ratio`, `mean_offset` and `var_ratio` of a look's moments, by site."""
    return {
        name: compare_moments(found, look.moments[name]) for name, found in first.moments.items()
    }


def compare_moments(first: Moments, other: Moments) -> dict[str, float]:
    """Return the ratios and the offset of the module's text, where `first` pooled anything."""
    there = (first.count > 0).expand_as(first.mean)
    mean, var = first.mean[there], first.var[there]
    other_mean, other_var = other.mean[there], other.var[there]
    return {
        "mean_ratio": over(rms(other_mean), rms(mean)),
        "mean_offset": over(rms(other_mean - mean), rms(var.sqrt())),
        "var_ratio": over(float(other_var.sum()), float(var.sum())),
    }


def _by_name(found: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Turn a list of values by name into lists by name."""
    return {name: [values[name] for values in found] for name in found[0]}


def _over_norms(found: Sequence[Mapping[str, float]]) -> dict[str, Any] | None:
    """Return the largest and mean movement over norms by share, and that of each; None of none."""
    if not found[0]:
        return None
    return {
        "max": [max(values.values()) for values in found],
        "mean": [fmean(values.values()) for values in found],
        "by_site": _by_name(found),
    }


def _over_sites(found: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Any] | None:
    """Return each figure of the statistics by share, a mean over sites; None without such norms."""
    if not found[0]:
        return None
    names = ("mean_ratio", "mean_offset", "var_ratio")
    whole = {
        name: [fmean(site[name] for site in by_site.values()) for by_site in found]
        for name in names
    }
    return {
        **whole,
        "by_site": {
            site: {name: [by_site[site][name] for by_site in found] for name in names}
            for site in found[0]
        },
    }


def _answer(figures: Mapping[str, Any]) -> str:
    most = {mode: max(x[-1] for x in figures["moved"][mode].values()) for mode in MODES}
    first = max(shares[0] for shares in figures["real_share"].values())
    start = f" from {first:.0%}" if first else ""
    text = (
        f"real tokens' outputs move {by_how_much(most['training'])}{start} at "
        f"{figures['shares'][-1]:.0%} padding (training statistics), "
        f"{by_how_much(most['eval'])} in eval"
    )
    if statistics := figures["statistics"]:
        offset, ratio = statistics["mean_offset"][-1], statistics["var_ratio"][-1]
        if max(offset, abs(ratio - 1)) < ROUNDING:
            text += "; batch statistics stay as they are"
        else:
            text += (
                f"; batch means move {by_how_much(offset)} of a standard deviation, and batch "
                f"variances are {ratio:.3g} of what they were"
            )
    return text


def _table(figures: Mapping[str, Any]) -> tuple[list[str], list[list[float | None]]]:
    columns, series = ["padding"], [figures["shares"]]
    for mode in MODES:
        for stack, values in figures["moved"][mode].items():
            columns.append(f"{stack}, {mode}")
            series.append(values)
    if statistics := figures["statistics"]:
        columns += ["mean offset", "var ratio"]
        series += [statistics["mean_offset"], statistics["var_ratio"]]
    return columns, [list(row) for row in zip(*series, strict=True)]
