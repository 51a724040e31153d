"""The number of parameters is that of the published models."""

import pytest
import torch

from normlab.config.compose import compose, to_dict
from normlab.train.build import build_model
from tests.models.small import Words

FAIRSEQ_IWSLT = 39_469_056  # transformer_iwslt_de_en on its IWSLT'14 dictionaries
GERMAN, ENGLISH = 8848, 6632


def parameters(monkeypatch, *overrides):
    monkeypatch.setattr("normlab.train.build.initialize", lambda model, seed: None)  # no values
    config = to_dict(compose(["task=iwslt", *overrides]))
    with torch.device("meta"):
        model = build_model(config, Words(GERMAN, ENGLISH))
    return sum(parameter.numel() for parameter in model.parameters())


def formula(*, dim, ffn, layers, embeddings, closing_norms):
    """Count by hand: matrices with biases, norms with scale and shift."""
    attention = 4 * (dim * dim + dim)
    feed_forward = (dim * ffn + ffn) + (ffn * dim + dim)
    norm = 2 * dim
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return layers * (encoder + decoder) + embeddings * dim + closing_norms * norm


@pytest.mark.parametrize(
    ("share", "rows", "place", "closing"),
    [("target", GERMAN + ENGLISH, "post", 0), ("none", GERMAN + 2 * ENGLISH, "pre", 2)],
)
def test_the_iwslt_model_has_as_many_parameters_as_the_formula(
    monkeypatch, share, rows, place, closing
):
    found = parameters(
        monkeypatch, "model=iwslt", f"model.share_embeddings={share}", f"placement={place}"
    )
    size = {"dim": 512, "ffn": 1024, "layers": 6}
    assert found == formula(**size, embeddings=rows, closing_norms=closing)
    if (share, place) == ("target", "post"):
        assert found == FAIRSEQ_IWSLT


def test_one_matrix_for_two_vocabularies_is_refused(monkeypatch):
    with pytest.raises(ValueError, match=r"share_embeddings=all .* 8848 and 6632"):
        parameters(monkeypatch, "model=tiny")
