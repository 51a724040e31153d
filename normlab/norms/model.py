"""What a run does with all norms of a model: per step, per micro-batch and per checkpoint."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.base import Clock, Norm, RunningNorm, running_norms
from normlab.norms.ranks import average_, world


class ModelNorms:
    """All norms of a model.

    `freeze_statistics` is the share of a run after which running statistics are frozen and training
    normalizes by them; None to never freeze them.

    Raises ValueError if it is given and a norm uses batch statistics in inference.
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

        Phases without steps are left out. A phase is called `BatchRenorm/warmup`; if norms of the
        same class differ, later ones are called by their path in the model,
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
        """Set all norms' clock to a step of `total` (if known); freeze statistics if due."""
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
        """Return the last step that uses batch statistics; None if they are never frozen."""
        if self._freeze_statistics is None:
            return None
        if total is None:
            raise ValueError(
                f"freeze_statistics={self._freeze_statistics} is a share of the steps of a run: "
                "give budget.steps"
            )
        return round(self._freeze_statistics * total)

    def commit(self) -> None:
        """Enter the micro-batches of an update into the running statistics that wait for them."""
        for norm in self._running:
            norm.commit()

    def penalty(self) -> Float[Tensor, ""] | None:
        """Return and clear the sum of the norms' extra losses on the last micro-batch, if any.

        It belongs to the summed loss and carries a gradient: call this before the backward pass.
        """
        terms = [norm.extra_loss for norm in self._named.values() if norm.extra_loss is not None]
        for norm in self._named.values():
            norm.extra_loss = None
        return torch.stack(terms).sum() if terms else None

    def share_statistics(self) -> None:
        """Replace unsynced running statistics by their mean over processes.

        Needed before evaluating or saving: with `sync=false` each process has its own. Variances
        are averaged too; the variance between the means of processes is ignored.
        """
        average_(self._unsynced.values())

    def own_statistics(self) -> dict[str, Tensor]:
        """Return a CPU copy of the running statistics that processes do not share."""
        return {name: table.detach().cpu().clone() for name, table in self._unsynced.items()}

    @torch.no_grad()
    def restore_statistics(self, own: Mapping[str, Tensor]) -> None:
        """Restore the running statistics that `own_statistics` returned."""
        for name, table in self._unsynced.items():
            table.copy_(own[name])

    @property
    def _unsynced(self) -> dict[str, Tensor]:
        """The running statistics of norms without `sync`, by name; empty for a single process."""
        return {
            f"{place}.{name}": table
            for place, norm in self._named.items()
            if world().size > 1 and isinstance(norm, RunningNorm) and not norm.sync
            for name, table in norm.tables.items()
        }
