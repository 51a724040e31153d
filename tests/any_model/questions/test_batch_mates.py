"""Do the other rows of a batch change the output of a row?"""

import torch
from torch import nn

import normlab


def test_float32_rounding_is_also_measured_for_the_shortest_row(batch):
    token = batch["input_ids"][1, 0]

    class Rounding(nn.Embedding):
        def forward(self, input_ids, attention_mask):
            y = super().forward(input_ids)
            narrow = len(y) > 1 and y.dtype != torch.float64
            return y * (1 + 1e-3 * narrow * (input_ids == token)[..., None])

    found = normlab.inspect(Rounding(50, 4), [batch], checks=["batch_mates"]).findings[
        "batch_mates"
    ]
    assert found.verdict == "fine" and "float32 rounding changes the output by 0.0" in found.answer
    assert 1e-4 < found.values["row 1 among 3"]["in_model_dtype"] < 1e-3
