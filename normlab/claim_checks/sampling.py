"""Checks of how much the mean of a batch varies."""

import numpy as np

from normlab.claim_checks.check import check, finding
from normlab.claim_checks.inputs import SEED, WIDTH
from normlab.claims.evidence import CheckFinding

TOLERANCE = 0.1  # of slopes and ratios that are 1 in theory


@check("sampling.variance_of_the_mean")
def variance_of_the_mean() -> list[CheckFinding]:
    """Is Var(mean) = sigma^2 / N, and does N count sentences or tokens?

    Sets are drawn from single values, from sentences of 16 independent tokens, and from sentences
    of 16 tokens with a correlation of 0.1.
    """
    length, correlation = 16, 0.1
    single = variances_of_means(1, 0.0)
    independent, correlated = (variances_of_means(length, c) for c in (0.0, correlation))
    slope = float(np.polyfit(np.log([*single]), np.log([*single.values()]), 1)[0])
    ratio = single[8] / single[256]
    tokens, expected = 32 * length, 1 + (length - 1) * correlation
    per_sentence, design = 1 / (32 * independent[tokens]), tokens * correlated[tokens]
    return [
        finding(
            "one value per sample",
            "one value per sample: the variance of the mean falls as 1/N, 32 times from 8 to 256",
            f"as N^\u2212{-slope:.2f}, {ratio:.3g} times",
            holds=abs(slope + 1) < TOLERANCE,
            slope=slope,
            ratio=ratio,
        ),
        finding(
            "N is the batch size",
            f"N is the batch size, for sentences of {length} tokens too",
            f"for 32 sentences of independent tokens, sigma^2 / 32 is {per_sentence:.3g} times the "
            "variance",
            holds=abs(per_sentence - 1) < TOLERANCE,
            per_sentence=per_sentence,
        ),
        finding(
            "N counts tokens",
            f"N counts tokens even if a sentence's tokens correlate by {correlation}",
            f"the variance is {design:.2f} times sigma^2 / {tokens}: {tokens} tokens equal "
            f"{1 / correlated[tokens]:.0f} independent ones (1 + {length - 1} x {correlation} = "
            f"{expected:g} expected)",
            holds=abs(design - 1) < TOLERANCE,
            design_effect=design,
        ),
    ]


def variances_of_means(length: int, correlation: float) -> dict[int, float]:
    """Return Var(mean) / sigma^2, keyed by the number of tokens, for sets of 8 to 256 sentences.

    Sets are drawn without replacement from 2048 sentences with correlated tokens. Dividing the
    variances by 1 - n / 2048, where n is the number of sentences in a set, corrects for this finite
    population (Cochran 1977, section 2.6).
    """
    samples, sizes, sets = 2048, (8, 16, 32, 64, 128, 256), 256
    generator = np.random.default_rng(SEED)
    sentence = generator.standard_normal((samples, 1, WIDTH))
    token = generator.standard_normal((samples, length, WIDTH))
    values = np.sqrt(correlation) * sentence + np.sqrt(1 - correlation) * token
    orders = np.stack([generator.permutation(samples)[: sizes[-1]] for _ in range(sets)])
    sums, number = values.sum(1), samples * length
    squares = np.square(values.reshape(number, WIDTH)).sum(0)
    sigma2 = float((squares / number - np.square(sums.sum(0) / number)).sum())
    variances = {}
    for size in sizes:
        member = np.zeros((sets, samples))
        np.put_along_axis(member, orders[:, :size], 1, axis=1)
        means = member @ sums / (size * length)
        finite = 1 - size / samples
        variances[size * length] = float(means.var(0, ddof=1).sum()) / finite / sigma2
    return variances
