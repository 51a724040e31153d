"""The sentence pairs of a split."""

import hashlib

from normlab.data.corpus import ParallelText


def test_checksums_match_the_sha256_of_the_files():
    text = ParallelText(["\u00e4", "b"], ["x", "y"])
    files = "\u00e4\nb\n".encode(), b"x\ny\n"
    assert text.checksums() == [hashlib.sha256(file).hexdigest() for file in files]
