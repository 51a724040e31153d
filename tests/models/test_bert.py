"""With the same weights, our BERT matches Hugging Face's `BertForPreTraining`."""

from functools import partial
from typing import Any

import torch
from transformers import BertConfig, BertForPreTraining

from normlab.models.base import Text
from normlab.models.layers import initialize
from normlab.norms.make import make_norm
from normlab.norms.tokens import Tokens
from tests.models.small import norms, placement, text_architecture

SIZES = text_architecture()
VOCAB, LENGTH = 37, SIZES.max_positions


def bert() -> Any:
    spec = Text(vocab=VOCAB, pad_id=0, longest=1, causal=False)
    given = norms("ln", ("*.embedding", partial(make_norm, "ln")))
    model = SIZES.build(spec, placement("post"), given)
    initialize(model, 1)
    return model.eval()


@torch.no_grad()
def twin(model):
    """Return Hugging Face's model with random weights, after copying them into ours."""
    torch.manual_seed(0)
    theirs = BertForPreTraining(
        BertConfig(
            vocab_size=VOCAB,
            hidden_size=SIZES.dim,
            num_hidden_layers=SIZES.num_layers,
            num_attention_heads=SIZES.num_heads,
            intermediate_size=SIZES.ffn_dim,
            max_position_embeddings=LENGTH,
            layer_norm_eps=1e-5,
        )
    ).eval()
    for parameter in theirs.parameters():  # zeros and ones would hide a value in the wrong place
        parameter.uniform_(-0.5, 0.5)
    weights = {name: value.clone() for name, value in theirs.state_dict().items()}

    def put(ours, *names):
        for part in ("weight", "bias"):
            if hasattr(ours, part) and f"{names[0]}.{part}" in weights:
                getattr(ours, part).copy_(torch.cat([weights[f"{n}.{part}"] for n in names]))

    embeddings = "bert.embeddings"
    put(model.encoder.embedding.tokens, f"{embeddings}.word_embeddings")
    put(model.encoder.embedding.positions, f"{embeddings}.position_embeddings")
    put(model.segments, f"{embeddings}.token_type_embeddings")
    put(model.encoder.embedding.norm, f"{embeddings}.LayerNorm")
    for number, layer in enumerate(model.encoder.layers):
        their = f"bert.encoder.layer.{number}"
        attention = f"{their}.attention"
        put(
            layer.self_attention.qkv_proj,
            *(f"{attention}.self.{n}" for n in ("query", "key", "value")),
        )
        put(layer.self_attention.out_proj, f"{attention}.output.dense")
        put(layer.self_residual.norm, f"{attention}.output.LayerNorm")
        put(layer.feed_forward.fc1, f"{their}.intermediate.dense")
        put(layer.feed_forward.fc2, f"{their}.output.dense")
        put(layer.ffn_residual.norm, f"{their}.output.LayerNorm")
    put(model.token_head, "cls.predictions.transform.dense")
    put(model.token_norm, "cls.predictions.transform.LayerNorm")
    model.token_bias.copy_(weights["cls.predictions.bias"])
    put(model.pooler, "bert.pooler.dense")
    put(model.pair_head, "cls.seq_relationship")
    return theirs


@torch.no_grad()
def test_logits_match_hugging_faces_bert():
    model = bert()
    theirs = twin(model)
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(1, VOCAB, (3, LENGTH), generator=generator)
    valid = torch.arange(LENGTH)[None] < torch.tensor([12, 5, 9])[:, None]
    ids[~valid] = 0
    segments = (torch.arange(LENGTH)[None] > 3).long() * valid
    expected = theirs(ids, attention_mask=valid.long(), token_type_ids=segments)
    x = model(ids, Tokens(valid), segments)
    places = torch.tensor([[2, 5, 11], [0, 4, 0], [8, 0, 0]])
    masked = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    rows, real = masked.nonzero()[:, 0], masked.flatten().nonzero()[:, 0]
    found = model.token_logits(x, places, real)
    torch.testing.assert_close(
        found, expected.prediction_logits[rows, places[masked]], rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        model.pair_logits(x), expected.seq_relationship_logits, rtol=1e-4, atol=1e-5
    )
