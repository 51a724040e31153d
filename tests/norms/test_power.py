"""Power norm: micro-batches, its two backward passes, and its variant."""

import pytest
import torch

from normlab.norms.make import make_norm
from normlab.norms.tokens import Tokens
from tests.norms.trained_norms import (
    PAST,
    VALID,
    model_norms_of,
    random_batch,
    take_step,
    trained_norm,
)


@pytest.mark.parametrize("ghost", [None, 1])
def test_after_its_warm_up_power_norm_treats_two_micro_batches_as_one_batch(ghost):
    found = []
    for size in (4, 2):
        norm = trained_norm("pn", 8, backward="paper", ghost=ghost)
        norms, (x, tokens) = model_norms_of(norm), random_batch(40)
        norms.begin_step(9, PAST)
        outputs, grads = [], []
        for part, valid in zip(x.split(size), tokens.valid.split(size), strict=True):
            y = norm(part.requires_grad_(), Tokens(valid)) * valid[..., None]
            (grad,) = torch.autograd.grad((y * part.detach().cos()).sum(), part)
            outputs.append(y.detach())
            grads.append(grad)
        norms.commit()
        found.append([torch.cat(outputs), torch.cat(grads), norm.tables])
    torch.testing.assert_close(*found)


def test_power_norms_paper_and_code_backward_passes_agree_only_during_the_warm_up():
    code, paper = make_norm("pn", 8).double(), make_norm("pn", 8, backward="paper").double()
    for step in range(1, 9):
        (y, dx), (other_y, other_dx) = take_step(code, step), take_step(paper, step)
        assert torch.allclose(dx, other_dx) == (step <= 3)
        if step <= 4:
            torch.testing.assert_close(y, other_y)


def test_pn_v_equals_batch_norm_on_tokens_with_zero_mean():
    x, tokens = random_batch()
    x = x - x[VALID].mean(0)
    y = make_norm("pn_v", 8, groups=None).double()(x, tokens)
    torch.testing.assert_close(y, make_norm("bn", 8).double()(x, tokens))
