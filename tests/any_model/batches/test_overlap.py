"""Which parts of two passes' tensors correspond."""

import torch

from normlab.any_model.batches.overlap import Padded, RowInBatch, SharedPositions, comparable


def test_a_padded_row_corresponds_at_one_end_or_around_its_padding():
    base, y = torch.arange(4).view(1, 4), torch.arange(6).view(1, 6)
    ways = Padded("left", length=3, padding=2).ways(y, base)
    assert [y[0].tolist() for y, _ in ways] == [[2, 3, 4, 5], [0, 3, 4, 5]]


def test_a_row_is_found_on_the_row_axis_of_a_batch():
    batch = torch.arange(18).view(2, 3, 3)
    y, _ = RowInBatch(1, 3, Padded()).first(batch, torch.zeros(2, 1, 3))
    assert y.tolist() == [[[3, 4, 5]], [[12, 13, 14]]]


def test_only_the_shared_positions_of_rows_of_equal_length_correspond():
    y, base = SharedPositions(6, shared=2).first(torch.arange(6), torch.arange(6))
    assert y.tolist() == base.tolist() == [0, 1]


def test_the_first_output_of_rows_that_share_positions_is_compared_even_without_positions():
    outputs = {"pooled": torch.zeros(1, 4), "states": torch.zeros(1, 6, 4)}
    assert [*comparable(outputs, outputs, SharedPositions(6, shared=2))] == ["pooled", "states"]
