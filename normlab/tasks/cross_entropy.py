"""Label-smoothed cross-entropy as a sum, with its gradient made in the same pass.

The logits of a batch are its largest tensor. Forward and backward share one pass over them, a few
rows at a time so that the float32 copy stays in the processor's cache, and nothing but the gradient
is kept, in the precision of the logits.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

_CACHE_ELEMENTS = 1 << 20  # float32 elements a chunk holds on a CPU: 4 MB


def label_smoothed_cross_entropy(
    logits: Float[Tensor, "N V"], targets: Int[Tensor, "N"], smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the summed loss and the summed negative log-likelihood (nats; no gradient).

    The target distribution is (1 - smoothing) at the target plus smoothing / V everywhere
    (Szegedy et al. 2016, section 7), as in `torch.nn.functional.cross_entropy`.
    """
    return _LabelSmoothedCrossEntropy.apply(logits, targets, smoothing)


def log_probabilities(
    logits: Float[Tensor, "N V"], targets: Int[Tensor, "N"]
) -> Float[Tensor, "N"]:
    """Return the log probability of each target, in float32 or the precision above it."""
    work = torch.promote_types(logits.dtype, torch.float32)
    return logits.to(work).log_softmax(-1).gather(1, targets[:, None])[:, 0]


class _LabelSmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        rows, vocab = logits.shape
        chunk = max(1, _CACHE_ELEMENTS // vocab) if logits.is_cpu else rows
        work = torch.promote_types(logits.dtype, torch.float32)
        gradient = torch.empty_like(logits) if logits.requires_grad else None
        loss, nll = logits.new_zeros((), dtype=work), logits.new_zeros((), dtype=work)
        for start in range(0, rows, max(chunk, 1)):
            part = slice(start, start + chunk)
            scores = logits[part].to(work)
            wanted = targets[part, None]
            picked = scores.gather(1, wanted)[:, 0]
            # The softmax of the largest score is 1 / sum(exp(scores - largest)).
            share = scores.softmax(-1)
            log_total = scores.amax(-1) - share.amax(-1).log()
            nll += (log_total - picked).sum()
            loss += (log_total - (1 - smoothing) * picked - smoothing * scores.mean(-1)).sum()
            if gradient is not None:
                slope = share.sub_(smoothing / vocab)
                slope.scatter_add_(1, wanted, torch.full_like(wanted, smoothing - 1, dtype=work))
                gradient[part] = slope
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, loss_gradient: Tensor, _: Tensor) -> tuple[Tensor | None, None, None]:
        (gradient,) = ctx.saved_tensors  # used this once, so it may be scaled in place
        return gradient.mul_(loss_gradient.to(gradient.dtype)), None, None
