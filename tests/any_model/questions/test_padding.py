"""Does padding change the output at real tokens?"""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import OPTConfig, OPTForCausalLM

import normlab
from tests.any_model.pairs import WIDTH, gpt2, text_batches
from tests.any_model.toys import (
    FAULTY,
    QUICK,
    Embedded,
    Encoder,
    Normed,
    accused,
    finding,
    masked_numbers,
    mean,
    mean_over,
    verdicts,
)


def test_a_model_that_masks_its_padding_is_fine(batch):
    report = normlab.inspect(Encoder(), [batch], causal=False)
    assert {*verdicts(report).values()} == {"fine", "does not apply"}
    changes = report.findings["padding"].values.values()
    assert max(change["in_model_dtype"] for change in changes) < 1e-5


def test_a_forgotten_mask_is_found_in_the_first_attention(batch):
    report = normlab.inspect(Encoder(masked=False), [batch], causal=False)
    found = report.findings["padding"]
    assert (found.verdict, found.module) == ("broken", "encoder.layers.0.self_attn")
    assert found.value > 0.01 and found.threshold == 1e-3
    assert report.findings["batch_mates"].verdict == "fine"


def test_a_change_caused_only_by_unusual_padding_values_is_worth_a_look(batch):
    class Convolution(Normed):
        def forward(self, input_ids, attention_mask):
            return self.norm(self.embedding(input_ids).mT).mT  # the padding's embedding is 0

    model = Convolution(nn.Conv1d(8, 8, 3, padding=1))
    model.embedding = nn.Embedding(50, 8, padding_idx=0)
    found = normlab.inspect(model, [batch], checks=["padding"]).findings["padding"]
    assert (found.verdict, found.module) == ("look", "norm")
    assert "with unusual values under the padding; norm: Conv1d, a conv" in found.answer


def test_a_model_of_fixed_length_gets_different_values_under_its_padding(batch):
    model = Normed(nn.LayerNorm(12))
    found = normlab.inspect(model, [batch], max_positions=5, checks=["padding"]).findings["padding"]
    assert (found.verdict, found.module) == ("broken", "norm")
    assert "One row of 4 positions, padded by 8; longer rows fail" in found.answer


def test_an_lstm_is_fine_only_if_forward_packs_its_rows():
    torch.manual_seed(0)
    lstm = nn.LSTM(8, 4, batch_first=True, bidirectional=True)

    def forward(model, batch):
        x, lengths = batch
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(model(packed)[0], batch_first=True, total_length=x.shape[1])[0]

    given = torch.randn(3, 10, 8), torch.tensor([6, 10, 3])
    found = normlab.inspect(lstm, [given], forward=forward, mask=1, checks=QUICK)
    assert verdicts(found)["padding"] == verdicts(found)["batch_mates"] == "fine"
    plain = normlab.inspect(lstm, [given[:1]], mask=torch.ones(3, 10), checks=["padding"])
    assert plain.findings["padding"].verdict == "broken"


class Sides(nn.Module):
    """Leaks padding only on the left, at lengths of 1 modulo 32."""

    def __init__(self, faulty):
        super().__init__()
        self.faulty = faulty

    def forward(self, x, attention_mask):
        odd = x.shape[1] % 32 == 1 and not bool(attention_mask[:, 0].all())
        real = torch.ones_like(attention_mask) if odd and self.faulty else attention_mask
        return x + mean_over(x, real)


@FAULTY
def test_a_leak_only_on_the_left_at_certain_lengths_is_found(faulty):
    report = normlab.inspect(Sides(faulty), masked_numbers(), checks="padding")
    found = report.findings["padding"]
    assert found.verdict == ("broken" if faulty else "fine"), found
    assert ("to 33 positions on the left" in found.answer) == faulty


class Implementations(nn.Module):
    """With one implementation of attention, it also pools over padding."""

    def __init__(self, faulty):
        super().__init__()
        self.config, self.faulty = SimpleNamespace(_attn_implementation="sdpa"), faulty

    def set_attn_implementation(self, name):
        self.config._attn_implementation = name

    def forward(self, x, attention_mask):
        eager = self.config._attn_implementation == "eager"
        everything = torch.ones_like(attention_mask)
        return x + mean_over(x, everything if eager and self.faulty else attention_mask)


@FAULTY
def test_each_attention_implementation_is_tried_and_the_original_restored(faulty):
    model = Implementations(faulty)
    found = normlab.inspect(model, masked_numbers(), checks="padding").findings["padding"]
    assert found.verdict == ("broken" if faulty else "fine"), found
    assert ("eager attention, padding by" in found.answer) == faulty
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_token_that_the_model_adds_at_either_end_is_not_a_leak(side):
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


def test_prompt_tokens_before_left_padding_leak_only_if_positions_ignore_the_mask():
    left, right = (text_batches(side=side)[0] for side in ("left", "right"))
    assert accused(Prompted(opt()), left) == {}
    counted_by_index = Prompted(gpt2())
    found = normlab.inspect(counted_by_index.eval(), [left], checks=["padding"])
    finding = found.findings["padding"]
    assert (finding.verdict, finding.module) == ("broken", "base.transformer.wpe")
    assert accused(counted_by_index, right) == {}


def test_constants_rounded_to_float32_are_not_a_leak():
    angles = torch.outer(torch.arange(600.0), 10000 ** -(torch.arange(8.0) / 8))

    def rotate(_, x, mask):
        x = x.double()
        turn = torch.polar(torch.ones(8).double(), angles[: x.shape[1]].double())
        q = torch.view_as_complex(x.unflatten(-1, (8, 2))) * turn
        scores = (q @ q.mH).real.masked_fill(mask[:, None] == 0, -torch.inf)
        return scores.softmax(-1) @ x

    assert accused(Embedded(rotate), text_batches(side="left")[0]) == {}


NOT_A_NUMBER, INFINITE, ZERO = (lambda x: x * torch.nan, lambda x: x / 0, lambda x: x * 0)


@pytest.mark.parametrize(
    ("alone", "padded", "says"),
    [
        (None, NOT_A_NUMBER, "the output becomes NaN (limit"),
        (None, INFINITE, "the output becomes infinite (limit"),
        (INFINITE, None, "the output is infinite before the change, but finite after it (limit"),
        (ZERO, None, "the output is 0 before the change, but not after it"),
    ],
)
def test_a_change_to_or_from_nan_infinity_or_0_is_explained(alone, padded, says):
    def change(_, x: Tensor, mask: Tensor) -> Tensor:
        function = padded if mask.shape[1] > 24 else alone
        return x if function is None else function(x)

    found = finding(Embedded(change), "padding", text_batches()[0])
    assert found.verdict == "broken" and found.answer.startswith(says), found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("share", "verdict"), [(1e-5, "look"), (0.3, "broken")])
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_change_at_special_lengths_is_found_in_every_dtype(dtype, share, verdict, side):
    class AtMultiples(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
            y = self.layer(x) * attention_mask[..., None].to(x.dtype)
            left = bool((attention_mask[:, 0] == 0).any())
            grows = left if side == "left" else not x.shape[1] % 32
            return y * (1 + share) if grows and x.shape[1] > 30 else y

    x, mask = torch.randn(4, 24, WIDTH).to(dtype), torch.ones(4, 24, dtype=torch.long)
    mask[1, 20:] = mask[2, 9:] = 0
    batch = {"x": x, "attention_mask": mask}
    found = normlab.inspect(AtMultiples().to(dtype), batch, checks=["padding"]).findings["padding"]
    assert found.verdict == verdict, found
    assert ("on the left" in found.answer) == (side == "left")
