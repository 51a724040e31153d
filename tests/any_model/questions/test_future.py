"""Do later tokens change the output at earlier positions?"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab
from tests.any_model.pairs import LENGTH, WIDTH, text_batches
from tests.any_model.toys import Embedded, Encoder, Normed


def later_tokens(model: nn.Module, **options: Any) -> Any:
    report = normlab.inspect(model.eval(), text_batches(), checks=["future"], **options)
    return report.findings["future"]


def average(_, x: Tensor, mask: Tensor) -> Tensor:
    return x + x.mean(1, keepdim=True)


def test_a_leak_is_only_worth_a_look_if_it_is_unknown_whether_the_model_is_causal():
    found = later_tokens(Embedded(average))  # it predicts no token of its vocabulary
    assert found.verdict == "look" and "set causal=True or causal=False" in found.answer
    assert "the output changes by " in found.answer and found.value > 0.1
    assert later_tokens(Embedded(average), causal=True).verdict == "broken"
    assert later_tokens(Embedded(average), causal=False).verdict == "does not apply"
    assert later_tokens(Embedded(lambda _, x, mask: x)).verdict == "fine"


def of_lstm(both_ways: bool) -> nn.Module:
    lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True, bidirectional=both_ways)
    return Embedded(lambda m, x, mask: m.lstm(x)[0], lstm=lstm)


def of_attention(marked: bool | None, size: int = 8) -> nn.Module:
    """Return a model whose attention declares itself causal, not causal, or neither."""
    part = nn.Linear(WIDTH, size)
    part.is_causal = marked
    return Embedded(lambda m, x, mask: m.part(average(m, x, mask)), part=part)


@pytest.mark.parametrize(
    ("model", "verdict", "says"),
    [
        (of_lstm(True), "fine", "modules say that it is not"),
        (of_lstm(False), "fine", "no leak"),
        (of_attention(False), "fine", "modules say that it is not"),
        (of_attention(False, 256), "look", "set causal="),  # one output per word of the vocabulary
        (of_attention(True), "broken", "part"),
        (of_attention(None), "look", "set causal="),
    ],
)
def test_modules_that_declare_themselves_causal_or_not_decide_the_verdict(model, verdict, says):
    found = later_tokens(model)
    assert found.verdict == verdict and says in found.answer, found


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ({"causal": False}, "fine"),  # as in XLM
        ({"attn_type": "bi"}, "fine"),  # as in XLNet
        ({"use_bidirectional_attention": True}, "fine"),  # as in Gemma 3
        ({"causal": True}, "broken"),
        ({"attn_type": "uni"}, "broken"),
        ({"is_decoder": True}, "broken"),
        ({}, "broken"),
    ],
)
def test_a_config_decides_before_the_name_of_the_class_whether_a_model_is_causal(settings, verdict):
    class ToyForCausalLM(Embedded):
        config = SimpleNamespace(**settings)

    model = ToyForCausalLM(
        lambda m, x, mask: m.part(average(m, x, mask)), part=nn.Linear(WIDTH, 256)
    )
    assert later_tokens(model).verdict == verdict


@pytest.mark.parametrize("is_decoder", [True, False])
def test_a_config_class_with_its_own_is_decoder_decides_for_a_class_of_either_form(is_decoder):
    class ToyConfig:
        is_decoder = False

    class ToyModel(Embedded):
        config = ToyConfig()

    model = ToyModel(average)
    model.config.is_decoder = is_decoder
    assert later_tokens(model).verdict == ("broken" if is_decoder else "fine")


def test_a_norm_over_time_leaks_later_tokens(batch):
    group = Normed(nn.GroupNorm(1, 8))
    found = normlab.inspect(group, [batch], causal=True, checks=["future"]).findings["future"]
    assert (found.verdict, found.module) == ("broken", "norm")
    assert found.answer.partition("; ")[2].startswith("norm: GroupNorm, pools over position, later")
    found = normlab.inspect(group, [batch], checks=["future"]).findings["future"]
    assert found.verdict == "look" and "causal=True" in found.answer


def test_an_unmasked_decoder_leaks_later_decoder_tokens(batch):
    class Both(Encoder):
        def __init__(self, causal):
            super().__init__()
            self.causal = causal
            layer = nn.TransformerDecoderLayer(16, 4, 32, batch_first=True)
            self.decoder = nn.TransformerDecoder(layer, 1)

        def forward(self, input_ids, attention_mask, decoder_input_ids):
            seen, y = super().forward(input_ids, attention_mask), self.embedding(decoder_input_ids)
            later = nn.Transformer.generate_square_subsequent_mask(y.shape[1])
            return self.decoder(y, seen, later if self.causal else None)

    batch["decoder_input_ids"] = batch["input_ids"][:, :7] + 1
    sound, leaking = (normlab.inspect(Both(causal), [batch]) for causal in (True, False))
    assert sound.findings["future"].verdict == sound.findings["batch_mates"].verdict == "fine"
    found = leaking.findings["future"]
    assert (found.verdict, found.module) == ("broken", "decoder.layers.0.self_attn")
    assert "The first 3 of 7 decoder positions" in found.answer


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_the_decoder_of_torchs_transformer_is_asked_in_each_layout(causal, by_name, batch_first):
    model = nn.Transformer(WIDTH, 2, 1, 1, 16, batch_first=batch_first)
    src, tgt = torch.randn(4, 6, WIDTH), torch.randn(4, 5, WIDTH)
    if not batch_first:
        src, tgt = src.transpose(0, 1), tgt.transpose(0, 1)
    later = nn.Transformer.generate_square_subsequent_mask(5) if causal else None
    batch = {"src": src, "tgt": tgt, "tgt_mask": later} if by_name else (src, tgt, None, later)
    found = normlab.inspect(model, [batch], checks=["future"]).findings["future"]
    assert found.verdict == ("fine" if causal else "broken")
    assert ("all 4 cuts" if causal else "The first 2 of 5 decoder positions") in found.answer


def test_a_value_per_row_is_not_compared():
    def logits_and_value(_, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        return {"logits": x, "value": x[:, -1].mean(-1)}

    assert later_tokens(Embedded(logits_and_value), causal=True).verdict == "fine"


def test_an_output_without_positions_is_not_compared_even_if_it_has_as_many_features():
    pool = nn.Linear(WIDTH, LENGTH)

    def logits_and_pooled(m: Any, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        return {"logits": x, "pooled": m.pool(x[:, -1])}

    assert later_tokens(Embedded(logits_and_pooled, pool=pool), causal=True).verdict == "fine"


def test_an_output_that_is_nan_in_float64_alone_is_compared_in_the_models_dtype():
    def nan_in_float64(_, x: Tensor, mask: Tensor) -> Tensor:
        return x * (torch.nan if x.dtype == torch.float64 else 1) + 1e-3 * x.mean(1, keepdim=True)

    found = later_tokens(Embedded(nan_in_float64), causal=True)
    assert found.verdict == "look" and "NaN in float64, but not in float32" in found.answer


def test_the_first_output_with_positions_is_the_one_to_judge():
    def value_and_states(_, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        return {"value": x[:, -1], "states": x + x.mean(1, keepdim=True)}

    found = later_tokens(Embedded(value_and_states), causal=True)
    assert found.verdict == "broken"


def test_a_prefix_that_sees_itself_is_found():
    def prefix(_, x: Tensor, mask: Tensor) -> Tensor:
        return torch.cat([x[:, :3] + x[:, 2:3], x[:, 3:]], 1)

    assert later_tokens(Embedded(prefix), causal=True).verdict == "broken"


def test_an_output_with_positions_last_is_judged_even_if_another_has_them_on_axis_1():
    conv = nn.Conv1d(WIDTH, 5, 3, padding=1)

    def logits_and_embeddings(m: Any, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        return {"logits": m.conv(x.transpose(1, 2)), "embeddings": x}

    found = later_tokens(Embedded(logits_and_embeddings, conv=conv), causal=True)
    assert (found.verdict, found.module) == ("broken", "conv")
