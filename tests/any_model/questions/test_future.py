"""The answer about later tokens if a model declares itself causal, not causal, or neither."""

from typing import Any

import pytest
from torch import Tensor, nn

import normlab
from tests.any_model.pairs import WIDTH, text_batches
from tests.any_model.test_reported import Embedded


def later_tokens(model: nn.Module, **options: Any) -> Any:
    report = normlab.inspect(model.eval(), text_batches(), checks=["future"], **options)
    return report.findings["future"]


def average(_, x: Tensor, mask: Tensor) -> Tensor:
    return x + x.mean(1, keepdim=True)


def test_what_moves_is_worth_a_look_where_nothing_says_whether_the_model_is_causal():
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
        (of_lstm(True), "fine", "its modules say that it is not"),
        (of_lstm(False), "fine", "no leak"),
        (of_attention(False), "fine", "its modules say that it is not"),
        (of_attention(False, 256), "look", "set causal="),  # as many entries as words
        (of_attention(True), "broken", "part"),
        (of_attention(None), "look", "set causal="),
    ],
)
def test_what_the_modules_say_of_themselves_decides(model, verdict, says):
    found = later_tokens(model)
    assert found.verdict == verdict and says in found.answer, found
