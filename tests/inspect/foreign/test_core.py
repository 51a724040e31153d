"""The questions of `normlab.inspect(model, batches)`, on small models whose answers are known."""

import pytest
import torch
from torch import nn

import normlab


class Encoder(nn.Module):
    """An embedding and a Transformer encoder, which is given its mask or not."""

    def __init__(self, masked=True):
        super().__init__()
        self.masked = masked
        self.embedding = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, input_ids, attention_mask):
        padding = attention_mask == 0 if self.masked else None
        return self.encoder(self.embedding(input_ids), src_key_padding_mask=padding)


@pytest.fixture
def batch():
    torch.manual_seed(0)
    ids = torch.randint(1, 50, (3, 12))
    mask = (torch.arange(12) < torch.tensor([[12], [7], [9]])).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def test_a_mask_that_is_passed_keeps_padding_out_and_one_forgotten_lets_it_in(batch):
    sound, leaking = (normlab.inspect(Encoder(masked), [batch]) for masked in (True, False))
    assert [each.verdict for each in sound.findings.values()].count("fine") >= 2
    assert 0 < sound.findings["padding"].values["padded"]["narrow"] < 1e-5
    assert leaking.findings["padding"].verdict == "broken"
    assert leaking.findings["padding"].value > 0.01
    assert leaking.findings["batch_mates"].verdict == "fine"
    sound.raise_if_broken()
    with pytest.raises(AssertionError, match=r"padding: \d"):
        leaking.raise_if_broken()
