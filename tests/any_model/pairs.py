"""Fourteen models with a planted fault, each with a correct twin that differs only in the fault.

Weights are random from a fixed seed, except where a fault needs training.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, update_bn
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    HubertConfig,
    HubertModel,
    Wav2Vec2BertConfig,
    Wav2Vec2BertModel,
    Wav2Vec2Config,
    Wav2Vec2ConformerConfig,
    Wav2Vec2ConformerModel,
    Wav2Vec2Model,
)

import normlab

WIDTH, LENGTH = 16, 24
NOT_CAUSAL = {"causal": False}  # Tiny predicts bytes, but may see later ones
LENGTHS = (24, 17, 12, 9)
TEXT = (Path(__file__).resolve().parents[2] / "LICENSE").read_bytes()
NO_DROPOUT = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
SMALL = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "layerdrop": 0.0,
}
SPEECH = {
    **(SMALL | NO_DROPOUT | {"feat_proj_dropout": 0.0, "apply_spec_augment": False}),
    "conv_dim": (WIDTH, WIDTH),
    "conv_kernel": (10, 3),
    "conv_stride": (5, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}


class Case(NamedTuple):
    """A model with its batches and the other arguments of `normlab.inspect`."""

    model: nn.Module
    batches: list[Any]
    arguments: Mapping[str, Any] = {}


class Pair(NamedTuple):
    """A fault and its correct twin.

    The finding on `question` must have the `verdict`, and name a module whose path matches the
    pattern `module`.
    """

    build: Callable[[bool], Case]
    question: str
    module: str
    verdict: str = "broken"


def masked(lengths=LENGTHS, side="right") -> Tensor:
    """Return a mask [row, position] that is 1 where a token is real."""
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return mask if side == "right" else mask.flip(1)


def texts(rows=4, length=LENGTH, count=3) -> list[Tensor]:
    """Return token ids [row, position]: bytes of the license, a different part in each batch."""
    ids = torch.tensor(list(TEXT[: count * rows * length]))
    return list(ids.view(count, rows, length))


def text_batches(side="right", count=3) -> list[dict[str, Tensor]]:
    mask = masked(side=side)
    return [{"input_ids": ids * mask, "attention_mask": mask} for ids in texts(count=count)]


def sounds(lengths=(800, 560, 400, 320)) -> list[dict[str, Tensor]]:
    """Return noise as raw audio, with zeros as padding."""
    mask = masked(lengths)
    generator = torch.Generator().manual_seed(1)
    values = [torch.randn(mask.shape, generator=generator) for _ in range(2)]
    return [{"input_values": value * mask, "attention_mask": mask} for value in values]


def filter_banks(width=8) -> list[dict[str, Tensor]]:
    mask = masked()
    values = torch.randn(2, *mask.shape, width, generator=torch.Generator().manual_seed(1))
    return [{"input_features": v * mask[:, :, None], "attention_mask": mask} for v in values]


class Attention(nn.Module):
    """Self-attention over [row, position, feature] that can see `ahead` later tokens (None: all).

    The value `forbidden` is added to the scores of forbidden positions.
    """

    def __init__(self, ahead: int | None, forbidden: float):
        super().__init__()
        self.ahead, self.forbidden = ahead, forbidden
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        allowed = mask[:, None, None, :].bool()
        if self.ahead is not None:
            length = x.shape[1]
            allowed = allowed & x.new_ones(length, length).tril(self.ahead).bool()
        bias = torch.zeros_like(allowed, dtype=x.dtype).masked_fill(~allowed, self.forbidden)
        weights = (q @ k.mT / math.sqrt(q.shape[-1]) + bias).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A pre-norm block."""

    def __init__(self, norm: Callable[[], nn.Module], ahead: int | None, forbidden: float):
        super().__init__()
        self.norm1, self.norm2 = norm(), norm()
        self.attention = Attention(ahead, forbidden)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class Tiny(nn.Module):
    """A Transformer of two blocks over bytes."""

    def __init__(self, norm=lambda: nn.LayerNorm(WIDTH), ahead=None, forbidden=-math.inf):
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.positions = nn.Embedding(512, WIDTH)
        self.blocks = nn.ModuleList(Block(norm, ahead, forbidden) for _ in range(2))
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.embed(input_ids) + self.positions(places)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


