"""Unusual input and state conventions: correct models pass, and their faulty twins are found."""

from collections import OrderedDict, deque
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import OPTConfig, OPTForCausalLM

import normlab
from normlab.any_model.tracing.restore import unchanged
from normlab.errors import UserError
from tests.any_model.pairs import NOT_CAUSAL, WIDTH, bert, gpt2, masked, text_batches, texts
from tests.any_model.test_reported import Embedded, mean

HARM = ("failed", "broken", "look")
IDS, MASK = texts()[0], masked()


def accused(model: nn.Module, batch: Any, **options: Any) -> dict[str, str]:
    options = NOT_CAUSAL | options
    found = normlab.inspect(model.eval(), [batch], **options).findings.values()
    return {each.name: str(each) for each in found if each.verdict in HARM}


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


ROWS = {
    "padding, all rows padded": masked((24, 17, 12, 9))[:, :24] * (torch.arange(24) < 22),
    "padding, one row whole": MASK,
}


@pytest.mark.parametrize("real", ROWS.values(), ids=ROWS)
def test_a_padding_mask_may_be_true_for_padding(real):
    model = pooling("padding_mask", lambda mask, _: ~mask)
    assert accused(model, {"input_ids": IDS * real, "padding_mask": real == 0}) == {}
    leaking = pooling("padding_mask", lambda mask, _: torch.ones_like(mask))
    assert "padding" in accused(leaking, {"input_ids": IDS * real, "padding_mask": real == 0})


def test_the_kind_of_a_mask_can_be_said():
    model, ids = pooling("keep", lambda mask, _: ~mask), IDS + 1  # no value shows what padding is
    mask = MASK == 0
    assert accused(model, {"input_ids": ids, "keep": mask}, mask={"keep": "padding"}) == {}
    with pytest.raises(ValueError, match=r'row 0 is all padding; .* or say mask="padding"'):
        accused(model, {"input_ids": ids, "keep": mask}, mask={"keep": "real"})
    named = pooling("mask", lambda mask, _: ~mask)
    assert accused(named, {"input_ids": ids, "mask": mask}, mask="padding") == {}


def test_lengths_may_be_shares_of_the_longest():
    def real(shares, ids):
        return torch.arange(ids.shape[1]) < (shares * ids.shape[1]).round()[:, None]

    batch = {"input_ids": IDS * MASK, "wav_lens": torch.tensor([24, 17, 12, 9]) / 24}
    model = pooling("wav_lens", real)
    assert accused(model, batch) == {}
    assert "of up to 24 positions" in normlab.inspect(model, [batch], checks="padding").title
    assert "padding" in accused(pooling("wav_lens", lambda s, ids: torch.ones_like(ids)), batch)


class ByTime(nn.Module):
    """A mean over the real frames of an input `[B, D, T]`."""

    def __init__(self, faulty: bool, width: int):
        super().__init__()
        self.faulty, self.linear = faulty, nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        real = torch.arange(x.shape[2]) < length[:, None]
        real = torch.ones_like(real) if self.faulty else real
        return self.linear(x) - mean(x.mT, real)[..., None]


@pytest.mark.parametrize("width", [8, 32])
def test_positions_are_where_lengths_fit(width):
    x = torch.randn(4, width, 24) * MASK[:, None]
    batch = {"x": x, "length": MASK.sum(1)}
    assert accused(ByTime(False, width), batch) == {}
    assert "padding" in accused(ByTime(True, width), batch)
    title = normlab.inspect(ByTime(False, width), [batch], checks="forward").title
    assert "of up to 24 positions" in title


def test_rows_may_be_on_the_second_axis():
    lstm, x = nn.LSTM(8, 8), torch.randn(6, 6, 8)
    wrapped = nn.Sequential()
    wrapped.lstm = lstm
    wrapped.forward = lambda x: lstm(x)[0]
    assert accused(wrapped, {"x": x}, rows=1) == {}
    assert "batch_mates" in accused(wrapped, {"x": x}, rows=0)


@pytest.mark.parametrize("first", [True, False])
def test_the_rows_of_a_bare_lstm_are_where_its_batch_first_says(first):
    lstm, x = nn.LSTM(WIDTH, WIDTH, batch_first=first), torch.randn(4, 6, WIDTH)
    report = normlab.inspect(lstm, [x], causal=True)  # its last state is no position's output
    assert [each for each in report.findings.values() if each.verdict in HARM] == []
    rows, axis = (4, 0) if first else (6, 1)
    assert f" of {rows} on axis {axis} (batch_first={first}), of up to {10 - rows}" in report.title
    other = normlab.inspect(lstm, [x], rows=1 - axis, checks=["batch_mates"])
    assert f"on axis {1 - axis}, of up to" in other.title
    assert other.findings["batch_mates"].verdict == "broken"
    with pytest.raises(
        UserError, match=rf"is one row to a LSTM: .* \[{'rows' if first else 'pos'}"
    ):
        normlab.inspect(lstm, [x[0]])


