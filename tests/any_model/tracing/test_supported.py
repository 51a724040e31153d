"""Models that cannot be run or examined are refused before anything in them is changed."""

import pytest
import torch
from torch import nn

import normlab
from normlab.any_model.tracing.supported import check_unquantized

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


def sequence(linear):
    return nn.Sequential(linear, nn.LayerNorm(4))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sequence(nn.LazyLinear(4)), "^0.weight has no values yet; run the model"),
        (lambda: nn.Sequential(nn.LayerNorm(3), nn.LazyBatchNorm1d(affine=False)), "^1.running_"),
        (lambda: sequence(nn.Linear(3, 4, device="meta")), "^0.weight is on the meta device"),
        (lambda: torch.jit.script(sequence(nn.Linear(3, 4))), "a scripted model does not support"),
    ],
    ids=["lazy parameter", "lazy buffer", "meta", "scripted"],
)
@pytest.mark.parametrize(
    "change",
    [
        normlab.inspect,
        normlab.fold_norms,
        lambda model, batches: normlab.swap(model, "rms", calibrate=batches),
    ],
    ids=["inspect", "fold_norms", "swap"],
)
def test_a_model_that_cannot_be_run_is_refused_unchanged(make, said, change):
    model = make()
    before = str(model)
    with pytest.raises(normlab.UserError, match=said):
        change(model, [X])
    assert str(model) == before


def test_a_lazy_model_that_was_refused_still_runs():
    model = sequence(nn.LazyLinear(4))
    with pytest.raises(normlab.UserError, match="no values yet"):
        normlab.inspect(model, [X])
    assert model(X).shape == (4, 4)


def test_a_model_with_integer_weights_cannot_be_examined():
    model = nn.Linear(3, 4)
    model.weight = nn.Parameter(torch.ones(4, 3, dtype=torch.int8), requires_grad=False)
    with pytest.raises(
        normlab.UserError, match=r"weight is torch\.int8; pass the unquantized model"
    ):
        check_unquantized(model)