class Transposed(nn.Module):
    """Passes its input [row, position, feature] to a norm as [row, feature, position]."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.mT).mT


class Mean(nn.Module):
    """The mean over positions: over real tokens only, or over all."""

    def __init__(self, all_positions: bool):
        super().__init__()
        self.all_positions = all_positions

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        weights = (torch.ones_like(mask) if self.all_positions else mask)[:, :, None].to(x.dtype)
        return (x * weights).sum(1) / weights.sum(1)


class Embedder(nn.Module):
    """BERT with the mean of its outputs as the sentence embedding."""

    def __init__(self, all_positions: bool):
        super().__init__()
        self.bert, self.pooling = bert(), Mean(all_positions)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        return self.pooling(states, attention_mask)


class Encoder(nn.Module):
    """torch's encoder over [row, position, feature], with `batch_first` right or wrong."""

    def __init__(self, batch_first: bool):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=batch_first)
        self.embed = nn.Embedding(256, WIDTH)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.encoder(self.embed(input_ids))


class Wrapped(nn.Module):
    """BERT whose mask is first passed through `change`."""

    def __init__(self, change: Callable[[Tensor], Tensor | None]):
        super().__init__()
        self.bert, self.change = bert(), change

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = self.change(attention_mask)
        return self.bert(input_ids, attention_mask=mask).last_hidden_state


def bert() -> BertModel:
    small = {k: v for k, v in SMALL.items() if k != "layerdrop"}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=256, initializer_range=0.1, **small, **dropout)
    return BertModel(config, add_pooling_layer=False)


def gpt2() -> GPT2LMHeadModel:
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes = {"vocab_size": 256, "n_positions": 512, "n_embd": WIDTH, "n_layer": 2, "n_head": 2}
    config = GPT2Config(**sizes, **no_dropout, bos_token_id=0, eos_token_id=0, use_cache=False)
    return GPT2LMHeadModel(config)