class Features(nn.Module):
    """Adds the mean over real positions to a dict of features, like sentence-transformers."""

    def __init__(self, leaks: bool):
        super().__init__()
        self.embed, self.leaks = nn.Embedding(256, WIDTH), leaks

    def forward(self, features: dict[str, Tensor], **options: Any) -> dict[str, Tensor]:
        tokens, mask = self.embed(features["input_ids"]), features["attention_mask"]
        real = torch.ones_like(mask) if self.leaks else mask
        return features | {"token_embeddings": tokens, "sentence_embedding": mean(tokens, real)}


def test_a_model_may_take_its_inputs_as_one_dict():
    assert accused(Features(False), text_batches()[0]) == {}
    assert (
        "the output sentence_embedding changes by"
        in accused(Features(True), text_batches()[0])["padding"]
    )


def test_every_mask_is_padded_as_it_marks_padding():
    class Two(Embedded):
        def forward(self, input_ids, attention_mask, pooling_mask):
            x = self.embed(input_ids)
            return mean(x, attention_mask) + mean(x, pooling_mask)

    torch.manual_seed(0)
    for mask in (MASK, torch.ones_like(MASK)):
        batch = {"input_ids": IDS * mask, "attention_mask": mask, "pooling_mask": mask}
        assert accused(Two(None), batch) == {}


def test_a_batch_norm_of_rows_is_one_for_every_seed():
    for seed in range(8):
        torch.manual_seed(seed)
        found = normlab.inspect(nn.BatchNorm1d(6), torch.randn(2, 6), checks="norms").findings[
            "norms"
        ]
        assert found.verdict == "fine" and "BatchNorm1d over batch" in found.answer


class Normed(nn.Module):
    """A norm with running statistics over `[B, T, D]` or `[B, D, T]`."""

    def __init__(self, norm: nn.Module, first: bool):
        super().__init__()
        self.norm, self.first = norm, first

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.mT).mT if self.first else self.norm(x)


class LastBatchNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.full((width,), 0.9))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.running_mean) * (self.running_var + 1e-5).rsqrt()


@pytest.mark.parametrize("length", [12, WIDTH])
@pytest.mark.parametrize(
    "norm", [LastBatchNorm(WIDTH), normlab.make_norm("bn", WIDTH)], ids=["last", "normlab"]
)
def test_statistics_over_the_last_axis_are_compared(norm, length):
    x = torch.randn(4, length, WIDTH)
    norm.running_var.fill_(0.9)
    for offset, verdict in ((0.0, "fine"), (50.0, "look")):
        model = Normed(norm, False)
        report = normlab.inspect(model, x + offset, checks="statistics")
        assert report.findings["statistics"].verdict == verdict


@pytest.mark.parametrize("name", ["brn", "pn", "mabn", "un"])
def test_running_deviations_and_mean_squares_are_compared_too(name):
    norm, x = normlab.make_norm(name, WIDTH), torch.randn(4, 12, WIDTH)
    buffer = next(b for n, b in norm.named_buffers() if n in ("running_std", "running_square"))
    buffer.fill_(0.9)
    for size, verdict in ((1.0, "fine"), (50.0, "look")):
        report = normlab.inspect(norm, size * x, checks="statistics")
        found = report.findings["statistics"]
        assert (found.verdict, "stale: " in found.answer) == (verdict, size > 1), found


@pytest.mark.parametrize(("size", "verdict"), [(1.0, "fine"), (20.0, "look")])
def test_statistics_of_a_variance_below_eps_match(size, verdict):
    norm, x = nn.BatchNorm1d(WIDTH, eps=1e-5, momentum=None), 1e-3 * torch.randn(8, WIDTH, 12)
    norm(x)
    report = normlab.inspect(norm, size * x, checks="statistics")
    assert report.findings["statistics"].verdict == verdict, report


def test_statistics_that_match_were_updated_whatever_a_counter_says():
    norm = nn.InstanceNorm2d(4, track_running_stats=True)
    x = torch.randn(4, 4, 8, 8) * 2 + 3
    norm(x)
    norm.running_mean.copy_(x.mean((0, 2, 3))), norm.running_var.copy_(x.var((0, 2, 3)))
    assert int(norm.num_batches_tracked) == 0
    assert normlab.inspect(norm, x, checks="statistics").findings["statistics"].verdict == "fine"


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_token_that_a_model_adds_may_be_at_the_other_end(side):
    def add(_, x, mask):
        y = x + mean(x, mask)[:, None]
        added = mean(x, mask)[:, None]
        return torch.cat([added, y] if side == "left" else [y, added], 1)

    model = Embedded(add)
    assert accused(model, text_batches(side=side)[0]) == {}
    leaking = Embedded(lambda m, x, mask: add(m, x, torch.ones_like(mask)))
    assert "padding" in accused(leaking, text_batches(side=side)[0])


