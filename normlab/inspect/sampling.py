"""Sampling: how the variance of the batch mean falls, and with the number of what."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from normlab.claims.evidence import Evidence
from normlab.inspect.computed import SEED, WIDTH, piece
from normlab.inspect.model import Subject, look
from normlab.inspect.question import Finding, Table, question
from normlab.norms.base import running_norms

SENTENCES = 2048
LARGEST = 256  # sentences of a set
SETS = 256
BATCH = 32
USUAL = 32  # sentences a batch, for the answer
_COLUMNS = (
    *("sentences", "tokens", "variance / sigma^2", "tokens shuffled", "1 / sentences"),
    *("effective tokens", "design effect"),
)


@question("batch_mean", of="model", claims=(9,))
@torch.no_grad()
def batch_mean(subject: Subject) -> Finding:
    """Does the variance of the batch mean fall as one over its tokens, or over its sentences?

    Training sentences go through the model once. At the input of each norm, sets of N sentences
    are drawn from them and each feature's mean over a set's n real tokens is taken. Summed over
    features, with sigma^2 the variance of single tokens,

        variance       Var(mean over the tokens of N sentences) / sigma^2
        slope          of log variance on log n, by least squares; -1 for independent tokens
        effective      n_eff = sigma^2 / Var(mean), the independent tokens that the set equals
        design effect  n / n_eff (Kish 1965); 1 for independent tokens, n / N for equal ones
        per sentences  (sigma^2 / N) / Var(mean), by what factor sigma^2 over the number of
                       sentences overstates the variance
        intraclass     rho of the one-way analysis of variance with sentences as groups of n_i
                       tokens: (MSB - MSW) / (MSB + (n_0 - 1) MSW),
                       n_0 = (n - sum n_i^2 / n) / (M - 1)

    n is the harmonic mean over sets, with which the variance of independent tokens is sigma^2 / n
    also for sentences of different lengths. Sets are drawn without replacement, at most an eighth
    of the M sentences, and variances are divided by 1 - N / M, so that they are of unlimited text
    (Cochran 1977, section 2.6). As a control the tokens of one norm are shuffled over sentences.

    A sentence has the same values in every set: those it gets in a random batch of 32 with the
    batch's statistics, as in training. Over norms, `effective` and `per sentences` are those of
    the mean variance, and the others are means.
    """
    generator = subject.generator("batch_mean")
    number = subject.number("train")
    picked = generator.permutation(number)[:SENTENCES]
    sizes = powers_of_two(min(LARGEST, len(picked) // 8))
    if len(sizes) < 2:
        return Finding.none(f"{number} training sentences are too few to draw sets from")
    found, shuffled, control = _collect(subject, picked, generator)
    orders = np.stack([generator.permutation(len(picked))[: sizes[-1]] for _ in range(SETS)])
    by_site = {
        name: describe(site, orders, sizes)
        for name, site in found.items()
        if 0 < site.variance < math.inf
    }
    if not by_site:
        return Finding.none("the inputs of all norms are constant or not finite")
    mean = _over_sites(list(by_site.values()), sizes)
    control_values = describe(shuffled, orders, sizes)
    values = {
        "sentences": len(picked),
        "sets": SETS,
        "sizes": sizes,
        "mean": mean,
        "shuffled": {"site": control, **control_values},
        "by_site": by_site,
    }
    series = (
        *(sizes, mean["tokens"], mean["variance"], control_values["variance"]),
        *([1 / size for size in sizes], mean["effective"], mean["design_effect"]),
    )
    return Finding(_answer(values), values, Table(_COLUMNS, list(zip(*series, strict=True))))


def powers_of_two(most: int) -> list[int]:
    """Return 1, 2, 4, ... up to `most`."""
    return [2**power for power in range(most.bit_length())]


@dataclass(frozen=True)
class Sums:
    """Tokens in M groups: the count and the sum of each, and the squares of all, in float64."""

    counts: Float[np.ndarray, " M"]
    sums: Float[np.ndarray, "M D"]
    squares: Float[np.ndarray, " D"]

    @classmethod
    def of(cls, tokens: Float[np.ndarray, "n D"], counts: Int[np.ndarray, " M"]) -> "Sums":
        """Group tokens that come one group after the other, none of them empty."""
        wide = tokens.astype(np.float64)
        starts = np.cumsum(counts) - counts
        return cls(
            counts.astype(np.float64),
            np.add.reduceat(wide, starts, axis=0),
            np.square(wide).sum(0),
        )

    @classmethod
    def joined(cls, parts: Sequence["Sums"]) -> "Sums":
        """Return the groups of all parts, one part after the other."""
        return cls(
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.sums for part in parts]),
            np.sum([part.squares for part in parts], axis=0),
        )

    @property
    def variance(self) -> float:
        """The variance of a token, summed over features."""
        number = self.counts.sum()
        return float((self.squares / number - np.square(self.sums.sum(0) / number)).sum())


def describe(
    tokens: Sums, orders: Int[np.ndarray, "sets largest"], sizes: Sequence[int]
) -> dict[str, Any]:
    """Return the values that `batch_mean` defines; lists go by the sizes of sets.

    Each row of `orders` are different groups, whose first N make up a set of N.
    """
    number, variance = resampled(tokens, orders, sizes)
    relative = variance / tokens.variance
    return {
        "tokens": number.tolist(),
        "design_effect": (number * relative).tolist(),
        **_by_variance(relative, sizes),
        "slope": slope(number, relative),
        "intraclass": intraclass(tokens),
        "sigma2": tokens.variance,
    }


def _by_variance(relative: Float[np.ndarray, " K"], sizes: Sequence[int]) -> dict[str, list[float]]:
    return {
        "variance": relative.tolist(),
        "effective": (1 / relative).tolist(),
        "per_sentences": (1 / (np.asarray(sizes) * relative)).tolist(),
    }


def resampled(
    tokens: Sums, orders: Int[np.ndarray, "sets largest"], sizes: Sequence[int]
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Return by size of sets the harmonic mean of their tokens, and the variance of their mean."""
    blocks = [0, *sizes[:-1]]  # a set of 2 N is one of N and as many more
    counts = np.add.reduceat(tokens.counts[orders], blocks, axis=1).cumsum(1)
    means = np.stack(
        [np.add.reduceat(tokens.sums[order], blocks, axis=0).cumsum(0) for order in orders]
    )
    means /= counts[:, :, None]
    left = 1 - np.asarray(sizes) / len(tokens.counts)
    return 1 / (1 / counts).mean(0), means.var(0, ddof=1).sum(-1) / left


