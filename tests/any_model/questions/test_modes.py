"""Does training mode change the output, apart from dropout?"""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import normlab
from tests.any_model.pairs import WIDTH, text_batches
from tests.any_model.toys import Embedded, Normed, Turned, X, finding


def test_batch_statistics_are_fine_unless_they_include_padding(batch):
    torch.manual_seed(0)
    found = normlab.inspect(Normed(), [batch], checks=["modes", "batch_mates"]).findings
    assert (found["modes"].verdict, found["modes"].module) == ("look", "norm")
    assert found["batch_mates"].verdict == "fine" and found["modes"].values["training"] > 0.1
    whole = {name: x[:1].repeat(3, 1) for name, x in batch.items()}
    found = normlab.inspect(Normed(), [whole], checks=["modes"]).findings["modes"]
    assert found.verdict == "fine" and "by design" in found.answer


class Factor(nn.Module):
    def __init__(self, factor: float = 2):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.factor if self.training else 1)


def test_a_factor_in_training_mode_is_found_and_dropout_is_ignored():
    found = finding(nn.Sequential(nn.Linear(WIDTH, WIDTH), Factor(), nn.Dropout(0.5)), "modes")
    assert (found.verdict, found.module) == ("look", "1")
    assert "changes by 100 % in training mode: 1 (Factor)" in found.answer
    found = finding(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5)), "modes")
    assert (
        found.verdict == "fine" and "does not change the output, except for dropout" in found.answer
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("factor", [1 + 1e-6, 1.001, 1.1])
def test_a_small_factor_in_training_mode_is_found_in_every_dtype(dtype, factor):
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Factor(factor)).to(dtype)
    found = finding(model, "modes", X.to(dtype))
    assert (found.verdict, found.module, found.threshold) == ("look", "1", 1e-9)
    assert found.value == pytest.approx(factor - 1, rel=1e-3)


def test_a_value_that_norms_explain_has_no_threshold():
    found = finding(Turned(nn.BatchNorm1d(WIDTH)), "modes")
    assert (found.verdict, found.threshold) == ("fine", None) and found.value > 0.1


def test_numpy_noise_in_training_mode_is_recognized_as_random_numbers():
    class Noisy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * (1 + np.random.rand()) if self.training else x

    found = finding(Noisy(), "modes")
    assert found.verdict == "fine" and "hidden by random numbers" in found.answer


def test_stochastic_depth_is_dropout_even_if_it_happens_to_be_the_same_for_two_seeds():
    class DropPath(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / 0.9 if self.training else x

    found = finding(nn.Sequential(nn.Linear(WIDTH, WIDTH), DropPath()), "modes")
    assert found.verdict == "fine" and "does not change the output" in found.answer


def test_random_numbers_that_agree_for_two_seeds_are_recognized_by_more_seeds():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            dropped = self.training and torch.rand(()) > 0.3  # true for the seeds 0, 1 and 2, not 3
            return x if dropped else self.linear(x)

    found = finding(Encoder(), "modes")
    assert found.verdict == "fine" and "hidden by random numbers" in found.answer


class Frozen(nn.BatchNorm1d):
    def train(self, mode: bool = True):
        return super().train(False)


def test_frozen_norms_use_no_batch_statistics():
    found = finding(Turned(Frozen(WIDTH)), "modes")
    assert found.verdict == "fine" and "does not change" in found.answer
    found = finding(Turned(nn.BatchNorm1d(WIDTH)), "modes")
    assert found.verdict == "fine" and "1 norm uses batch statistics, by design" in found.answer


class Overridden(Turned):
    def train(self, mode: bool = True):
        super().train(mode).norm.eval()
        return self


def test_norms_kept_in_eval_mode_by_the_model_use_no_batch_statistics():
    found = finding(Overridden(nn.BatchNorm1d(WIDTH)), "modes")
    assert found.verdict == "fine" and "does not change" in found.answer


@pytest.mark.parametrize("faulty", [True, False])
def test_dropout_inside_torch_layers_and_values_under_padding_are_ignored(faulty):
    def encode(m, x: Tensor, mask: Tensor) -> Tensor:
        y = m.lstm(m.encoder(x, src_key_padding_mask=mask == 0))[0]
        return y * 2 if faulty and m.training else y

    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
    lstm = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True, dropout=0.5)
    model = Embedded(encode, encoder=nn.TransformerEncoder(layer, 1), lstm=lstm)
    found = finding(model, "modes", text_batches()[0])
    assert found.verdict == ("look" if faulty else "fine"), found
    assert ("the model (Embedded) computes something else" in found.answer) == faulty
    assert "random" not in found.answer and model.lstm.dropout == 0.5


def test_torchs_slow_encoder_runs_in_both_modes():
    class ThenConvolved(nn.Module):  # it reads values under padding, which fused layers set to 0
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 1)
            self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            y = self.encoder(x, src_key_padding_mask=~mask)
            return self.conv(y.transpose(1, 2)).transpose(1, 2)

    mask = torch.arange(6) < torch.tensor([6, 5, 4, 3])[:, None]
    assert finding(ThenConvolved(), "modes", {"x": X, "mask": mask}).verdict == "fine"
