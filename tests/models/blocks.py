"""Small models of the modern block, and their configs."""

from functools import partial

import torch

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.models.base import Image, Text
from normlab.models.layers import initialize
from normlab.models.text import TextArchitecture
from normlab.norms.tokens import Tokens
from tests.models.small import PAD, SIZES, VOCAB, Words, norms, placement, unsettle

BLOCK = {"positions": "rope", "gated": True, "activation": "silu", "bias": False, "init": "normal"}
double = partial(torch.randn, dtype=torch.float64)


class LM(Words):
    def spec(self):
        return Text(vocab=VOCAB, pad_id=PAD, longest=1, causal=True)


class Images(Words):
    def spec(self):
        return Image(8, 8, 1, 10)


def block(norm="ln", place="pre", *rules, causal=True, **changes):
    """Build a small float64 model of the modern block whose norms are far from the identity."""
    values = {"max_positions": 40, "num_layers": 2, "scale_embeddings": False, "tied": False}
    sizes = TextArchitecture(**{**SIZES, **values, **BLOCK, **changes})
    spec = Text(vocab=VOCAB, pad_id=PAD, longest=1, causal=causal)
    model = sizes.build(spec, placement(place), norms(norm, *rules))
    initialize(model, 1)
    unsettle(model, 1)
    return model.double().eval()


def config(*overrides):
    return to_dict(compose(["task=lm", *overrides]))


def whole(model, ids):
    return model.project(model(ids, Tokens(ids != PAD)))


GATES = [{"attention_gate": kind} for kind in ("headwise", "elementwise")]
