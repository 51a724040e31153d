"""The penalty of regularized batch norm."""

import pytest
import torch

from normlab.norms.make import make_norm
from tests.norms.trained_norms import VALID, model_norms_of, random_batch


def test_the_penalty_is_returned_only_in_training_and_has_a_gradient_in_real_tokens():
    norm = make_norm("rbn", 8, penalty_mean=0.5, penalty_var=0.0, momentum=0.25).double()
    norms = model_norms_of(norm, make_norm("bn", 8))
    assert norms.penalty() is None
    x, tokens = random_batch()
    norm(x.requires_grad_(), tokens)
    penalty = norms.penalty()
    # The batch has entered: three quarters of mu's distance from a running mean of 0 are left.
    torch.testing.assert_close(penalty, 0.5 * (0.75 * x[VALID].mean(0)).square().sum())
    (grad,) = torch.autograd.grad(penalty, x)
    assert grad[VALID].abs().min() > 0 and not grad[~VALID].any()
    norm.eval()(x, tokens)
    assert norms.penalty() is None


@pytest.mark.parametrize("penalty", ["reldiffcosine", "reldiffnorm", "symkl"])
def test_the_penalty_of_a_batch_without_variance_is_finite(penalty):
    norm = make_norm("rbn", 8, penalty=penalty, penalty_mean=0.5, penalty_var=0.5, ghost=1).double()
    x = torch.zeros(2, 3, 8, dtype=torch.double)
    x[1] = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)).double()
    norm(x.requires_grad_())
    penalty = model_norms_of(norm).penalty()
    (grad,) = torch.autograd.grad(penalty, x)
    assert penalty.isfinite() and grad.isfinite().all()
