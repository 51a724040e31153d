"""Small models, batches and helpers that several tests share."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normlab
from tests.any_model.pairs import NOT_CAUSAL, WIDTH, Case, masked, text_batches, texts

QUICK = ("forward", "padding", "batch_mates", "future", "modes")
HARM = ("failed", "broken", "look")
X = torch.randn(4, 6, WIDTH, generator=torch.Generator().manual_seed(0))
IDS, MASK = texts()[0], masked()
FAULTY = pytest.mark.parametrize("faulty", [True, False])


def finding(model: nn.Module, question: str, batch: Any = X, **options: Any) -> Any:
    """Return the finding on one question about a model in eval mode."""
    torch.manual_seed(0)
    return normlab.inspect(model.eval(), [batch], checks=[question], **options).findings[question]


def verdicts(report: Any) -> dict[str, str]:
    return {finding.name: finding.verdict for finding in report.findings.values()}


def accused(model: nn.Module, batch: Any, **options: Any) -> dict[str, str]:
    """Return the answers that find fault with a model."""
    report = normlab.inspect(model.eval(), [batch], **(NOT_CAUSAL | options))
    return {each.name: str(each) for each in report.findings.values() if each.verdict in HARM}


def mean(x: Tensor, mask: Tensor) -> Tensor:
    weights = mask[..., None].to(x.dtype)
    return (x * weights).sum(1) / weights.sum(1)


class Embedded(nn.Module):
    """Embeds bytes, and applies a function to the embeddings and the mask."""

    def __init__(self, function: Callable[..., Any], **modules: nn.Module):
        super().__init__()
        self.embed, self.function = nn.Embedding(256, WIDTH), function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        return self.function(self, self.embed(input_ids), attention_mask)


def embedded(function: Callable[..., Any], **modules: nn.Module) -> Case:
    return Case(Embedded(function, **modules), text_batches())


class Encoder(nn.Module):
    """An embedding and a Transformer encoder, with or without its mask."""

    def __init__(self, masked=True):
        super().__init__()
        self.masked = masked
        self.embedding = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, input_ids, attention_mask):
        padding = attention_mask == 0 if self.masked else None
        return self.encoder(self.embedding(input_ids), src_key_padding_mask=padding)


class Normed(nn.Module):
    """A linear layer on [rows, positions, features], then a norm on [rows, features, positions].

    Each pass writes to its statistics and weights, as in some models.
    """

    def __init__(self, norm=None, wrong=None):
        super().__init__()
        self.embedding = nn.Embedding(50, 8, max_norm=0.5)
        self.norm, self.wrong = norm or nn.BatchNorm1d(8), wrong
        self.register_buffer("passes", torch.zeros(()))
        self.cache = [torch.zeros(2)]

    def forward(self, input_ids, attention_mask=None):
        self.passes += 1
        self.cache[0] += 1
        self.cache.append(self.passes)
        x = self.norm(self.embedding(input_ids).mT).mT
        if self.wrong == "random":
            x = F.dropout(x, 0.5, training=True)
        return x * torch.nan if self.wrong == "nan" else x


class Turned(nn.Module):
    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.mT).mT


class Pooling(nn.Module):
    """Adds the mean over real positions, given by a mask of some name and kind."""

    def __init__(self, read: Any):
        super().__init__()
        self.embed, self.read = nn.Embedding(256, WIDTH), read

    def pooled(self, ids: Tensor, real: Tensor) -> Tensor:
        x = self.embed(ids)
        return x + mean(x, real)[:, None]


def pooling(name: str, read: Any) -> nn.Module:
    """Return a model with a named second input; `read(mask, ids)` returns the real positions."""
    scope: dict[str, Any] = {"Pooling": Pooling}
    exec(
        "class Named(Pooling):\n"
        f"    def forward(self, input_ids, {name}):\n"
        f"        return self.pooled(input_ids, self.read({name}, input_ids))",
        scope,
    )
    torch.manual_seed(0)
    return scope["Named"](read)


def mean_over(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the positions that a mask marks, to be added to each of them."""
    return mean(x, mask)[:, None]


def masked_numbers() -> dict[str, Tensor]:
    """Return three padded rows of 12 positions with 4 features."""
    mask = (torch.arange(12) < torch.tensor([[12], [9], [7]])).long()
    return {"x": torch.randn(3, 12, 4) * mask[..., None], "attention_mask": mask}
