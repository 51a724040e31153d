"""The summed loss and its hand-written gradient equal torch's cross-entropy."""

import pytest
import torch
import torch.nn.functional as F

from normlab.tasks import losses
from normlab.tasks.losses import label_smoothed_cross_entropy

TYPES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}


def example(dtype, rows=37, vocab=11, scale=3.0):
    generator = torch.Generator().manual_seed(0)
    logits = (scale * torch.randn(rows, vocab, generator=generator, dtype=torch.double)).to(dtype)
    targets = torch.randint(0, vocab, (rows,), generator=generator)
    return logits.requires_grad_(), targets


def gradient_of(loss, logits, pull):
    (found,) = torch.autograd.grad(loss * pull, logits)
    return found


@pytest.mark.parametrize(("pull", "smoothing"), [(1.0, 0.0), (1 / 64, 0.1), (-2.5, 1.0)])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("chunk", [11 * 5, 3])
def test_loss_and_gradient_match_torchs_cross_entropy(monkeypatch, dtype, smoothing, pull, chunk):
    # chunks of five rows (the last has two), or of one row
    monkeypatch.setattr(losses, "_CACHE_ELEMENTS", chunk)
    logits, targets = example(dtype)
    exact = logits.detach().double().requires_grad_()
    expected = F.cross_entropy(exact, targets, reduction="sum", label_smoothing=smoothing)
    loss, nll = label_smoothed_cross_entropy(logits, targets, smoothing)
    found = gradient_of(loss, logits, pull)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert loss.dtype == nll.dtype == wide and found.dtype == dtype
    assert loss.item() == pytest.approx(expected.item(), rel=min(TYPES[dtype], 1e-5))
    plain = F.cross_entropy(exact.detach(), targets, reduction="sum")
    assert nll.item() == pytest.approx(plain.item(), rel=min(TYPES[dtype], 1e-5))
    torch.testing.assert_close(
        found.double(),
        gradient_of(expected, exact, pull),
        rtol=TYPES[dtype],
        atol=TYPES[dtype] * abs(pull),
    )


@pytest.mark.parametrize("size", [1e3, 1e30])
def test_large_logits_stay_finite(size):
    logits = (size * torch.eye(4)).requires_grad_()
    loss, nll = label_smoothed_cross_entropy(logits, torch.arange(4), 0.0)
    assert loss.item() == nll.item() == 0.0
    assert gradient_of(loss, logits, 1.0).isfinite().all()
