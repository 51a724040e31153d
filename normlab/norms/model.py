"""The norms of a model as a run meets them: each step, each micro-batch, each checkpoint."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import Clock, Norm, RunningNorm, running_norms
from normlab.norms.ranks import average_, world


class ModelNorms:
    """All norms of a model.

    `freeze_statistics` is the share of a run after which running statistics stay as they are and
    training normalizes by them; None for never.

    Raises ValueError for that with norms whose inference takes the batch's own statistics.
    """

    def __init__(self, model: nn.Module, *, freeze_statistics: float | None = None) -> None:
        self._freeze_statistics = freeze_statistics
        self._named = {n: m for n, m in model.named_modules() if isinstance(m, Norm)}
        self._running = running_norms(model)
        by_batch = any(norm.eval_stats == "batch" for norm in self._running)
        if freeze_statistics is not None and by_batch:
            raise ValueError(
                f"freeze_statistics={freeze_statistics}: norm.eval_stats=batch takes no running "
                "statistics that could be frozen; give norm.eval_stats=running"
            )

    def milestones(self, total: int | None) -> dict[str, int]:
        """Return the last step of each phase of the norms in a run of `total` steps.

        Phases of no steps are left out. Their names are `BatchRenorm/warmup`; where norms of one
        class differ, the later are named by their place,
        `decoder.layers.0.self_residual.norm/warmup`.
        """
        found: dict[str, int] = {}
        if (last := self._last_unfrozen(total)) is not None:
            found["freeze_statistics"] = last
        for place, norm in self._named.items():
            for phase, step in norm.last_steps(total).items():
                name = f"{type(norm).__name__}/{phase}"
                if step and found.setdefault(name, step) != step:
                    found[f"{place}/{phase}"] = step
        return found

    def begin_step(self, step: int, total: int | None) -> None:
        """Tell all norms which step comes, from 1, of how many; None where that is not known."""
        clock = Clock(step, total)
        for norm in self._named.values():
            norm.clock = clock
        last = self._last_unfrozen(total)
        for norm in self._running:
            if last is not None and step > last and not norm.frozen:
                norm.frozen = True
                norm.eval()
            norm.held = []

    def _last_unfrozen(self, total: int | None) -> int | None:
        """Return the last step with statistics of the batch; None where they are not frozen."""
        if self._freeze_statistics is None:
            return None
        if total is None:
            raise ValueError(
                f"freeze_statistics={self._freeze_statistics} is a share of the steps of a run: "
                "give budget.steps"
            )
        return round(self._freeze_statistics * total)

    def commit(self) -> None:
        """Let an update's micro-batches into the statistics that waited for all of them."""
        for norm in self._running:
            norm.commit()

    def penalty(self) -> Float[Tensor, ""] | None:
        """Take the sum of what norms add to the summed loss of the last micro-batch, if any do.

        It carries a gradient, and is to be taken before the backward pass.
        """
        terms = [norm.extra_loss for norm in self._named.values() if norm.extra_loss is not None]
        for norm in self._named.values():
            norm.extra_loss = None
        return torch.stack(terms).sum() if terms else None

    def share_statistics(self) -> None:
        """Replace unsynced running statistics by their mean over processes.

        Due before evaluating or saving: with `sync=false` each process has its own. The variance is
        the mean variance within processes; how far their means are apart is left out.
        """
        average_(self._unsynced.values())

    def own_statistics(self) -> dict[str, Tensor]:
        """Return a copy, on the CPU, of the tables that a process keeps without the others."""
        return {name: table.detach().cpu().clone() for name, table in self._unsynced.items()}

    @torch.no_grad()
    def restore_statistics(self, own: Mapping[str, Tensor]) -> None:
        """Restore a copy of these tables."""
        for name, table in self._unsynced.items():
            table.copy_(own[name])

    @property
    def _unsynced(self) -> dict[str, Tensor]:
        """The tables of norms that are not synced, by name; none for a single process."""
        return {
            f"{place}.{name}": table
            for place, norm in self._named.items()
            if world().size > 1 and isinstance(norm, RunningNorm) and not norm.sync
            for name, table in norm.tables.items()
        }