def next_byte(model: nn.Module, batch: Any) -> Tensor:
    """Return the mean loss in nats of predicting each byte from the bytes before it."""
    ids = batch["input_ids"] if isinstance(batch, Mapping) else batch
    out = model(**batch) if isinstance(batch, Mapping) else model(batch)
    logits = out if isinstance(out, Tensor) else out.logits
    return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def train(model: nn.Module, batches: list[Any], steps: int, rate=0.01) -> nn.Module:
    """Take Adam steps on next-byte prediction, and return the model in evaluation mode."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    model.train()
    for step in range(steps):
        optimizer.zero_grad()
        next_byte(model, batches[step % len(batches)]).backward()
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return model.eval()


def see(model: nn.Module, batches: list[Any]) -> nn.Module:
    """Update running statistics on the batches, and return the model in evaluation mode."""
    with torch.no_grad():
        model.train()
        for batch in 20 * batches:
            model(batch) if isinstance(batch, Tensor) else model(**batch)
    return model.eval()


def group_norm(faulty: bool) -> Case:
    norm = "group" if faulty else "layer"
    return Case(Wav2Vec2Model(Wav2Vec2Config(**SPEECH, feat_extract_norm=norm)), sounds())


def convolution(faulty: bool) -> Case:
    if faulty:
        kwargs = {**SPEECH, "conformer_conv_dropout": 0.0, "feat_extract_norm": "layer"}
        model = Wav2Vec2ConformerModel(Wav2Vec2ConformerConfig(**kwargs))
        return Case(see(model, sounds()), sounds())
    kwargs = {**SPEECH, "conformer_conv_dropout": 0.0, "feature_projection_input_dim": 8}
    return Case(Wav2Vec2BertModel(Wav2Vec2BertConfig(**kwargs)), filter_banks())


def batch_norm_over_padding(faulty: bool) -> Case:
    config = HubertConfig(**SPEECH, feat_extract_norm="layer", conv_pos_batch_norm=faulty)
    return Case(HubertModel(config), sounds())


def forgotten_mask(faulty: bool) -> Case:
    return Case(Wrapped((lambda mask: None) if faulty else (lambda mask: mask)), text_batches())


def inverted_mask(faulty: bool) -> Case:
    change = (lambda mask: 1 - mask) if faulty else (lambda mask: mask)
    return Case(Wrapped(change), text_batches())


def mean_over_padding(faulty: bool) -> Case:
    return Case(Embedder(all_positions=faulty), text_batches())


def left_padding(faulty: bool) -> Case:
    def with_positions(model, batch):
        places = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        return model(**batch, position_ids=places)

    arguments = {} if faulty else {"forward": with_positions}
    return Case(gpt2(), text_batches(side="left"), arguments)


def sees_the_next_token(faulty: bool) -> Case:
    return Case(Tiny(ahead=1 if faulty else 0), text_batches(), {"causal": True})


def norm_over_time(faulty: bool) -> Case:
    def norm():
        return normlab.make_norm("in" if faulty else "ln", WIDTH)

    return Case(Tiny(norm, ahead=0), text_batches(), {"causal": True})


def stale_statistics(faulty: bool) -> Case:
    batches = texts()
    model = Tiny(lambda: Transposed(nn.BatchNorm1d(WIDTH)))
    average = AveragedModel(model)
    for _ in range(6):
        train(model, batches, 10, rate=0.2)
        average.update_parameters(model)
    if not faulty:
        update_bn(batches, average)
    return Case(average.module.eval(), batches, NOT_CAUSAL)


def channels_are_positions(faulty: bool) -> Case:
    def norm():
        return nn.BatchNorm1d(LENGTH) if faulty else Transposed(nn.BatchNorm1d(WIDTH))

    return Case(see(Tiny(norm), texts()), texts(), NOT_CAUSAL)


def layer_norm_over_time(faulty: bool) -> Case:
    def norm():
        return Transposed(nn.LayerNorm(LENGTH)) if faulty else nn.LayerNorm(WIDTH)

    return Case(Tiny(norm), text_batches(), NOT_CAUSAL)


def batch_first(faulty: bool) -> Case:
    return Case(Encoder(batch_first=not faulty), texts(), NOT_CAUSAL)


def weak_mask(faulty: bool) -> Case:
    return Case(Tiny(forbidden=-10.0 if faulty else -math.inf), text_batches(), NOT_CAUSAL)


ATTENTION = r"bert\.encoder\.layer\.0\.attention(\.self)?"
PAIRS = {
    "group norm over time": Pair(
        group_norm, "padding", r"feature_extractor\.conv_layers\.0\.layer_norm"
    ),
    "convolution over padding": Pair(
        convolution, "padding", r"encoder\.layers\.0\.conv_module\.depthwise_conv"
    ),
    "batch norm over padding": Pair(
        batch_norm_over_padding, "modes", r"encoder\.pos_conv_embed\.batch_norm", "look"
    ),
    "mask forgotten": Pair(forgotten_mask, "padding", ATTENTION),
    "mask inverted": Pair(inverted_mask, "padding", ATTENTION),
    "mean over padding": Pair(mean_over_padding, "padding", r"pooling"),
    "left padding without positions": Pair(left_padding, "padding", r"transformer(\.wpe)?"),
    "sees the next token": Pair(sees_the_next_token, "future", r"blocks\.0\.attention"),
    "instance norm in a decoder": Pair(norm_over_time, "future", r"blocks\.0\.norm1"),
    "stale statistics": Pair(stale_statistics, "statistics", r"blocks\.\d\.norm\d\.norm", "look"),
    "channels are positions": Pair(channels_are_positions, "norms", r"blocks\.\d\.norm\d", "look"),
    "layer norm over time": Pair(layer_norm_over_time, "padding", r"blocks\.0\.norm1(\.norm)?"),
    "batch_first mixed up": Pair(batch_first, "batch_mates", r"encoder\.layers\.0\.self_attn"),
    "mask of -10": Pair(weak_mask, "padding", r"blocks\.0\.attention", "look"),
}


def state(model: nn.Module, batches: list[dict[str, Tensor]]) -> dict[str, Any]:
    """Return the state that an inspection must not change.

    Python's random state is left out, because the type checks of the tests draw from it.
    """

    def copied(x: Any) -> Any:
        if isinstance(x, list | tuple):
            return [copied(each) for each in x]
        return (id(x), x.clone()) if isinstance(x, Tensor) else None

    named = [*model.named_parameters(), *model.named_buffers()]
    return {
        "tensors": {name: (copied(x), copied(x.grad), x.requires_grad) for name, x in named},
        "modules": {
            name: (m.training, len(m._forward_hooks), len(m._forward_pre_hooks), [*vars(m)])
            for name, m in model.named_modules()
        },
        "lists": [[copied(x) for x in vars(m).values()] for m in model.modules()],
        "inputs": copied([[*batch.values()] for batch in batches]),
        "random": (torch.get_rng_state(), np.random.get_state()[1].copy()),
        "settings": (torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "function": F.conv1d,
    }


def same(a: Any, b: Any) -> bool:
    """Return whether two states are equal, bit for bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool((a == b).all()) if isinstance(a, Tensor | np.ndarray) else a == b


def case(name: str, faulty: bool) -> Case:
    """Build a pair's faulty model, or its twin, from a fixed seed."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        built = PAIRS[name].build(faulty)
    return built._replace(model=built.model.eval())
