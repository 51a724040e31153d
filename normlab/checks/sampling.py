"""Decides claim 9: Var(mean) = sigma^2 / N, and what N counts.

Sets of N samples are drawn from 2,048 by `normlab.health.batch_mean`, whose figures these are.
"""

from typing import Any

import numpy as np

from normlab.checks._pieces import SEED, piece
from normlab.claims.evidence import Evidence
from normlab.health.batch_mean import Sums, describe

_SAMPLES = 2048
_WIDTH = 64
_LENGTH = 16  # tokens a sentence
_ALIKE = 0.1  # correlation of two tokens of a sentence
_SIZES = (8, 16, 32, 64, 128, 256)
_CLOSE = 0.1


def variance_of_the_mean() -> list[Evidence]:
    """Draw sets of single values, of sentences of independent tokens, and of correlated ones."""
    single, independent, alike = (_drawn(1, 0.0), _drawn(_LENGTH, 0.0), _drawn(_LENGTH, _ALIKE))
    ratio = single["variance"][0] / single["variance"][-1]
    per_sentence, design = independent["per_sentences"][2], alike["design_effect"][2]
    return [
        piece(
            "one value a sample: the variance of the mean falls as 1/N, so 32 times from 8 to 256",
            f"as N^{single['slope']:.2f}, {ratio:.3g} times",
            holds=abs(single["slope"] + 1) < _CLOSE,
            slope=single["slope"],
            ratio=ratio,
        ),
        piece(
            f"N is the batch size, for sentences of {_LENGTH} tokens too",
            f"sigma^2 / 32 is {per_sentence:.3g} times too large for 32 sentences of independent "
            "tokens: N counts tokens",
            holds=abs(per_sentence - 1) < _CLOSE,
            per_sentence=per_sentence,
        ),
        piece(
            f"N counts tokens also where two of a sentence correlate by {_ALIKE}",
            f"sigma^2 / {32 * _LENGTH} is {design:.2f} times too small: {32 * _LENGTH} tokens are "
            f"worth {alike['effective'][2]:.0f} (1 + {_LENGTH - 1} x {_ALIKE} = "
            f"{1 + (_LENGTH - 1) * _ALIKE:g} expected)",
            holds=abs(design - 1) < _CLOSE,
            design_effect=design,
        ),
    ]


def _drawn(length: int, alike: float) -> dict[str, Any]:
    generator = np.random.default_rng(SEED)
    sentence = generator.standard_normal((_SAMPLES, 1, _WIDTH))
    token = generator.standard_normal((_SAMPLES, length, _WIDTH))
    values = np.sqrt(alike) * sentence + np.sqrt(1 - alike) * token
    orders = np.stack([generator.permutation(_SAMPLES)[: _SIZES[-1]] for _ in range(256)])
    counts = np.full(_SAMPLES, length)
    return describe(Sums.of(values.reshape(-1, _WIDTH), counts), orders, _SIZES)
