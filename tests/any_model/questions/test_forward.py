"""Is a forward pass repeatable, and its output finite?"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab
from normlab.errors import UserError
from tests.any_model.pairs import WIDTH
from tests.any_model.toys import FAULTY, QUICK, Normed, X, finding, masked_numbers, verdicts


@pytest.mark.parametrize(("wrong", "says"), [("random", "one run to the next"), ("nan", "NaN")])
def test_a_random_or_nan_output_skips_all_other_questions(batch, wrong, says):
    found = normlab.inspect(Normed(wrong=wrong), [batch], checks=QUICK)
    assert next(iter(found.findings)) == "forward" and says in found.findings["forward"].answer
    assert verdicts(found) == {"forward": "broken", **dict.fromkeys(QUICK[1:], "does not apply")}


def test_an_overflow_is_attributed_to_the_product_not_to_the_next_norm():
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


def test_a_nan_only_in_training_or_in_a_second_call_is_worth_a_look():
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


class Growing(nn.Module):
    """A layer whose output grows by a share from one call to the next."""

    def __init__(self, share: float):
        super().__init__()
        self.layer, self.share, self.calls = nn.Linear(WIDTH, WIDTH), share, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x) * (1 + self.share * (self.calls - 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("share", [1e-6, 0.2])
def test_state_between_calls_is_found_in_every_dtype(dtype, share):
    found = finding(Growing(share).to(dtype), "forward", X.to(dtype))
    assert found.verdict == "look" and "keeps state between calls" in found.answer
    assert found.value == pytest.approx(share, rel=1e-3) and found.threshold == 1e-9


@FAULTY
def test_nan_of_torchs_fused_attention_alone_is_attributed_to_it(faulty):
    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            y, hidden = self.first(x), mask if faulty else ~mask
            y = self.attention(y, y, y, key_padding_mask=hidden, need_weights=False)[0]
            return self.last(y)

    mask = torch.arange(6) < torch.tensor([6, 5, 4, 3])[:, None]
    found = finding(Attending(), "forward", {"x": X, "mask": mask})
    assert found.verdict == ("broken" if faulty else "fine"), found
    assert ("only where torch fuses attention" in found.answer) == faulty


class AfterEncoder(nn.Module):
    """torch's encoder, followed by a division."""

    def __init__(self, divisor):
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.encoder, self.divisor = nn.TransformerEncoder(layer, 1), divisor

    def forward(self, x, attention_mask):
        y = self.encoder(x, src_key_padding_mask=attention_mask == 0)
        return (y - y) / self.divisor + y


@FAULTY
def test_nan_after_the_last_module_is_found(faulty):
    report = normlab.inspect(AfterEncoder(1.0 - faulty).eval(), masked_numbers(), checks="forward")
    found = report.findings["forward"]
    assert found.verdict == ("broken" if faulty else "fine"), found
    assert ("NaN" in found.answer) == faulty


class Masked(nn.Module):
    """Attention weights with an additive mask."""

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        return (x @ x.transpose(1, 2) + bias).softmax(-1) @ x


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_nan_from_an_input_that_is_not_finite_is_an_error_that_names_the_input(value):
    wrong = X.clone()
    wrong[0, 1, 0] = value
    with pytest.raises(UserError, match="the first batch has NaN or infinities in `input`"):
        normlab.inspect(nn.Sequential(nn.LayerNorm(WIDTH)), [wrong])
    assert finding(FiniteOnly(), "forward", wrong).verdict == "fine"


class FiniteOnly(nn.Module):
    """Replaces missing values, as models of time series do."""

    def forward(self, x: Tensor) -> Tensor:
        return x.nan_to_num(0.0, 0.0, 0.0)


@FAULTY
def test_an_additive_mask_may_be_infinite(faulty):
    ahead = torch.full((X.shape[1], X.shape[1]), -torch.inf).triu(0 if faulty else 1)
    found = finding(Masked(), "forward", (X, ahead.repeat(len(X), 1, 1)))
    assert found.verdict == ("broken" if faulty else "fine")
    assert "infinities" not in found.answer
