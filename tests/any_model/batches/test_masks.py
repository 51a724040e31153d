"""Which input marks padding, and how."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import normlab
from tests.any_model.pairs import masked
from tests.any_model.toys import IDS, MASK, Embedded, Encoder, accused, finding, mean, pooling

ROWS = {
    "padding in all rows": masked((24, 17, 12, 9))[:, :24] * (torch.arange(24) < 22),
    "padding, one row without padding": MASK,
}


@pytest.mark.parametrize("real", ROWS.values(), ids=ROWS)
def test_a_padding_mask_that_is_true_for_padding_is_recognized(real):
    model = pooling("padding_mask", lambda mask, _: ~mask)
    assert accused(model, {"input_ids": IDS * real, "padding_mask": real == 0}) == {}
    leaking = pooling("padding_mask", lambda mask, _: torch.ones_like(mask))
    assert "padding" in accused(leaking, {"input_ids": IDS * real, "padding_mask": real == 0})


def test_the_argument_mask_says_whether_ones_are_real_or_padding():
    model, ids = pooling("keep", lambda mask, _: ~mask), IDS + 1  # no value shows what padding is
    mask = MASK == 0
    assert accused(model, {"input_ids": ids, "keep": mask}, mask={"keep": "padding"}) == {}
    with pytest.raises(ValueError, match=r'row 0 is all padding; .* or pass mask="padding"'):
        accused(model, {"input_ids": ids, "keep": mask}, mask={"keep": "real"})
    named = pooling("mask", lambda mask, _: ~mask)
    assert accused(named, {"input_ids": ids, "mask": mask}, mask="padding") == {}


def test_lengths_relative_to_the_longest_row_are_recognized():
    def real(shares, ids):
        return torch.arange(ids.shape[1]) < (shares * ids.shape[1]).round()[:, None]

    batch = {"input_ids": IDS * MASK, "wav_lens": torch.tensor([24, 17, 12, 9]) / 24}
    model = pooling("wav_lens", real)
    assert accused(model, batch) == {}
    assert "of up to 24 positions" in normlab.inspect(model, [batch], checks="padding").title
    assert "padding" in accused(pooling("wav_lens", lambda s, ids: torch.ones_like(ids)), batch)


class ByTime(nn.Module):
    """A mean over the real frames of an input `[B, D, T]`."""

    def __init__(self, faulty: bool, width: int):
        super().__init__()
        self.faulty, self.linear = faulty, nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        real = torch.arange(x.shape[2]) < length[:, None]
        real = torch.ones_like(real) if self.faulty else real
        return self.linear(x) - mean(x.mT, real)[..., None]


@pytest.mark.parametrize("width", [8, 32])
def test_the_position_axis_is_the_axis_that_the_lengths_fit(width):
    x = torch.randn(4, width, 24) * MASK[:, None]
    batch = {"x": x, "length": MASK.sum(1)}
    assert accused(ByTime(False, width), batch) == {}
    assert "padding" in accused(ByTime(True, width), batch)
    title = normlab.inspect(ByTime(False, width), [batch], checks="forward").title
    assert "of up to 24 positions" in title


def test_both_masks_of_a_model_are_padded():
    class Two(Embedded):
        def forward(self, input_ids, attention_mask, pooling_mask):
            x = self.embed(input_ids)
            return mean(x, attention_mask) + mean(x, pooling_mask)

    torch.manual_seed(0)
    for mask in (MASK, torch.ones_like(MASK)):
        batch = {"input_ids": IDS * mask, "attention_mask": mask, "pooling_mask": mask}
        assert accused(Two(None), batch) == {}


@pytest.mark.parametrize("name", ["attention_mask", "src_key_padding_mask"])
def test_an_inverted_mask_is_refused(batch, name):
    model = Encoder()
    model.config = SimpleNamespace(pad_token_id=0)
    normlab.inspect(model, [batch], checks=["forward"])
    batch["input_ids"][0, -1] = 0  # or row 0 would have no position marked as real
    mask = ((batch["input_ids"] == 0) == (name == "attention_mask")).long()
    with pytest.raises(ValueError, match=f"{name} marks only the padding of input_ids"):
        normlab.inspect(model, [{"input_ids": batch["input_ids"], name: mask}])


@pytest.mark.parametrize("form", [dict, tuple])
def test_torchs_transformer_gets_a_mask_for_the_encoder_and_for_the_decoder(form):
    model, x = nn.Transformer(8, 2, 1, 1, 16, batch_first=True), torch.randn(4, 6, 8)
    batch = {"src": x, "tgt": x, "src_key_padding_mask": None} if form is dict else (x, x + 1)
    assert finding(model, "padding", batch).verdict == "fine"


def test_a_decoder_that_ignores_the_padding_of_its_memory_is_broken():
    class WithoutMemoryMask(nn.Transformer):
        def forward(self, src, tgt, src_key_padding_mask=None):
            return super().forward(src, tgt, src_key_padding_mask=src_key_padding_mask)

    model, x = WithoutMemoryMask(8, 2, 1, 1, 16, batch_first=True), torch.randn(4, 6, 8)
    found = finding(model, "padding", {"src": x, "tgt": x})
    assert (found.verdict, found.module) == ("broken", "decoder.layers.0.multihead_attn")
