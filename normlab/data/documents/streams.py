"""Random numbers of examples: a stream for each purpose, from (seed, epoch) alone."""

import zlib
from typing import Literal

import numpy as np

Purpose = Literal["pairs", "masks", "pictures"]

EVAL_SEED = 0  # valid and test are paired and masked once, whatever the seed of the run


def stream(purpose: Purpose, *, seed: int, epoch: int) -> np.random.Generator:
    """Return the generator of one epoch; neither the order of batches nor the model shares it."""
    # A seed sequence takes trailing zeros for nothing, so the purpose must not be one.
    return np.random.Generator(np.random.PCG64([seed, epoch, zlib.crc32(purpose.encode())]))


def dice(
    purpose: Purpose, *, seed: int, epoch: int, examples: np.ndarray, width: int, count: int
) -> np.ndarray:
    """Return `count` uniform numbers for each column of each example: [examples, width, count].

    Those of an example depend on its number alone: neither on the batch that it is in, nor on how
    wide that is.
    """
    key = stream(purpose, seed=seed, epoch=epoch).integers(0, 2**63, 2)
    philox = np.random.Philox(key=key)
    generator, place = np.random.Generator(philox), philox.state
    rows = np.empty((len(examples), width, count))
    for row, example in zip(rows, examples.tolist(), strict=True):
        # Counter-based (Salmon et al. 2011): the example is the high word of the counter.
        place["state"]["counter"][3] = example
        philox.state = place
        generator.random(out=row)
    return rows
