"""Follow what batch statistics are made of: the share of padding, and the tokens they pool.

`share` is the padding among all positions of a step's batch and `max` the largest share of the run.
`tokens` is how many tokens one statistic of the batch is made of, a mean over the norms that pool
over the batch, and over positions where these have statistics of their own; padding counts where
the norm includes it. A model without such norms has no `tokens`.
"""

import torch
from torch import Tensor, nn

from normlab.norms.base import RunningNorm
from normlab.probes.base import StepView
from normlab.probes.figures import FigureProbe
from normlab.probes.sites import sites


class Padding(FigureProbe):
    """Log and average the padding share and the tokens of a batch statistic, at every step."""

    def __init__(self) -> None:
        super().__init__(every=1, largest=("max",))
        self._norms: list[RunningNorm] = []

    def attach(self, model: nn.Module) -> None:
        """Find the norms that pool over the batch."""
        self._norms = list(sites(model, RunningNorm).values())

    def before_update(self, view: StepView) -> None:
        """Take the padding share of the step's batch, and the tokens of its statistics."""
        share = torch.tensor(view.padding_share, dtype=torch.float64)
        self.take(view, {"share": share, "max": share})
        tokens = [pooled_tokens(norm) for norm in self._norms if norm.seen is not None]
        if tokens:
            self.take(view, {"tokens": torch.stack(tokens).mean()})


def pooled_tokens(norm: RunningNorm) -> Tensor:
    """Return how many tokens a statistic of the norm's last batch was made of, on average."""
    assert norm.seen is not None
    values = norm.dim if "feature" in norm.pools else 1
    return norm.seen.count.double().mean() / values
