"""Follow the training-inference discrepancy: how far batch and running statistics are apart.

In the form of the paper (Wang, Wu and Huang 2022, as code that cites it has it), a mean over the
observed steps:

    mean = ||mu_B - mu|| / ||sigma||        var = ||sigma_B - sigma|| / ||sigma||

with Euclidean norms over the features of one norm, mu and sigma the running statistics before the
batch has entered them. Their released code logs another form, per feature and after the batch has
entered (so 1 - momentum times as large):

    code_mean = mean_c |mu - mu_B| / sigma_B        code_var = mean_c |sigma / sigma_B - 1|

Each is a mean over the norms of the model, and by site. With `sync` the batch is that of all
processes. A model without running statistics has no figures.
"""

import torch
from torch import Tensor, nn

from normlab.probes.base import StepView
from normlab.probes.batch_statistics import NO_RUNNING, Statistics, StatisticsReader
from normlab.probes.figures import FigureProbe, all_by_site


class TrainInferenceDiscrepancy(FigureProbe):
    """Log and average the discrepancy in both forms; `eps` keeps a variance from being 0."""

    def __init__(self, *, every: int, eps: float) -> None:
        super().__init__(every=every)
        self._eps = eps

    def attach(self, model: nn.Module) -> None:
        """Find the norms with running statistics."""
        self._reader = StatisticsReader(model)
        self.why_not = "" if self._reader.norms else NO_RUNNING

    def before_forward(self, step: int) -> None:
        """Keep the running statistics."""
        self._reader.remember()

    def before_update(self, view: StepView) -> None:
        """Compare the batch's statistics with them."""
        found = {name: discrepancy(s, eps=self._eps) for name, s in self._reader.read()}
        self.take(view, all_by_site(found))


def discrepancy(statistics: Statistics, *, eps: float) -> dict[str, Tensor]:
    """Return `mean`, `var`, `code_mean` and `code_var` of one norm at one step."""
    s = statistics
    sigma_batch = s.var.clamp(min=eps).sqrt()
    sigma_before = s.var_before.clamp(min=eps).sqrt()
    sigma_after = s.var_after.clamp(min=eps).sqrt()
    scale = torch.linalg.vector_norm(sigma_before)
    return {
        "mean": torch.linalg.vector_norm(s.mean - s.mean_before) / scale,
        "var": torch.linalg.vector_norm(sigma_batch - sigma_before) / scale,
        "code_mean": ((s.mean_after - s.mean).abs() / sigma_batch).mean(),
        "code_var": (sigma_after / sigma_batch - 1).abs().mean(),
    }
