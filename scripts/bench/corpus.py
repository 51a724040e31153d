"""Synthetic data for speed measurements: text with the lengths and frequencies of real text, noise.

Every tool splits the sentences at spaces, so all of them see the same tokens. Lengths are
log-normal with mean 22 and standard deviation 14, nearly equal within a pair; words follow Zipf's
law. A model cannot learn to translate from it.
"""

import math
from collections.abc import Mapping

import numpy as np

from normlab.data.corpus import Corpus, Form, ParallelText
from normlab.data.images import Images, ImageSource
from normlab.errors import UserError

_CORRELATION = 0.95  # correlation of the log lengths of a pair
_SCORED_PAIRS = 200


class SyntheticCorpus(Corpus):
    """Sentence pairs over one vocabulary of `words` words, each of which occurs in `train`.

    `mean_length`, `sd_length` and `max_length` are in words, without an end mark.
    """

    name = "synthetic"
    label = "synthetic"
    licence = "generated, no rights"
    languages = ("xx", "yy")
    form: Form = "bpe"

    def __init__(
        self,
        *,
        pairs: int = 20_000,
        words: int = 8_000,
        mean_length: float = 22.0,
        sd_length: float = 14.0,
        max_length: int = 100,
        seed: int = 1,
    ):
        self.pairs, self.words, self.seed = pairs, words, seed
        self.mean_length, self.sd_length, self.max_length = mean_length, sd_length, max_length

    def key(self) -> str:
        """Return the settings, which determine every word."""
        return (
            f"synthetic/1-{self.pairs}-{self.words}-{self.mean_length}-{self.sd_length}"
            f"-{self.max_length}-{self.seed}"
        )

    def read(self) -> dict[str, ParallelText]:
        """Return the training pairs and two small splits of the same kind."""
        rng = np.random.default_rng(self.seed)
        return {
            "train": self._text(rng, self.pairs, whole_vocabulary=True),
            "valid": self._text(rng, _SCORED_PAIRS),
            "test": self._text(rng, _SCORED_PAIRS),
        }

    def _text(
        self, rng: np.random.Generator, pairs: int, *, whole_vocabulary: bool = False
    ) -> ParallelText:
        lengths = self._lengths(rng, pairs)
        frequency = 1 / np.arange(1, self.words + 1)
        flat = rng.choice(self.words, size=lengths.sum(), p=frequency / frequency.sum())
        if whole_vocabulary:
            if len(flat) < self.words:
                raise UserError(f"{pairs} pairs are too few for {self.words} words: give more")
            flat[: self.words] = np.arange(self.words)
        sentences = np.split(rng.permutation(flat), np.cumsum(lengths.ravel())[:-1])
        lines = [" ".join(f"w{word}" for word in sentence) for sentence in sentences]
        return ParallelText(lines[:pairs], lines[pairs:])

    def _lengths(self, rng: np.random.Generator, pairs: int) -> np.ndarray:
        """Return source and target lengths, [2, pairs]."""
        variance = math.log(1 + (self.sd_length / self.mean_length) ** 2)
        center = math.log(self.mean_length) - variance / 2
        source, noise = rng.standard_normal((2, pairs))
        target = _CORRELATION * source + math.sqrt(1 - _CORRELATION**2) * noise
        lengths = np.exp(center + math.sqrt(variance) * np.stack([source, target]))
        return np.clip(np.rint(lengths), 1, self.max_length).astype(np.int64)


class SyntheticImages(ImageSource):
    """Noise of 32 x 32 pixels in ten classes: speed does not depend on what the images show."""

    licence = "none"
    classes = tuple(map(str, range(10)))
    valid_size = 256
    label = "noise"
    origin = "drawn"

    def published(self) -> Mapping[str, Images]:
        """Draw the splits, the same in every process."""
        rng = np.random.default_rng(1)
        sizes = {"train": 2048, "test": 256}
        return {
            split: Images(
                rng.integers(256, size=(count, 32, 32, 3), dtype=np.uint8),
                np.arange(count) % len(self.classes),
            )
            for split, count in sizes.items()
        }
