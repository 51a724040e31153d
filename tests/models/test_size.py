"""The numbers of parameters match the published models."""

import pytest
import torch

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.training.build import build_model
from tests.models.small import Words

FAIRSEQ_IWSLT = 39_469_056  # transformer_iwslt_de_en on its IWSLT'14 dictionaries
GERMAN, ENGLISH = 8848, 6632


def parameters(monkeypatch, *overrides):
    # Parameters are counted without initial values.
    monkeypatch.setattr("normlab.training.build.initialize", lambda model, seed: None)
    config = to_dict(compose(["task=iwslt", *overrides]))
    with torch.device("meta"):
        model = build_model(config, Words(GERMAN, ENGLISH))
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_iwslt_model_has_the_published_number_of_parameters(monkeypatch):
    fairseqs = ("model=iwslt", "model.share_embeddings=target")
    assert parameters(monkeypatch, *fairseqs, "placement=post") == FAIRSEQ_IWSLT
    own = parameters(monkeypatch, "model=iwslt", "model.share_embeddings=none", "placement=pre")
    assert own == FAIRSEQ_IWSLT + ENGLISH * 512 + 2 * 2 * 512  # the output, two closing norms


def test_sharing_one_embedding_between_two_vocabularies_is_refused(monkeypatch):
    with pytest.raises(ValueError, match=r"share_embeddings=all .* 8848 and 6632"):
        parameters(monkeypatch, "model=tiny")
