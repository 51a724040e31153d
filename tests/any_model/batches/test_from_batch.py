"""Rows and positions of a batch."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab
from normlab.errors import UserError
from tests.any_model.pairs import WIDTH, text_batches
from tests.any_model.toys import HARM, accused, mean


def test_rows_1_selects_the_second_axis_as_rows():
    lstm, x = nn.LSTM(8, 8), torch.randn(6, 6, 8)
    wrapped = nn.Sequential()
    wrapped.lstm = lstm
    wrapped.forward = lambda x: lstm(x)[0]
    assert accused(wrapped, {"x": x}, rows=1) == {}
    assert "batch_mates" in accused(wrapped, {"x": x}, rows=0)


@pytest.mark.parametrize("first", [True, False])
def test_batch_first_of_an_lstm_decides_the_row_axis(first):
    lstm, x = nn.LSTM(WIDTH, WIDTH, batch_first=first), torch.randn(4, 6, WIDTH)
    report = normlab.inspect(lstm, [x], causal=True)  # its last state has no positions
    assert [each for each in report.findings.values() if each.verdict in HARM] == []
    rows, axis = (4, 0) if first else (6, 1)
    assert f" of {rows} on axis {axis} (batch_first={first}), of up to {10 - rows}" in report.title
    other = normlab.inspect(lstm, [x], rows=1 - axis, checks=["batch_mates"])
    assert f"on axis {1 - axis}, of up to" in other.title
    assert other.findings["batch_mates"].verdict == "broken"
    with pytest.raises(
        UserError, match=rf"is a single row for a LSTM; .* \[{'rows' if first else 'pos'}"
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


def test_a_model_that_takes_one_dict_gets_the_batch_as_a_dict():
    assert accused(Features(False), text_batches()[0]) == {}
    assert (
        "the output sentence_embedding changes by"
        in accused(Features(True), text_batches()[0])["padding"]
    )


def test_a_generator_of_batches_that_fails_is_an_error_with_its_line():
    def batches():
        yield torch.randn(3, 5, WIDTH)
        raise OSError("disk")

    with pytest.raises(UserError, match=r"batch 2 .* OSError in test_from_batch\.py:\d+: disk"):
        normlab.inspect(nn.Linear(WIDTH, WIDTH), batches())
