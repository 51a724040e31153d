"""Splits of images, and their augmentation."""

from functools import cache

import numpy as np

from normlab.data.images import Augmentation, Digits


@cache
def digits():
    return Digits(valid_size=200).splits()


def test_splits_divide_all_images_and_are_balanced_over_classes():
    found = digits()
    assert sum(map(len, found.values())) == 1797
    for split in ("valid", "test"):
        counts = np.bincount(found[split].labels, minlength=10)
        assert counts.min() >= 0.9 * counts.max()
    assert np.array_equal(found["train"].pixels, Digits(valid_size=200).splits()["train"].pixels)


def test_augmentation_shifts_or_mirrors_and_depends_only_on_seed_epoch_and_image():
    vary = Augmentation(shift=1, flip=True)
    pixels = np.arange(1, 26, dtype=np.uint8).reshape(1, 5, 5, 1).repeat(400, 0)
    numbers = np.arange(400)
    whole = vary(pixels, indices=numbers, seed=1, epoch=3)
    part = vary(pixels[4:7], indices=numbers[4:7], seed=1, epoch=3)
    assert np.array_equal(whole[4:7], part)
    for seed, epoch in ((1, 4), (2, 3)):
        assert not np.array_equal(whole, vary(pixels, indices=numbers, seed=seed, epoch=epoch))
    shifted = np.lib.stride_tricks.sliding_window_view(np.pad(pixels[0, :, :, 0], 1), (5, 5))
    cuts = shifted.reshape(9, 5, 5)
    allowed = {image.tobytes() for image in (*cuts, *cuts[:, :, ::-1])}
    assert {image.tobytes() for image in whole[..., 0]} == allowed
