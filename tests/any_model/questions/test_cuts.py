"""At which positions of a row a leak of later tokens is looked for."""

import pytest
import torch
from torch import Tensor, nn

import normlab
from normlab.any_model.questions import cuts
from tests.any_model.pairs import WIDTH


class NextSeen(nn.Module):
    """A layer whose output at one position contains a share of the next position's."""

    def __init__(self, position: int, share: float = 0.5):
        super().__init__()
        self.layer, self.position, self.share = nn.Linear(WIDTH, WIDTH), position, share

    def forward(self, x: Tensor) -> Tensor:
        y, t = self.layer(x), self.position
        seen = torch.zeros(x.shape[1], x.shape[1], dtype=y.dtype)
        seen[t : t + 1, t + 1 : t + 2] = self.share
        return y + seen @ y


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("share", "verdict"), [(0.5, "broken"), (1e-5, "look")])
def test_a_leak_of_a_single_position_is_found_wherever_it_is(dtype, share, verdict):
    x = torch.randn(4, 9, WIDTH).to(dtype)
    for position in range(8):
        model = NextSeen(position, share).to(dtype)
        found = normlab.inspect(model, x, checks=["future"], causal=True).findings["future"]
        assert found.verdict == verdict, (position, found)
        assert f"after the first {position + 1};" in found.answer
        at_half = "The first 4 of 9 positions, with other tokens in the rest"
        assert (at_half if position == 3 else "after a cut: all 8 cuts") in found.answer


def test_cuts_are_spread_within_the_budget_and_contain_the_usual_ones(monkeypatch):
    model, x = NextSeen(99), torch.randn(4, 40, WIDTH)
    monkeypatch.setattr(cuts, "BUDGET", 12 * 40 * sum(p.numel() for p in model.parameters()))
    found = normlab.inspect(model, x, checks=["future"], causal=True).findings["future"]
    assert found.verdict == "fine" and "after a cut: 12 of 39 cuts" in found.answer
    some = cuts.chosen_cuts(40, 12)
    assert len(some) == 12 and {1, 10, 20, 25, 39} < {*some} <= {*range(1, 40)}
    assert [*cuts.chosen_cuts(40, 39)] == [*range(1, 40)]
    assert len(cuts.chosen_cuts(40, 2)) == 5


class BatchMean(nn.Module):
    """A layer that subtracts the mean over all rows and, if it leaks, sees a later position."""

    def __init__(self, leaks: bool):
        super().__init__()
        self.seen = NextSeen(5 if leaks else 99)

    def forward(self, x: Tensor) -> Tensor:
        y = self.seen(x)
        return y - y.mean(0, keepdim=True) if len(y) > 1 else y


@pytest.mark.parametrize("faulty", [True, False])
def test_rows_that_influence_each_other_are_cut_singly(faulty):
    x = torch.randn(4, 9, WIDTH)
    found = normlab.inspect(BatchMean(faulty), x, checks=["future"], causal=True).findings["future"]
    assert found.verdict == ("broken" if faulty else "fine"), found
    assert "all 8 cuts" in found.answer


def test_a_model_that_refuses_batches_is_cut_singly():
    class Single(NextSeen):
        def forward(self, x: Tensor) -> Tensor:
            assert len(x) == 1
            return super().forward(x)

    x = torch.randn(4, 9, WIDTH)
    for position, verdict in ((5, "broken"), (99, "fine")):
        report = normlab.inspect(Single(position), x, checks=["future"], causal=True)
        assert report.findings["future"].verdict == verdict
