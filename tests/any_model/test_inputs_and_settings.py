"""Faults that show only for some inputs, padding sides or settings, each with a correct twin."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

import normlab
from normlab.any_model.loading.load import loaded

T, WIDTH = 12, 4
FAULTY = pytest.mark.parametrize("faulty", [True, False])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def masked_numbers():
    mask = (torch.arange(T) < torch.tensor([[T], [9], [7]])).long()
    return {"x": torch.randn(3, T, WIDTH) * mask[..., None], "attention_mask": mask}


def mean(x, mask):
    """Return the mean over the positions that a mask marks."""
    weights = mask[..., None].to(x.dtype)
    return (x * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True)


class AfterEncoder(nn.Module):
    """torch's encoder, followed by a division."""

    def __init__(self, divisor):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 8, batch_first=True)
        self.encoder, self.divisor = nn.TransformerEncoder(layer, 1), divisor

    def forward(self, x, attention_mask):
        y = self.encoder(x, src_key_padding_mask=attention_mask == 0)
        return (y - y) / self.divisor + y


@FAULTY
def test_nan_after_an_encoder_is_found_in_the_model(faulty):
    report = normlab.inspect(AfterEncoder(1.0 - faulty).eval(), masked_numbers(), checks="forward")
    found = report.findings["forward"]
    assert found.verdict == ("broken" if faulty else "fine"), found
    assert ("NaN" in found.answer) == faulty


class Layout(nn.Module):
    """Embeds boxes by their width, which must not be negative; the fault also uses their mean."""

    def __init__(self, faulty):
        super().__init__()
        self.words, self.widths, self.faulty = nn.Embedding(50, 8), nn.Embedding(30, 8), faulty

    def forward(self, input_ids, bbox, attention_mask):
        places = self.widths(bbox[..., 2] - bbox[..., 0])
        everything = torch.ones_like(attention_mask)
        pooled = mean(places, everything if self.faulty else attention_mask)
        return self.words(input_ids) + places + pooled


@FAULTY
def test_boxes_stay_boxes(faulty):
    mask = masked_numbers()["attention_mask"]
    first = torch.randint(0, 9, (3, T, 2))
    boxes = torch.cat([first, first + torch.randint(1, 9, (3, T, 2))], -1)
    batch = {"input_ids": torch.randint(3, 50, (3, T)), "bbox": boxes, "attention_mask": mask}
    report = normlab.inspect(Layout(faulty).eval(), batch, checks=["padding", "batch_mates"])
    assert "failed" not in {each.verdict for each in report.findings.values()}
    assert report.findings["padding"].verdict == ("broken" if faulty else "fine")


class Sides(nn.Module):
    """Leaks padding only on the left, at lengths of 1 modulo 32."""

    def __init__(self, faulty):
        super().__init__()
        self.faulty = faulty

    def forward(self, x, attention_mask):
        odd = x.shape[1] % 32 == 1 and not bool(attention_mask[:, 0].all())
        real = torch.ones_like(attention_mask) if odd and self.faulty else attention_mask
        return x + mean(x, real)


@FAULTY
def test_padding_on_the_other_side_may_leak_at_some_lengths(faulty):
    report = normlab.inspect(Sides(faulty), masked_numbers(), checks="padding")
    found = report.findings["padding"]
    assert found.verdict == ("broken" if faulty else "fine"), found
    assert ("to 33 positions on the left" in found.answer) == faulty


class Implementations(nn.Module):
    """With one implementation of attention, it also pools over padding."""

    def __init__(self, faulty):
        super().__init__()
        self.config, self.faulty = SimpleNamespace(_attn_implementation="sdpa"), faulty

    def set_attn_implementation(self, name):
        self.config._attn_implementation = name

    def forward(self, x, attention_mask):
        eager = self.config._attn_implementation == "eager"
        everything = torch.ones_like(attention_mask)
        return x + mean(x, everything if eager and self.faulty else attention_mask)


@FAULTY
def test_each_implementation_of_attention_is_tried_and_the_first_one_set_again(faulty):
    model = Implementations(faulty)
    found = normlab.inspect(model, masked_numbers(), checks="padding").findings["padding"]
    assert found.verdict == ("broken" if faulty else "fine"), found
    assert ("eager attention, padding by" in found.answer) == faulty
    assert model.config._attn_implementation == "sdpa"


@FAULTY
def test_models_of_timm_get_images_of_their_size(faulty, monkeypatch):
    def create_model(name, pretrained):
        assert not pretrained
        if name != "small":
            raise RuntimeError(f"Unknown model ({name})")
        norm = nn.BatchNorm2d(3, track_running_stats=not faulty)
        norm.default_cfg = {"input_size": (3, 8, 6)}
        return norm.train()

    fake = ModuleType("timm")
    fake.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", fake)
    model, batches, options = loaded("timm:small")
    assert batches[0].shape[1:] == (3, 8, 6) and not model.training
    found = normlab.inspect(model, batches, checks="batch_mates", **options).findings["batch_mates"]
    assert found.verdict == ("broken" if faulty else "fine")
    with pytest.raises(ValueError, match="timm:no: Unknown model"):
        loaded("timm:no")


@FAULTY
def test_a_folder_of_transformers_is_loaded_with_inputs(faulty, tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    convolutions = {"conv_dim": [8], "conv_kernel": [10], "conv_stride": [80]}
    positions = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    norm = {"feat_extract_norm": "group" if faulty else "layer", "intermediate_size": 16}
    config = transformers.Wav2Vec2Config(**sizes, **convolutions, **positions, **norm)
    transformers.Wav2Vec2Model(config).save_pretrained(tmp_path)
    model, batches, options = loaded(f"hf:{tmp_path}")
    found = normlab.inspect(model, batches, checks="padding", **options).findings["padding"]
    assert (found.verdict == "broken") == faulty, found
