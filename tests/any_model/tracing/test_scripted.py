"""Scripted modules inside a model are examined if Python calls them, and otherwise reported."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normlab
from tests.any_model.pairs import WIDTH

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit")
X = torch.randn(6, 5, WIDTH, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    """A linear layer and batch norm over rows and positions."""

    def __init__(self, norm: bool = True):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.inner = nn.BatchNorm1d(WIDTH) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.linear(x).mT).mT


class Formula(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, [x.shape[-1]])


def with_script(part: nn.Module) -> nn.Module:
    """Return a model with a scripted part, in training mode."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), torch.jit.script(part))


def test_a_scripted_part_is_examined_in_evaluation_mode_and_its_mode_is_restored():
    model = with_script(Block())
    found = normlab.inspect(model, [X], checks=["batch_mates"]).findings["batch_mates"]
    assert found.verdict == "fine", found
    assert model[1].training and model[1].inner.training
    assert int(model[1].inner.num_batches_tracked) == 0


def test_norms_inside_a_scripted_part_are_reported_as_not_examined():
    found = normlab.inspect(with_script(Block()), [X], checks=["norms", "statistics"]).findings
    for name in ("norms", "statistics"):
        assert (found[name].verdict, found[name].values["unexamined"]) == ("look", ["1.inner"])
        assert "not examined (inside a scripted module): 1.inner" in found[name].answer
    found = normlab.inspect(with_script(Formula()), [X], checks=["norms"]).findings["norms"]
    assert found.answer == "names and behavior agree: 1 Formula over feature"
    found = normlab.inspect(with_script(nn.Sequential(Formula(), nn.Linear(WIDTH, 2))), [X])
    assert found.findings["norms"].answer.endswith("inside a scripted module): 1")
    found = normlab.inspect(with_script(Block(False)), [X], checks=["norms"]).findings["norms"]
    assert found.verdict == "does not apply"


def test_a_scripted_norm_that_python_calls_is_examined():
    model = with_script(nn.LayerNorm(WIDTH))
    found = normlab.inspect(model, [X], checks=["norms"]).findings["norms"]
    assert found.answer == "names and behavior agree: 1 LayerNorm over feature"
    norm = nn.BatchNorm1d(5)
    norm.running_mean.fill_(30)
    found = normlab.inspect(with_script(norm), [X], checks=["norms", "statistics"]).findings
    assert found["norms"].answer.startswith("1 (BatchNorm1d) pools over batch, feature")
    assert found["statistics"].module == "1" and "stale" in found["statistics"].answer


class LeakingRows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x.mean(0, keepdim=True)


def test_a_leak_in_a_scripted_part_is_attributed_to_it():
    found = normlab.inspect(with_script(LeakingRows()), [X], checks=["batch_mates"]).findings
    assert (found["batch_mates"].verdict, found["batch_mates"].module) == ("broken", "1")
    assert found["batch_mates"].answer.partition("; ")[2].startswith("1: LeakingRows, mixes in")


def test_all_questions_are_answered_for_a_model_with_a_scripted_part():
    model = nn.Sequential(torch.jit.script(nn.Linear(WIDTH, WIDTH)), nn.LayerNorm(WIDTH))
    found = normlab.inspect(model, [X], checks="all").findings.values()
    assert [str(each) for each in found if each.verdict not in ("fine", "does not apply")] == []
