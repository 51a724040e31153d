"""Follow the gradient of the loss that flows through batch statistics.

A norm's output is y = w (x - mu) / sigma + b, so that, with mu and sigma^2 those of the batch and
sigma^2 holding the norm's eps,

    dL/dmu = -w / sigma * sum dL/dy          = -w / sigma dL/db
    dL/dsigma^2 = -w / (2 sigma^2) sum dL/dy z = -w / (2 sigma^2) dL/dw

(Ioffe and Szegedy 2015, section 3): the gradients of the norm's own weight and bias hold the sums
already, and nothing is hooked. `mean` and `var` are their Euclidean norms over d, the number of
statistics: (1/d) ||dL/dmu|| and (1/d) ||dL/dsigma^2||. Shen et al. 2020 (PowerNorm) follow the same
gradients, g_mu and g_sigma^2, over training.

Left out: norms without a learned weight and bias, those with statistics per position, as all have
that a recurrence calls step by step, whose sums over tokens the parameters do not hold, and those
that a batch's own statistics alone do not normalize (ghost batches, PowerNorm, batch
renormalization). With accumulation sigma is the last micro-batch's and the gradients are those of
all; with several processes and `sync: false` likewise.
"""

import torch
from torch import Tensor, nn

from normlab.norms.base import RunningNorm
from normlab.probes.base import StepView
from normlab.probes.figures import FigureProbe, by_site
from normlab.probes.sites import sites


class StatisticsGradient(FigureProbe):
    """Log and average the gradients through the batch's mean and variance."""

    def attach(self, model: nn.Module) -> None:
        """Find the norms whose statistics pool all tokens."""
        self._norms = {
            name: norm
            for name, norm in sites(model, RunningNorm).items()
            if {"batch", "position"} <= norm.pools and not norm.by_position
        }
        self.why_not = "" if self._norms else "no norm pools all tokens of a batch"

    def before_update(self, view: StepView) -> None:
        """Take the gradients of the step."""
        means, variances = {}, {}
        for name, norm in self._norms.items():
            found = statistics_gradient(norm)
            if found is not None:
                means[name], variances[name] = (
                    torch.linalg.vector_norm(gradient) / gradient.numel() for gradient in found
                )
        self.take(view, {**by_site("mean", means), **by_site("var", variances)})


@torch.no_grad()
def statistics_gradient(norm: RunningNorm) -> tuple[Tensor, Tensor] | None:
    """Return dL/dmu and dL/dsigma^2 of a norm's last batch; None where they cannot be told."""
    divisor = norm.batch_divisor()
    if divisor is None or norm.weight.grad is None or norm.bias.grad is None:
        return None
    pulls = torch.stack([norm.weight * norm.bias.grad, norm.weight * norm.weight.grad])
    if "feature" in norm.pools:
        pulls = pulls.sum(-1, keepdim=True)
    return -pulls[0] / divisor, -pulls[1] / (2 * divisor.square())
