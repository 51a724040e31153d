"""Which parts of the outputs of two passes correspond."""

import torch

from normlab.any_model.batches.outputs import Overlap


def test_outputs_of_different_lengths_are_compared_where_they_overlap():
    y, base = Overlap("left")(torch.arange(6).view(1, 6), torch.arange(4).view(1, 4))
    assert y.tolist() == [[2, 3, 4, 5]] and base.tolist() == [[0, 1, 2, 3]]
    y, base = Overlap("right", 6, 2)(torch.arange(6), torch.arange(6))
    assert y.tolist() == base.tolist() == [0, 1]