def slope(number: Float[np.ndarray, " K"], variance: Float[np.ndarray, " K"]) -> float:
    """Return the least-squares slope of log variance on log number."""
    x, y = np.log(number), np.log(variance)
    x = x - x.mean()
    return float((x * y).sum() / np.square(x).sum())


def intraclass(tokens: Sums) -> float:
    """Return how alike tokens of a group are, 0 for not at all and 1 for equal; nan of single ones.

    Mean squares are summed over features.
    """
    n, groups = tokens.counts.sum(), len(tokens.counts)
    if n <= groups:
        return float("nan")
    middle = tokens.sums.sum(0) / n
    groupwise = (np.square(tokens.sums) / tokens.counts[:, None]).sum(0)
    between = float((groupwise - n * np.square(middle)).sum()) / (groups - 1)
    within = float((tokens.squares - groupwise).sum()) / (n - groups)
    size = float(n - np.square(tokens.counts).sum() / n) / (groups - 1)
    return (between - within) / (between + (size - 1) * within)


def _collect(
    subject: Subject, picked: np.ndarray, generator: np.random.Generator
) -> tuple[dict[str, Sums], Sums, str]:
    """Return the tokens at each norm's input by sentence, and those of the last norm shuffled.

    Identities count as norms in a model without others.
    """
    model = subject.model
    wanted = subject.norms.keys()
    parts: dict[str, list[Sums]] = {}
    control: list[np.ndarray] = []
    last = ""
    if not running_norms(model):  # then batch mates make no difference, and this pads less
        tokens = subject.task.lengths("train")[picked].sum(1)
        picked = picked[tokens.argsort(kind="stable")]
    for start in range(0, len(picked), BATCH):
        batch = subject.batch("train", picked[start : start + BATCH].tolist())
        seen = look(subject, batch, "training").norms
        passages = {name: seen[name] for name in seen if name in wanted or not wanted}
        for last, passage in passages.items():
            tokens = passage.x[passage.valid].cpu().numpy()
            counts = passage.valid.sum(1).cpu().numpy()
            parts.setdefault(last, []).append(Sums.of(tokens, counts))
        control.append(tokens)
    found = {name: Sums.joined(each) for name, each in parts.items()}
    tokens = generator.permutation(np.concatenate(control))
    return found, Sums.of(tokens, found[last].counts.astype(np.int64)), last


