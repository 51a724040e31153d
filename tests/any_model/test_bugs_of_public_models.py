"""Bugs reported for public models, rebuilt as small models, each with a correct twin."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.any_model.pairs import WIDTH, Case, Tiny, masked, text_batches, texts
from tests.any_model.rebuilt_bugs import Causal, RebuiltBug, built, inspected
from tests.any_model.toys import Embedded, embedded, mean


def lstm_over_rows(faulty: bool) -> Case:
    return embedded(lambda m, x, _: m.lstm(x)[0], lstm=nn.LSTM(WIDTH, 8, batch_first=not faulty))


def causal_over_rows(faulty: bool) -> Case:
    def attend(_, x: Tensor, mask: Tensor) -> Tensor:
        x = x.transpose(0, 1) if faulty else x
        y = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return y.transpose(0, 1) if faulty else y

    return embedded(attend)


def running_mean_over_rows(faulty: bool) -> Case:
    def center(_, x: Tensor, mask: Tensor) -> Tensor:
        if not faulty:
            return x
        means = mean(x, mask).cumsum(0) / torch.arange(1, len(x) + 1)[:, None]
        return x - means[:, None]

    return embedded(center)


def mask_of_the_first_row(faulty: bool) -> Case:
    def attend(_, x: Tensor, mask: Tensor) -> Tensor:
        mask = mask[:1].expand(len(x), -1) if faulty else mask
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask[:, None, :].bool())

    return embedded(attend)


def sorted_rows(faulty: bool) -> Case:
    def sort(_, x: Tensor, mask: Tensor) -> Tensor:
        order = mask.sum(1).argsort(descending=True, stable=True)
        return mean(x, mask)[order][slice(None) if faulty else order.argsort()]

    case = embedded(sort)
    return case._replace(batches=[{k: x[[1, 0, 2, 3]] for k, x in b.items()} for b in case.batches])


def nested_encoder(faulty: bool) -> Case:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)

    def encode(m, x: Tensor, mask: Tensor) -> Tensor:
        y = m.encoder(x, src_key_padding_mask=mask == 0)
        return y + m.conv(x.mT).mT if faulty else y

    convolution = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
    return embedded(encode, encoder=nn.TransformerEncoder(layer, 2), conv=convolution)


class Seq2Seq(nn.Module):
    """`nn.Transformer` whose decoder gets the source's padding mask, or does not."""

    def __init__(self, faulty: bool):
        super().__init__()
        self.faulty, self.embed = faulty, nn.Embedding(256, WIDTH)
        self.transformer = nn.Transformer(WIDTH, 2, 1, 1, 32, batch_first=True)

    def forward(self, src: Tensor, tgt: Tensor, src_key_padding_mask: Tensor) -> Tensor:
        memory = None if self.faulty else src_key_padding_mask
        given = {"src_key_padding_mask": src_key_padding_mask, "memory_key_padding_mask": memory}
        later = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        return self.transformer(self.embed(src), self.embed(tgt), tgt_mask=later, **given)


def memory_mask(faulty: bool) -> Case:
    mask, ids = masked(), texts()
    batch = {"src": ids[0] * mask, "tgt": ids[1][:, :7], "src_key_padding_mask": mask == 0}
    return Case(Seq2Seq(faulty), [batch])


