"""The flow of features from weights to norms, as one forward pass shows it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from normlab.any_model.surgery.flow import Flow

D = 4


class Between(nn.Module):
    """A linear layer, an operation, a norm and a second linear layer."""

    def __init__(self, operation):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(D, D), nn.LayerNorm(D), nn.Linear(D, D)
        self.operation = operation

    def forward(self, x):
        y = self.first(x)
        return self.second(self.norm(self.operation(y, x)))


def flow_of(operation):
    model = Between(operation)
    flow = Flow(model, ["norm"])
    flow.run(lambda: model(torch.ones(2, 3, D)))
    return flow


def sources(operation):
    """Return the operations and names of what reaches the norm's input."""
    flow = flow_of(operation)
    (norm,) = flow.norms["norm"]
    return [(node.op, node.name) for node in flow.sources(norm.passed[0])]


@pytest.mark.parametrize(
    "operation",
    [
        lambda y, x: y.transpose(0, 1).contiguous(),
        lambda y, x: y.mean(1, keepdim=True),
        lambda y, x: y * torch.rand(2, 3, 1),
        lambda y, x: F.pad(y, (0, 0, 1, 1)),
    ],
    ids=["moved", "averaged over positions", "a factor per position", "padded"],
)
def test_a_product_reaches_a_norm_through_operations_that_do_not_mix_features(operation):
    assert sources(operation) == [("product", "first.weight")]


@pytest.mark.parametrize(
    "operation",
    [lambda y, x: y.relu(), lambda y, x: y.flip(-1), lambda y, x: y * torch.rand(D)],
    ids=["nonlinear", "features in another order", "a factor per feature"],
)
def test_any_other_operation_on_features_hides_the_product(operation):
    ((op, name),) = sources(operation)
    assert (op, name) == ("other", "")


def test_a_sum_has_the_sources_of_both_terms():
    assert {op for op, _ in sources(lambda y, x: y + x)} == {"product", "other"}


def test_the_ends_of_a_norm_are_its_readers_and_none_stands_for_an_output():
    flow = flow_of(lambda y, x: y)
    (norm,) = flow.norms["norm"]
    (end,) = flow.ends(norm)
    assert end is not None and (end.op, end.name, end.bias) == (
        "product",
        "second.weight",
        "second.bias",
    )
    assert flow.ends(end) == [None]
    assert flow.uses["first.weight"][0].label == "linear in first"