class Prompted(nn.Module):
    """Learned tokens in front of a language model's input, before its left padding (as in PEFT)."""

    def __init__(self, base: nn.Module):
        super().__init__()
        self.base, self.prompt = base, nn.Parameter(torch.randn(4, WIDTH))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        rows, count = len(input_ids), len(self.prompt)
        words = self.base.get_input_embeddings()(input_ids)
        mask = torch.cat([attention_mask.new_ones(rows, count), attention_mask], 1)
        x = torch.cat([self.prompt.expand(rows, -1, -1), words], 1)
        return self.base(inputs_embeds=x, attention_mask=mask).logits


def opt() -> nn.Module:
    sizes = {"hidden_size": WIDTH, "word_embed_proj_dim": WIDTH, "ffn_dim": 32, "vocab_size": 256}
    parts = {"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 512}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return OPTForCausalLM(OPTConfig(**sizes, **parts, **ids))


def test_prompt_tokens_may_stand_before_the_padding_if_positions_are_counted_by_the_mask():
    left, right = (text_batches(side=side)[0] for side in ("left", "right"))
    assert accused(Prompted(opt()), left) == {}
    counted_by_index = Prompted(gpt2())
    found = normlab.inspect(counted_by_index.eval(), [left], checks=["padding"])
    finding = found.findings["padding"]
    assert (finding.verdict, finding.module) == ("broken", "base.transformer.wpe")
    assert accused(counted_by_index, right) == {}


def test_constants_rounded_to_float32_do_not_leak():
    angles = torch.outer(torch.arange(600.0), 10000 ** -(torch.arange(8.0) / 8))

    def rotate(_, x, mask):
        x = x.double()
        turn = torch.polar(torch.ones(8).double(), angles[: x.shape[1]].double())
        q = torch.view_as_complex(x.unflatten(-1, (8, 2))) * turn
        scores = (q @ q.mH).real.masked_fill(mask[:, None] == 0, -torch.inf)
        return scores.softmax(-1) @ x

    assert accused(Embedded(rotate), text_batches(side="left")[0]) == {}


class Frozen(OrderedDict):
    """A read-only dict, like the configs of diffusers."""

    def __setitem__(self, *_):
        raise TypeError("frozen")

    update = clear = pop = __delitem__ = __setitem__


class Holder:
    """Holds several kinds of state outside a module."""

    __slots__ = ("array", "deque", "generator", "lists", "number", "rng")

    def __init__(self):
        self.number, self.lists, self.deque = 0, [[1]], deque([1])
        self.array, self.rng = np.zeros(3), np.random.default_rng(0)
        self.generator = torch.Generator().manual_seed(1)

    def values(self):
        words = str([self.number, self.lists, self.deque, self.array, self.rng.bit_generator.state])
        return words, self.generator.get_state().tolist()


class Stateful(nn.Module):
    calls = 0

    def __init__(self):
        super().__init__()
        self.embed, self.cache, self.limits = nn.Embedding(256, WIDTH), Holder(), [Holder()]
        self.config = OrderedDict.__new__(Frozen)
        OrderedDict.__setitem__(self.config, "width", WIDTH)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        cache = self.cache
        cache.number += 1
        cache.lists[0].append(cache.number), cache.deque.append(1)
        cache.array += 1
        cache.rng.random(), torch.rand(1, generator=cache.generator), torch.rand(1)
        self.limits.append(1)
        type(self).calls += 1
        return self.embed(input_ids)


def test_state_outside_modules_is_restored_and_what_refuses_writes_is_left_alone():
    model, batch = Stateful().train(), text_batches()[0]
    before, random = model.cache.values(), torch.get_rng_state()
    normlab.inspect(model, [batch])
    assert model.training
    assert model.cache.values() == before and len(model.limits) == 1 and Stateful.calls == 0
    assert [*model.config.items()] == [("width", WIDTH)]
    assert torch.equal(random, torch.get_rng_state())


def test_a_step_that_fails_stops_no_other_and_is_said():
    class Locking(Stateful):
        def forward(self, input_ids, attention_mask):
            y = super().forward(input_ids, attention_mask)
            self.cache.array.flags.writeable = False
            return y

    model = Locking().train()
    random = torch.get_rng_state()
    model.cache.array = locked = np.zeros(3)
    with pytest.warns(UserWarning, match="cache.array: ValueError"), unchanged(model) as state:
        model.eval()
        locked += 1
        locked.flags.writeable = False
        model.limits.clear(), torch.rand(3)
    assert len(state.refused) == 1 and model.training and len(model.limits) == 1
    assert torch.equal(random, torch.get_rng_state())
    model.cache.array = np.zeros(3)
    with pytest.warns(UserWarning, match="not restored"):
        found = normlab.inspect(model, text_batches()).findings
    assert found["restore"].verdict == "failed"


def test_an_iterator_is_named_as_it_cannot_be_wound_back():
    model = bert()
    model.stream = (n for n in range(3))
    assert (
        "iterators cannot be rewound: stream (generator)"
        in normlab.inspect(model, text_batches(), checks="forward").title
    )
