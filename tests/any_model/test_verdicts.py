"""The text of findings: on infinity, training mode, failures, and what was compared."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normlab
from normlab.any_model.surgery.swap import swap
from normlab.cli import main
from tests.any_model.models import sound
from tests.any_model.pairs import WIDTH, text_batches
from tests.any_model.test_reported import Embedded, mean

X = torch.randn(4, 6, WIDTH, generator=torch.Generator().manual_seed(0))


def finding(model, question, batch=X, **options):
    torch.manual_seed(0)
    return normlab.inspect(model.eval(), [batch], checks=[question], **options).findings[question]


def test_the_product_that_overflows_is_blamed_not_the_norm_after_it():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
            nn.init.constant_(self.first.weight, 1000.0)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.first(x))

    found = finding(Product().half(), "forward", X.half().abs() + 60)
    assert (found.verdict, found.module) == ("broken", "first")
    assert "whose output is infinite (6.55e+04 is the largest float16)" in found.answer


class Factor(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * (2 if self.training else 1)


class Frozen(nn.BatchNorm1d):
    def train(self, mode: bool = True):
        return super().train(False)


class Turned(nn.Module):
    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.mT).mT


def test_a_factor_in_training_mode_is_found_and_dropout_is_spared():
    found = finding(nn.Sequential(nn.Linear(WIDTH, WIDTH), Factor(), nn.Dropout(0.5)), "modes")
    assert (found.verdict, found.module) == ("look", "1")
    assert "changes by 100 % in training mode: 1 (Factor)" in found.answer
    found = finding(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5)), "modes")
    assert (
        found.verdict == "fine" and "does not change the output, except for dropout" in found.answer
    )


def test_noise_of_numpy_in_training_mode_is_random():
    class Noisy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * (1 + np.random.rand()) if self.training else x

    found = finding(Noisy(), "modes")
    assert found.verdict == "fine" and "hidden by random numbers" in found.answer


def test_norms_that_stay_frozen_use_no_batch_statistics():
    found = finding(Turned(Frozen(WIDTH)), "modes")
    assert found.verdict == "fine" and "does not change" in found.answer
    found = finding(Turned(nn.BatchNorm1d(WIDTH)), "modes")
    assert found.verdict == "fine" and "1 norm uses batch statistics, by design" in found.answer


class Overridden(Turned):
    def train(self, mode: bool = True):
        super().train(mode).norm.eval()
        return self


def test_a_model_may_keep_its_norms_frozen():
    found = finding(Overridden(nn.BatchNorm1d(WIDTH)), "modes")
    assert found.verdict == "fine" and "does not change" in found.answer


@pytest.mark.parametrize("faulty", [True, False])
def test_dropout_inside_torchs_layers_and_what_they_leave_under_padding_are_no_difference(faulty):
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
def test_a_movement_without_a_size_is_named_by_its_cause(alone, padded, says):
    def change(_, x: Tensor, mask: Tensor) -> Tensor:
        function = padded if mask.shape[1] > 24 else alone
        return x if function is None else function(x)

    found = finding(Embedded(change), "padding", text_batches()[0])
    assert found.verdict == "broken" and found.answer.startswith(says), found


def test_training_mode_and_a_second_call_may_turn_an_output_into_nan():
    class Odd(nn.Module):
        def __init__(self, when: Callable[[Any], bool]):
            super().__init__()
            self.when, self.calls = when, 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * torch.nan if self.when(self) else x

    found = finding(Odd(lambda model: model.training), "modes")
    assert found.verdict == "look" and "the output becomes NaN in training mode" in found.answer
    found = finding(Odd(lambda model: model.calls > 1), "forward")
    assert found.verdict == "look" and "the output of a second call becomes NaN" in found.answer


class Failing(nn.Module):
    """Fails for more than one row."""

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 1:
            raise RuntimeError("one row only")
        return x


def test_failure_is_no_answer(capsys):
    report = normlab.inspect(Failing(), [X], checks=["batch_mates"])
    found = report.findings["batch_mates"]
    assert found.verdict == "failed" and "RuntimeError: one row only" in found.answer
    with pytest.raises(AssertionError, match="batch_mates: no answer"):
        report.raise_if_broken()
    place = "tests.any_model.test_verdicts"
    assert main(["inspect", "--module", f"{place}:Failing", "--inputs", f"{place}:X"]) == 1
    assert "\nfailed          batch_mates: no answer" in capsys.readouterr().out


def test_the_first_line_says_which_rows_and_outputs_were_compared(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def outputs(_, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        return {"tokens": x, "sentence": mean(x, mask)}

    model = Embedded(outputs)
    batch = {name: x.repeat(2, 1) for name, x in text_batches()[0].items()}
    report = normlab.inspect(model, [batch])
    title = report.title
    assert max(map(len, report.text().splitlines())) <= 80
    words = "compared: rows 0, 4 and 5 of 8, of up to 24 positions; outputs tokens and sentence"
    assert title.endswith(words), title
    title = normlab.inspect(nn.LSTM(WIDTH, WIDTH), [X], checks="forward").title  # by its settings
    assert "rows 0, 2 and 3 of 6 on axis 1 (batch_first=False), of up to 4 positions" in title


def test_scripted_parts_and_weight_norm_after_a_backward_pass_are_examined():
    model = nn.Sequential(torch.jit.script(nn.Linear(WIDTH, WIDTH)), nn.LayerNorm(WIDTH))
    found = normlab.inspect(model, [X], checks="all").findings
    odd = [each for each in found.values() if each.verdict not in ("fine", "does not apply")]
    assert [*map(str, odd)] == []
    with pytest.warns(FutureWarning):
        normed = nn.utils.weight_norm(nn.Linear(WIDTH, WIDTH))
    model = nn.Sequential(normed, nn.LayerNorm(WIDTH))
    F.mse_loss(model(X), X).backward()
    assert len(swap(model, "rms", calibrate=[X]).table) == 1


def test_the_warnings_of_torchs_own_fast_path_are_not_the_users(recwarn):
    torch.set_warn_always(True)
    try:
        case = sound("nn.TransformerEncoder")
        normlab.inspect(case.model, case.batches, checks=["padding"])
        assert not [each for each in recwarn if "nested tensors" in str(each.message)]
        with torch.no_grad():
            case.model(**case.batches[0])
    finally:
        torch.set_warn_always(False)
    assert [each for each in recwarn if "nested tensors" in str(each.message)]


def test_all_questions_are_answered_for_a_sound_encoder():
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)

    def encode(m, x: Tensor, mask: Tensor) -> Tensor:
        return m.encoder(x, src_key_padding_mask=mask == 0)

    torch.manual_seed(0)
    model = Embedded(encode, encoder=nn.TransformerEncoder(layer, 2)).eval()
    found = normlab.inspect(model, text_batches(), checks="all").findings
    assert [str(each) for each in found.values() if each.verdict in ("failed", "broken")] == []
