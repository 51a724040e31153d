"""Models of libraries that normlab does not require; the tests run only if they are installed."""

from pathlib import Path

import pytest
import torch
from torch import nn

import normlab
from normlab.any_model.loading.load import load_by_prefix
from tests.any_model.pairs import WIDTH, bert, text_batches

MODULES = "sentence_transformers.sentence_transformer.modules"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(251))]


def encoder(folder: Path, *more: nn.Module) -> nn.Module:
    """Return a SentenceTransformer with a small BERT, followed by more modules."""
    sentences = pytest.importorskip("sentence_transformers")
    from transformers import BertTokenizer

    (folder / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    bert().save_pretrained(folder)
    first = pytest.importorskip(MODULES).Transformer(str(folder))
    return sentences.SentenceTransformer(modules=[first, *more], device="cpu").eval()


def test_a_convolution_in_sentence_transformers_leaks_and_pooling_does_not(tmp_path):
    modules = pytest.importorskip(MODULES)
    cnn, pooling = modules.CNN, modules.Pooling
    sound = encoder(tmp_path, pooling(WIDTH, "mean"))
    report = normlab.inspect(sound, text_batches(), causal=False)
    assert [str(f) for f in report.findings.values() if f.verdict in ("failed", "broken")] == []
    leaking = encoder(tmp_path, cnn(WIDTH, 8), pooling(24, "mean"))
    found = normlab.inspect(leaking, text_batches(), checks=["padding"]).findings["padding"]
    assert found.verdict == "broken" and found.module.startswith("1.convs."), found
    assert "sentence_embedding" in found.answer or "token_embeddings" in found.answer


def test_a_timm_model_is_loaded_by_name_and_its_norms_are_found():
    pytest.importorskip("timm")
    model, batches, options = load_by_prefix("timm:test_resnet")
    report = normlab.inspect(model, batches, checks=["forward", "norms"], **options)
    assert "15 BatchNorm2d over batch" in str(report.findings["norms"])
    assert batches[0].shape[1:] == torch.Size(model.default_cfg["input_size"])
