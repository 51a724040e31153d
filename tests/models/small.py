"""Small models and batches for tests, with the norms and placements in `configs/`."""

from functools import partial
from typing import Any

import torch

from normlab.config.instantiation import instantiate
from normlab.config.registry import option_names, option_settings
from normlab.models.base import Text, TextToText
from normlab.models.layers import initialize
from normlab.models.seq2seq import Seq2SeqArchitecture
from normlab.models.text import TextArchitecture
from normlab.norms.base import Norm
from normlab.norms.make import make_norm
from normlab.norms.running import RunningNorm
from normlab.norms.tokens import Tokens
from normlab.placements.base import Norms, Placement, Residual
from normlab.tasks.translation import Translation

NORMS = option_names("norm")
PLACEMENTS = option_names("placement")
assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-10)

# ReZero builds no norm at all.
IN_OTHERS = {place: ["none"] if place == "rezero" else ["ln", "bn"] for place in PLACEMENTS}
del IN_OTHERS["pre"]
GRID = [
    *((norm, "pre") for norm in NORMS),
    *((norms[-1], place) for place, norms in IN_OTHERS.items()),
]
"""All norms in pre-norm, batch norm in every other placement."""

PAD, BOS, EOS, UNK = range(4)
VOCAB = 13
DIM = 16


class Words(Translation):
    """A task with two vocabularies and nothing else, for building models."""

    def __init__(self, source_vocab=VOCAB, target_vocab=VOCAB):
        self.vocabularies = {"source_vocab": source_vocab, "target_vocab": target_vocab}

    def spec(self):
        return TextToText(**self.vocabularies, pad_id=PAD, longest=1)


SIZES = {
    **{"dim": DIM, "ffn_dim": 24, "num_heads": 2},
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0),
}


def architecture(**changes) -> Any:
    values = {"activation": "relu", "positions": "sinusoidal", "max_positions": 40}
    values |= {"encoder_layers": 2, "decoder_layers": 2, "share_embeddings": "all"}
    return Seq2SeqArchitecture(**{**SIZES, **values, **changes})


def text_architecture(layers=2, **changes) -> Any:
    values = {"activation": "gelu", "positions": "learned", "max_positions": 12, **changes}
    return TextArchitecture(**SIZES, **values, num_layers=layers, scale_embeddings=False)


def node_of(group, option):
    """Return the settings in a file of `configs/`."""
    return dict(option_settings(group, option, group))


def placement(option, *, dropout=0.0, **values):
    node = {**node_of("placement", option), **values}
    return instantiate(node, "placement", Placement, dropout=dropout)


def norms(norm="ln", *rules, **values):
    """Return norms: one option everywhere, except where `rules` choose another for a path."""
    return Norms([("*", partial(make_norm, norm, **values)), *rules])


def lm(
    norm="ln", place="pre", *, layers=2, fresh=False, values=None, sizes=None, **norm_values
) -> Any:
    """Build a float64 language model whose norms are far from the identity, unless `fresh`."""
    spec = Text(vocab=VOCAB, pad_id=PAD, longest=1, causal=True)
    parts = placement(place, **(values or {})), norms(norm, **norm_values)
    model = text_architecture(layers, **(sizes or {})).build(spec, *parts)
    initialize(model, 1)
    if not fresh:
        unsettle(model, 1)
    return model.double().eval()


def seq2seq(
    norm="ln", place="pre", *rules, seed=1, vocab=VOCAB, norm_values=None, **changes
) -> Any:
    """Build a float64 model in evaluation mode whose norms are far from the identity."""
    arch = architecture(**changes)
    given = norms(norm, *rules, **(norm_values or {}))
    model = arch.build(Words(vocab, vocab).spec(), placement(place, dropout=arch.dropout), given)
    initialize(model, seed)
    unsettle(model, seed)
    return model.double().eval()


@torch.no_grad()
def unsettle(model, seed):
    """Set norms' weights, biases and statistics, and residual gains, to values not 0 or 1."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(tensor, low, high):
        tensor.copy_(torch.empty_like(tensor).uniform_(low, high, generator=generator))

    for module in model.modules():
        if isinstance(module, Residual):
            for gain in module.parameters(recurse=False):
                uniform(gain, 0.5, 1.5)
        if isinstance(module, Norm):
            if isinstance(module.weight, torch.nn.Parameter):
                uniform(module.weight, 0.5, 1.5)
            if isinstance(module.bias, torch.nn.Parameter):
                uniform(module.bias, -0.5, 0.5)
        if isinstance(module, RunningNorm):
            mean, var = (torch.empty_like(moment) for moment in module.running_moments())
            uniform(mean, -0.5, 0.5)
            uniform(var, 0.5, 2.0)
            module.enter(slice(len(mean)), mean, var, torch.ones_like(mean))


def sentences(lengths, *, seed=0, vocab=VOCAB, first=None, width=None):
    """Return random ids [B, P] padded at the end, and their tokens."""
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths) if width is None else width
    ids = torch.full((len(lengths), width), PAD)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(UNK, vocab, (length,), generator=generator)
    if first is not None:
        ids[:, 0] = first
    return ids, Tokens(ids != PAD)


def logits(model, source_ids, target_ids):
    """Return teacher-forced logits [B, P, V]."""
    source, target = Tokens(source_ids != PAD), Tokens(target_ids != PAD)
    return model.project(model(source_ids, source, target_ids, target))
