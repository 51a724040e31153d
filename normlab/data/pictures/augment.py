"""How training pictures are varied: shifted and mirrored, as He et al. 2016 (section 4.2) do.

What becomes of a picture depends on (seed, epoch, its number) alone: not on its batch, the model or
the norm, so that runs of a seed see the same pixels.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, UInt8

from normlab.data.batching import dice


@dataclass(frozen=True)
class Augmentation:
    """Random shifts and mirror images.

    Attributes:
        shift: pixels that a picture moves at most, in both directions; what comes in is black.
        flip: mirror every other picture, left to right.
    """

    shift: int
    flip: bool

    def __call__(
        self,
        pixels: UInt8[np.ndarray, "B H W C"],
        *,
        indices: Int[np.ndarray, "B"],
        seed: int,
        epoch: int,
    ) -> UInt8[np.ndarray, "B H W C"]:
        """Return varied pictures; `indices` are their numbers in the training split."""
        if not self.shift and not self.flip:
            return pixels
        _, height, width, _ = pixels.shape
        drawn = dice("pictures", seed=seed, epoch=epoch, examples=indices, width=1, count=3)[:, 0]
        corners = (drawn[:, :2] * (2 * self.shift + 1)).astype(np.int64).tolist()
        mirrored = (drawn[:, 2] < 0.5).tolist() if self.flip else [False] * len(pixels)
        room = ((0, 0), (self.shift, self.shift), (self.shift, self.shift), (0, 0))
        varied = np.empty_like(pixels)
        each = zip(varied, np.pad(pixels, room), corners, mirrored, strict=True)
        for picture, wide, (down, right), mirror in each:
            cut = wide[down : down + height, right : right + width]
            picture[:] = cut[:, ::-1] if mirror else cut
        return varied
