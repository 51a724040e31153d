"""Sampling: does the variance of the batch mean fall with the number of tokens or sentences?"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from normlab.claims.evidence import Evidence
from normlab.inspect.computed import SEED, WIDTH, piece
from normlab.inspect.model import Subject, look
from normlab.inspect.question import Finding, Table, question

SENTENCES = 2048
LARGEST = 256  # sentences in a set
SETS = 256
BATCH = 32  # sentences per batch, and per set in the answer


@question("batch_mean", of="model")
@torch.no_grad()
def batch_mean(subject: Subject) -> Finding:
    """Does the variance of the batch mean fall as one over its tokens, or over its sentences?

    Training sentences pass through the model once. At the input of each norm, sets of N sentences
    are drawn, and each feature is averaged over the n real tokens of a set. Summed over features,
    with sigma^2 the variance of single tokens:

        variance       Var(mean over the tokens of N sentences) / sigma^2
        slope          least-squares slope of log variance on log n; -1 for independent tokens
        design effect  n Var(mean) / sigma^2 (Kish 1965): how many tokens are worth one independent
                       token; 1 for independent tokens, n / N if a sentence's are equal

    n is the harmonic mean over sets, so that the variance of independent tokens is sigma^2 / n even
    if sentences differ in length. Sets are drawn without replacement and have at most an eighth of
    the M sentences. Dividing variances by 1 - N / M corrects for this finite population
    (Cochran 1977, section 2.6).

    A sentence has the same activations in every set: those from one random batch of 32 with batch
    statistics, as in training. The results are means over norms.
    """
    generator = subject.generator("batch_mean")
    number = subject.number("train")
    picked = generator.permutation(number)[:SENTENCES]
    most = min(LARGEST, len(picked) // 8)
    sizes = [2**power for power in range(most.bit_length())]
    if len(sizes) < 2:
        return Finding.none(f"{number} training sentences are too few to draw sets from")
    found = _collect(subject, picked)
    orders = np.stack([generator.permutation(len(picked))[: sizes[-1]] for _ in range(SETS)])
    by_site = {
        name: describe(site, orders, sizes)
        for name, site in found.items()
        if 0 < site.variance < math.inf
    }
    if not by_site:
        return Finding.none("the inputs of all norms are constant or not finite")
    mean = {
        key: np.mean([site[key] for site in by_site.values()], axis=0).tolist()
        for key in ("tokens", "variance", "design_effect", "slope")
    }
    values = {"sentences": len(picked), "sets": SETS, "sizes": sizes}
    series = (sizes, mean["tokens"], mean["variance"], mean["design_effect"])
    columns = ("sentences", "tokens", "variance / sigma^2", "design effect")
    at = sizes.index(BATCH) if BATCH in sizes else len(sizes) - 1
    return Finding(
        f"as tokens to the power {mean['slope']:.3f} (independent -1): of the "
        f"{mean['tokens'][at]:.0f} tokens of {sizes[at]} sentences, "
        f"{mean['design_effect'][at]:.3g} are worth one independent token",
        {**values, "mean": mean, "by_site": by_site},
        Table(columns, list(zip(*series, strict=True))),
    )


class Sums(NamedTuple):
    """Sums over M groups of tokens: the count and sum of each, and the squares of all."""

    counts: Float[np.ndarray, " M"]
    sums: Float[np.ndarray, "M D"]
    squares: Float[np.ndarray, " D"]

    @classmethod
    def of(cls, tokens: Float[np.ndarray, "n D"], counts: Int[np.ndarray, " M"]) -> "Sums":
        """Sum tokens that are ordered by group, in float64; no group may be empty."""
        wide, starts = tokens.astype(np.float64), np.cumsum(counts) - counts
        sums = np.add.reduceat(wide, starts, axis=0)
        return cls(counts.astype(np.float64), sums, np.square(wide).sum(0))

    @property
    def variance(self) -> float:
        """The variance of single tokens, summed over features."""
        number = self.counts.sum()
        return float((self.squares / number - np.square(self.sums.sum(0) / number)).sum())


def describe(
    tokens: Sums, orders: Int[np.ndarray, "sets largest"], sizes: Sequence[int]
) -> dict[str, Any]:
    """Return the values defined in `batch_mean`, and sigma^2; lists have one entry per set size.

    Each row of `orders` lists different groups; the first N of them form a set of size N.
    """
    found: dict[str, Any] = {"tokens": [], "variance": [], "design_effect": []}
    for size in sizes:
        member = np.zeros((len(orders), len(tokens.counts)))
        np.put_along_axis(member, orders[:, :size], 1, axis=1)
        counts = member @ tokens.counts
        means = member @ tokens.sums / counts[:, None]
        number, left = 1 / float((1 / counts).mean()), 1 - size / len(tokens.counts)
        relative = float(means.var(0, ddof=1).sum()) / left / tokens.variance
        for name, value in zip(found, (number, relative, number * relative), strict=True):
            found[name].append(value)
    slope = np.polyfit(np.log(found["tokens"]), np.log(found["variance"]), 1)[0]
    return {**found, "slope": float(slope), "sigma2": tokens.variance}


def _collect(subject: Subject, picked: np.ndarray) -> dict[str, Sums]:
    """Return the sums of the tokens at each norm's input, grouped by sentence.

    In a model whose only norms are identities, these are measured.
    """
    wanted = subject.norms
    parts: dict[str, list[Sums]] = {}
    for start in range(0, len(picked), BATCH):
        batch = subject.batch("train", picked[start : start + BATCH].tolist())
        for name, given in look(subject, batch, "training").norms.items():
            if name in wanted or not wanted:
                found = Sums.of(given.real.cpu().numpy(), given.valid.sum(1).cpu().numpy())
                parts.setdefault(name, []).append(found)
    each = {name: list(zip(*found, strict=True)) for name, found in parts.items()}
    return {
        name: Sums(np.concatenate(counts), np.concatenate(sums), np.sum(squares, axis=0))
        for name, (counts, sums, squares) in each.items()
    }


@question("sampling.variance_of_the_mean", of="claim")
def variance_of_the_mean() -> list[Evidence]:
    """Is Var(mean) = sigma^2 / N, and does N count sentences or tokens?

    Sets are drawn from single values, from sentences of 16 independent tokens, and from sentences
    whose tokens have a correlation of 0.1.
    """
    length, alike, near = 16, 0.1, 0.1
    single, independent, correlated = _drawn(1, 0.0), _drawn(length, 0.0), _drawn(length, alike)
    slope, ratio = single["slope"], single["variance"][0] / single["variance"][-1]
    per_sentence, design = 1 / (32 * independent["variance"][2]), correlated["design_effect"][2]
    tokens, expected = 32 * length, 1 + (length - 1) * alike
    by_one = "one value per sample: the variance of the mean falls as 1/N, 32 times from 8 to 256"
    falls = f"as N^{slope:.2f}, {ratio:.3g} times"
    by_batch = f"N is the batch size, for sentences of {length} tokens too"
    too_large = (
        f"sigma^2 / 32 is {per_sentence:.3g} times too large for 32 sentences of independent "
        "tokens: N counts tokens"
    )
    by_token = f"N counts tokens also where two of a sentence correlate by {alike}"
    too_small = (
        f"sigma^2 / {tokens} is {design:.2f} times too small: {tokens} tokens equal "
        f"{1 / correlated['variance'][2]:.0f} independent ones (1 + {length - 1} x {alike} = "
        f"{expected:g} expected)"
    )
    holds = [abs(value - 1) < near for value in (-slope, per_sentence, design)]
    return [
        piece(by_one, falls, holds=holds[0], slope=slope, ratio=ratio),
        piece(by_batch, too_large, holds=holds[1], per_sentence=per_sentence),
        piece(by_token, too_small, holds=holds[2], design_effect=design),
    ]


def _drawn(length: int, alike: float) -> dict[str, Any]:
    samples, sizes = 2048, (8, 16, 32, 64, 128, 256)
    generator = np.random.default_rng(SEED)
    sentence = generator.standard_normal((samples, 1, WIDTH))
    token = generator.standard_normal((samples, length, WIDTH))
    values = np.sqrt(alike) * sentence + np.sqrt(1 - alike) * token
    orders = np.stack([generator.permutation(samples)[: sizes[-1]] for _ in range(256)])
    counts = np.full(samples, length)
    return describe(Sums.of(values.reshape(-1, WIDTH), counts), orders, sizes)
