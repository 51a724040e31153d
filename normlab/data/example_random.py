"""Random numbers for examples. They depend only on purpose, seed, epoch and example index."""

import zlib
from typing import Literal

import numpy as np

Purpose = Literal["pairs", "masks", "pictures"]


def generator_of(purpose: Purpose, *, seed: int, epoch: int) -> np.random.Generator:
    """Return a generator that depends only on the arguments, not on batch order or model."""
    # A seed sequence ignores trailing zeros, so the purpose's number must not be zero.
    return np.random.Generator(np.random.PCG64([seed, epoch, zlib.crc32(purpose.encode())]))


def random_numbers(
    purpose: Purpose, *, seed: int, epoch: int, examples: np.ndarray, width: int, count: int
) -> np.ndarray:
    """Return `count` uniform numbers for each column of each example, as [examples, width, count].

    `examples` are the examples' indices in their split. An example's numbers depend on its index,
    but not on its batch or on that batch's width.
    """
    key = generator_of(purpose, seed=seed, epoch=epoch).integers(0, 2**63, 2)
    philox = np.random.Philox(key=key)
    generator, place = np.random.Generator(philox), philox.state
    rows = np.empty((len(examples), width, count))
    for row, example in zip(rows, examples.tolist(), strict=True):
        # Counter-based (Salmon et al. 2011), with the example's index as the counter's high word.
        place["state"]["counter"][3] = example
        philox.state = place
        generator.random(out=row)
    return rows
