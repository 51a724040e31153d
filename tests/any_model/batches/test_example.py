"""Variants of a batch: with padding, with different rows, or with different later tokens."""

import pytest
import torch
from torch import nn

import normlab
from normlab.any_model.batches.example import Example
from normlab.any_model.batches.from_batch import Conventions, example_of
from tests.any_model.toys import FAULTY, Encoder, masked_numbers, mean_over


@pytest.fixture
def padded_on_the_left(batch):
    """Return an example of 3 rows and 8 positions whose padding comes first."""
    left = {name: x.flip(1) for name, x in batch.items()}
    left["position_ids"] = (left["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return example_of(Encoder(), left, Conventions(max_positions=8))


def test_padded_adds_padding_and_keeps_the_real_tokens(padded_on_the_left):
    example = padded_on_the_left
    assert (example.side, example.size, example.length) == ("left", 3, 8)
    base = example.values["input_ids"][0]
    padded, other = (example.padded(4, other=other).values for other in (False, True))
    ids, others = padded["input_ids"][0], other["input_ids"][0]
    assert ids[:4].tolist() == [0] * 4 and bool((others[:4] > 0).all())
    assert torch.equal(ids[4:], base) and torch.equal(ids[4:], others[4:])
    assert padded["attention_mask"].tolist() == [[0] * 4 + [1] * 8]
    assert padded["position_ids"].tolist() == [[4] * 4 + [*range(4, 12)]]


def test_variants_change_only_the_other_rows_or_the_later_tokens(padded_on_the_left):
    example = padded_on_the_left
    mates = example.with_other_rows(0).values["input_ids"] == example.values["input_ids"]
    assert mates[0].all() and not mates[1:].any()
    later = example.with_later_tokens(3).values["input_ids"] == example.values["input_ids"][:1]
    assert later.tolist() == [[True] * 3 + [False] * 5]


@pytest.mark.parametrize(
    ("kind", "marks", "expected"),
    [
        ("lengths", [10, 6, 3, 1], [4, 3, 0, 0]),
        ("shares", [1.0, 0.6, 0.3, 0.1], [1.0, 0.75, 0.0, 0.0]),
    ],
)
def test_lengths_are_counted_from_the_first_selected_position(kind, marks, expected):
    x = torch.arange(40).view(4, 10)
    axes = {"row_axes": {"x": 0, "lens": 0}, "position_axes": {"x": 1}}
    values = {"x": x, "lens": torch.tensor(marks)}
    example = Example(values, dict, **axes, mask="lens", mask_kind=kind)
    positions = example.select_positions(3, 7)
    assert torch.equal(positions.values["x"], x[:, 3:7])
    assert positions.values["lens"].tolist() == pytest.approx(expected)
    assert torch.equal(positions.real, example.real[:, 3:7])
    rows = example.select_rows(1, 3)
    assert rows.values["lens"].tolist() == pytest.approx(marks[1:3])


class Layout(nn.Module):
    """Embeds boxes by their width, which must not be negative; the fault also uses their mean."""

    def __init__(self, faulty):
        super().__init__()
        self.words, self.widths, self.faulty = nn.Embedding(50, 8), nn.Embedding(30, 8), faulty

    def forward(self, input_ids, bbox, attention_mask):
        places = self.widths(bbox[..., 2] - bbox[..., 0])
        everything = torch.ones_like(attention_mask)
        pooled = mean_over(places, everything if self.faulty else attention_mask)
        return self.words(input_ids) + places + pooled


@FAULTY
def test_boxes_under_padding_and_in_other_rows_stay_valid(faulty):
    mask = masked_numbers()["attention_mask"]
    first = torch.randint(0, 9, (3, 12, 2))
    boxes = torch.cat([first, first + torch.randint(1, 9, (3, 12, 2))], -1)
    batch = {"input_ids": torch.randint(3, 50, (3, 12)), "bbox": boxes, "attention_mask": mask}
    report = normlab.inspect(Layout(faulty).eval(), batch, checks=["padding", "batch_mates"])
    assert "failed" not in {each.verdict for each in report.findings.values()}
    assert report.findings["padding"].verdict == ("broken" if faulty else "fine")