def pooled_output(faulty: bool) -> Case:
    def outputs(_, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        return {"token_embeddings": x, "sentence_embedding": x.mean(1) if faulty else mean(x, mask)}

    return embedded(outputs)


def quantized(faulty: bool) -> Case:
    def quantize(_, x: Tensor, mask: Tensor) -> Tensor:
        x = torch.quantize_per_tensor(x.float(), 0.05, 0, torch.qint8).dequantize()
        return x + (x.mean(1) if faulty else mean(x, mask))[:, None]

    return embedded(quantize)


def odd_length(faulty: bool) -> Case:
    def attend(_, x: Tensor, mask: Tensor) -> Tensor:
        mask = mask[:, None, :].bool()
        if faulty and x.shape[1] % 32 == 1:
            mask = torch.ones_like(mask)
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    return embedded(attend)


def no_causal_mask(faulty: bool) -> Case:
    return Case(Tiny(ahead=None if faulty else 0), text_batches())


class Switching(nn.Module):
    """Attends to padding until its first short input sets a flag permanently."""

    def __init__(self, faulty: bool):
        super().__init__()
        self.faulty, self.embed, self.full = faulty, nn.Embedding(256, WIDTH), True

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        if input_ids.shape[1] < 20:
            self.full = False
        x = self.embed(input_ids)
        y = x.mean(1) if self.full and self.faulty else mean(x, attention_mask)
        return x + y[:, None]


def switched_for_good(faulty: bool) -> Case:
    return Case(Switching(faulty), text_batches())


class Growing(nn.Module):
    """Adds the number of calls so far, or 1."""

    def __init__(self, faulty: bool):
        super().__init__()
        self.faulty, self.embed, self.total = faulty, nn.Embedding(256, WIDTH), 0.0

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.embed(input_ids)
        self.total = self.total + 1.0 if self.faulty else 1.0
        return x + self.total


class Noisy(nn.Module):
    """Adds noise from its own generator, or a constant."""

    def __init__(self, faulty: bool):
        super().__init__()
        self.faulty, self.embed = faulty, nn.Embedding(256, WIDTH)
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        noise = torch.rand(1, generator=self.generator)
        return self.embed(input_ids) + (noise if self.faulty else 1.0)


class Images(nn.Module):
    """Counts an image's placeholder tokens, and puts its features there."""

    def __init__(self, faulty: bool):
        super().__init__()
        self.faulty, self.embed = faulty, nn.Embedding(256, WIDTH)
        self.config = type("Config", (), {"to_dict": lambda _: {"image_token_id": 250}})()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, features: Tensor) -> Tensor:
        places = input_ids == 250
        if int(places.sum()) != len(features) * 2:
            raise ValueError("image features and image tokens do not match")
        x = self.embed(input_ids).masked_scatter(places[..., None], features)
        return x + (x.mean(1) if self.faulty else mean(x, attention_mask))[:, None]


def placeholders(faulty: bool) -> Case:
    (batch,) = text_batches(count=1)
    batch["input_ids"][:, 1:3] = 250
    return Case(Images(faulty), [batch | {"features": torch.randn(4, 2, WIDTH)}])


def causal(sound: Callable[[Tensor], Tensor], wrong: Callable[[Tensor], Tensor]) -> Any:
    """Return a function that builds a pair on rows of 128 bytes."""

    def build(faulty: bool) -> Case:
        ids = texts(rows=3, length=128, count=1)[0]
        return Case(Causal(wrong if faulty else sound), [ids], {"causal": True})

    return build


def running(x: Tensor) -> Tensor:
    return x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]


def chunks(size: int) -> Callable[[Tensor], Tensor]:
    """Return a function that replaces each position by the mean of its whole chunk."""

    def mix(x: Tensor) -> Tensor:
        whole = x.shape[1] // size * size
        means = x[:, :whole].unflatten(1, (-1, size)).mean(2).repeat_interleave(size, 1)
        return torch.cat([means, x[:, whole:]], 1)

    return mix


def filtered(pad: int) -> Callable[[Tensor], Tensor]:
    """Return a convolution by Fourier transform: causal if padded, otherwise circular."""

    def mix(x: Tensor) -> Tensor:
        n = x.shape[1] + pad * x.shape[1]
        kernel = 0.9 ** torch.arange(x.shape[1], dtype=x.dtype)
        y = torch.fft.rfft(x, n, 1) * torch.fft.rfft(kernel, n)[:, None]
        return torch.fft.irfft(y, n, 1)[:, : x.shape[1]]

    return mix


def without_its_mask(faulty: bool) -> Case:
    def attend(x: Tensor) -> Tensor:  # the other path of an attention forgets the causal mask
        scores = x @ x.mT / WIDTH
        later = torch.ones_like(scores).triu(1).bool()
        return (scores if faulty else scores.masked_fill(later, -math.inf)).softmax(-1) @ x

    return Case(Causal(attend), texts(count=1), {"causal": True})


def padding_is_the_unknown_token(faulty: bool) -> Case:
    def attend(_, x: Tensor, mask: Tensor) -> Tensor:
        allowed = torch.ones_like(mask) if faulty else mask
        scores = (x @ x.mT / WIDTH).masked_fill(allowed[:, None] == 0, -math.inf)
        return scores.softmax(-1) @ x

    return embedded(attend)