def _over_sites(found: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> dict[str, Any]:
    """Return the mean over norms of each value but sigma^2, which differs in scale."""
    means = {
        key: np.mean([site[key] for site in found], axis=0)
        for key in ("tokens", "design_effect", "slope", "intraclass", "variance")
    }
    variance = means.pop("variance")
    return {**{key: mean.tolist() for key, mean in means.items()}, **_by_variance(variance, sizes)}


def _answer(values: Mapping[str, Any]) -> str:
    mean, sizes = values["mean"], values["sizes"]
    at = sizes.index(USUAL) if USUAL in sizes else len(sizes) - 1
    over = mean["per_sentences"][at]
    wrong = f"{over:.3g} times too large" if over >= 1 else f"{1 / over:.3g} times too small"
    return (
        f"as tokens to the power {mean['slope']:.3f} (shuffled {values['shuffled']['slope']:.3f}, "
        f"independent -1): {sizes[at]} sentences of {mean['tokens'][at]:.0f} tokens equal "
        f"{mean['effective'][at]:.0f} independent tokens (design effect "
        f"{mean['design_effect'][at]:.3g}, intraclass correlation {mean['intraclass']:.3g}), and "
        f"sigma^2 over the number of sentences is {wrong}"
    )


@question("sampling.variance_of_the_mean", of="claim", claims=(9,))
def variance_of_the_mean() -> list[Evidence]:
    """Is Var(mean) = sigma^2 / N, and what does N count?

    Sets are drawn of single values, of sentences of 16 independent tokens, and of sentences whose
    tokens correlate by 0.1.
    """
    length, alike, close = 16, 0.1, 0.1
    single, independent, correlated = _drawn(1, 0.0), _drawn(length, 0.0), _drawn(length, alike)
    ratio = single["variance"][0] / single["variance"][-1]
    per_sentence, design = independent["per_sentences"][2], correlated["design_effect"][2]
    tokens = 32 * length
    return [
        piece(
            "one value per sample: the variance of the mean falls as 1/N, 32 times from 8 to 256",
            f"as N^{single['slope']:.2f}, {ratio:.3g} times",
            holds=abs(single["slope"] + 1) < close,
            slope=single["slope"],
            ratio=ratio,
        ),
        piece(
            f"N is the batch size, for sentences of {length} tokens too",
            f"sigma^2 / 32 is {per_sentence:.3g} times too large for 32 sentences of independent "
            "tokens: N counts tokens",
            holds=abs(per_sentence - 1) < close,
            per_sentence=per_sentence,
        ),
        piece(
            f"N counts tokens also where two of a sentence correlate by {alike}",
            f"sigma^2 / {tokens} is {design:.2f} times too small: {tokens} tokens equal "
            f"{correlated['effective'][2]:.0f} independent ones (1 + {length - 1} x {alike} = "
            f"{1 + (length - 1) * alike:g} expected)",
            holds=abs(design - 1) < close,
            design_effect=design,
        ),
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
