"""Cross-entropy of the logits at real targets, either summed with label smoothing or per target."""

from functools import reduce
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

_CACHE_ELEMENTS = 1 << 20  # float32 elements per chunk on a CPU: 4 MB


def label_smoothed_cross_entropy(
    logits: Float[Tensor, "N V"], targets: Int[Tensor, "N"], smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the summed loss and the summed negative log-likelihood (without a gradient), in nats.

    The target distribution puts 1 - smoothing on the target plus smoothing / V on every token
    (Szegedy et al. 2016, section 7), as in `torch.nn.functional.cross_entropy`.
    """
    return _LabelSmoothedCrossEntropy.apply(logits, targets, smoothing)


def log_probabilities(
    logits: Float[Tensor, "N V"], targets: Int[Tensor, "N"]
) -> Float[Tensor, "N"]:
    """Return the log probability of each target, in at least float32."""
    work = torch.promote_types(logits.dtype, torch.float32)
    return logits.to(work).log_softmax(-1).gather(1, targets[:, None])[:, 0]


class _LabelSmoothedCrossEntropy(torch.autograd.Function):
    """Label-smoothed cross-entropy that computes its gradient in the forward pass.

    Loss and gradient share one pass over the logits, a few rows at a time so that the float32 copy
    fits in the CPU cache. Only the gradient is saved, in the precision of the logits.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        rows, vocab = logits.shape
        size = max(1, _CACHE_ELEMENTS // vocab if logits.is_cpu else rows)
        work, gradient = torch.promote_types(logits.dtype, torch.float32), torch.empty_like(logits)
        losses, nlls = [], []
        parts = (x.split(size) for x in (logits, targets[:, None], gradient))
        for part, target, slope in zip(*parts, strict=True):
            scores = part.to(work)
            picked = scores.gather(1, target)[:, 0]
            # The largest softmax value is 1 / sum(exp(scores - largest)).
            share = scores.softmax(-1)
            log_total = scores.amax(-1) - share.amax(-1).log()
            nlls.append((log_total - picked).sum())
            smooth = (1 - smoothing) * picked + smoothing * scores.mean(-1)
            losses.append((log_total - smooth).sum())
            if logits.requires_grad:
                pull = torch.full_like(target, smoothing - 1, dtype=work)
                slope.copy_(share.sub_(smoothing / vocab).scatter_add_(1, target, pull))
        ctx.save_for_backward(gradient)
        loss, nll = (reduce(torch.add, sums) for sums in (losses, nlls))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, loss_gradient: Tensor, _: Tensor) -> tuple[Tensor | None, None, None]:
        (gradient,) = ctx.saved_tensors  # used only once, so scaling in place is safe
        return gradient.mul_(loss_gradient.to(gradient.dtype)), None, None