def slopes_of_positions(faulty: bool) -> Case:
    def attend(_, x: Tensor, mask: Tensor) -> Tensor:
        places = torch.arange(x.shape[1]).expand_as(mask) if faulty else mask.cumsum(1)
        bias = 0.5 * places[:, None].to(x.dtype)  # grows with the position, as in ALiBi
        scores = (x @ x.mT / WIDTH + bias).masked_fill(mask[:, None] == 0, -math.inf)
        return scores.softmax(-1) @ x + places[..., None] / 10

    return Case(Embedded(attend), text_batches(side="left"))


def reward_at_the_first_padding(faulty: bool) -> Case:
    def score(_, x: Tensor, mask: Tensor) -> Tensor:
        last = mask.sum(1) if faulty else mask.sum(1) - 1
        return x[torch.arange(len(x)), last.clamp(max=x.shape[1] - 1)]

    return embedded(score)


def two_convolutions(faulty: bool) -> Case:
    def convolve(m, x: Tensor, mask: Tensor) -> Tensor:
        for conv in (m.first, m.second):
            x = x if faulty else x * mask[..., None]
            x = conv(x.mT).mT
        return x

    first, second = (nn.Conv1d(WIDTH, WIDTH, 5, padding=2) for _ in range(2))
    return embedded(convolve, first=first, second=second)


def cache_of_rows(faulty: bool) -> Case:
    def center(_, x: Tensor, mask: Tensor) -> Tensor:
        y = mean(x, mask)
        return x - (y.mean(0) if faulty else y[:, None])

    return embedded(center)


BUGS = {
    "LSTM without batch_first": RebuiltBug(lstm_over_rows, "batch_mates", "lstm: LSTM"),
    "causal attention over rows": RebuiltBug(causal_over_rows, "batch_mates"),
    "running mean over rows": RebuiltBug(running_mean_over_rows, "batch_mates"),
    "mask of the first row for all": RebuiltBug(mask_of_the_first_row, "batch_mates"),
    "rows sorted but not restored": RebuiltBug(sorted_rows, "batch_mates", "in reverse order"),
    "nested tensors": RebuiltBug(nested_encoder, "padding", "conv: Conv1d"),
    "no memory mask": RebuiltBug(memory_mask, "padding", "multihead_attn"),
    "pooled output": RebuiltBug(pooled_output, "padding", "sentence_embedding changes"),
    "quantization": RebuiltBug(quantized, "padding", "Not in float64: aten::quantize_per_tensor"),
    "a length of 1 modulo 32": RebuiltBug(odd_length, "padding", "by 105 to 129 positions"),
    "no causal mask": RebuiltBug(no_causal_mask, "future", "causal=True", "look"),
    "flag set permanently": RebuiltBug(switched_for_good, "padding"),
    "state kept between calls": RebuiltBug(
        lambda faulty: Case(Growing(faulty), text_batches()), "forward", "keeps state", "look"
    ),
    "noise from a private generator": RebuiltBug(
        lambda faulty: Case(Noisy(faulty), text_batches()), "forward", "from one run to the next"
    ),
    "means of whole blocks of 64": RebuiltBug(causal(running, chunks(64)), "future"),
    "means of whole chunks of 16": RebuiltBug(causal(running, chunks(16)), "future"),
    "a spectral filter that wraps around": RebuiltBug(causal(filtered(1), filtered(0)), "future"),
    "routing by the sequence's mean": RebuiltBug(
        causal(running, lambda x: x.mean(1, keepdim=True).expand_as(x)), "future"
    ),
    "a path without the causal mask": RebuiltBug(without_its_mask, "future"),
    "mask ignored": RebuiltBug(padding_is_the_unknown_token, "padding"),
    "slopes by position, padded on the left": RebuiltBug(slopes_of_positions, "padding"),
    "score at the first padding": RebuiltBug(reward_at_the_first_padding, "padding"),
    "image placeholders": RebuiltBug(placeholders, "padding"),
    "two convolutions": RebuiltBug(two_convolutions, "padding", "first: Conv1d"),
    "mean over rows": RebuiltBug(cache_of_rows, "batch_mates"),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_reported_fault_is_found_and_its_correct_twin_is_fine(name):
    bug = BUGS[name]
    found = inspected(built(bug, True), bug.question).findings[bug.question]
    assert found.verdict == bug.verdict and bug.says in found.answer, found
    findings = inspected(built(bug, False), bug.question).findings.values()
    assert [str(each) for each in findings if each.verdict in ("failed", "broken", "look")] == []
