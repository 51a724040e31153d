"""Takes all norms of a model through a run, and recalibrates their running statistics."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.distributed.process_group import sum_over_ranks
from normlab.errors import UserError
from normlab.norms.base import Norm
from normlab.norms.moments import Moments
from normlab.norms.ramp import Clock
from normlab.norms.running import RunningNorm, normalized_by, running_norms, statistics_kept


class ModelNorms:
    """All norms of a model, which it takes through the steps of a run.

    After the share `freeze_statistics` of the run's steps, running statistics are frozen, and
    training normalizes with them.
    """

    def __init__(self, model: nn.Module, *, freeze_statistics: float | None = None) -> None:
        self._freeze_statistics = freeze_statistics
        self._named = {n: m for n, m in model.named_modules() if isinstance(m, Norm)}
        self._running = running_norms(model)

    def milestones(self, total: int | None) -> dict[str, int]:
        """Return the last step of each phase of the norms in a run of `total` steps, by name.

        Phases without steps are omitted. A phase's name is like `BatchRenorm/warmup`. If norms of
        the same class have different phases, the names of later ones have the norm's path in the
        model instead of the class.
        """
        steps: dict[str, int] = {}
        if (last := self._last_unfrozen(total)) is not None:
            steps["freeze_statistics"] = last
        for place, norm in self._named.items():
            for phase, step in norm.last_steps(total).items():
                name = f"{type(norm).__name__}/{phase}"
                if step and steps.setdefault(name, step) != step:
                    steps[f"{place}/{phase}"] = step
        return steps

    def begin_step(self, step: int, total: int | None) -> None:
        """Set the step of all norms, and freeze their statistics once it is time.

        `total` is the number of steps of the run, or None if it is unknown.
        """
        last = self._last_unfrozen(total)
        for norm in self._named.values():
            norm.begin_step(Clock(step, total))
        for norm in self._running:
            norm.frozen = last is not None and step > last
            if norm.frozen:
                norm.last_batch = None  # frozen norms measure no batch, so probes have none to read
            norm.pending.begin()

    def _last_unfrozen(self, total: int | None) -> int | None:
        """Return the last step that uses batch statistics, or None if they are never frozen."""
        if self._freeze_statistics is None:
            return None
        if total is None:
            raise UserError(f"freeze_statistics={self._freeze_statistics} needs budget.steps")
        return round(self._freeze_statistics * total)

    def commit(self) -> None:
        """Update running statistics with the moments that the norms collected during an update."""
        for norm in self._running:
            norm.commit()

    def penalty(self) -> Float[Tensor, ""] | None:
        """Return and clear the sum of the norms' extra losses on the last micro-batch, or None.

        It has a gradient, so add it to the summed loss before the backward pass.
        """
        for norm in self._running:
            norm.pending.collect()
        terms = [norm.extra_loss for norm in self._named.values() if norm.extra_loss is not None]
        for norm in self._named.values():
            norm.extra_loss = None
        return torch.stack(terms).sum() if terms else None


@contextmanager
def recalibrated(
    model: nn.Module,
    run_batches: Callable[[], None],
    norms: Sequence[RunningNorm] | None = None,
) -> Iterator[None]:
    """Use recalibrated running statistics inside the context, and restore the old ones on exit.

    `norms` are the norms to recalibrate, or None for all. `run_batches` feeds batches to the model.
    Meanwhile, the model is in eval mode (no dropout), but these norms use batch statistics, in each
    process those of its own batches. The new statistics are the moments pooled over all batches of
    all processes, which may feed different numbers of batches ("precise BN", Wu and Johnson 2021).
    Rows that no batch reaches keep their statistics. Raises UserError if no norm gets any tokens.
    """
    norms = running_norms(model) if norms is None else norms
    means = {norm: norm.running_moments()[0] for norm in norms}
    sums = {n: mean.new_zeros(4, *mean.shape, dtype=torch.float64) for n, mean in means.items()}

    def add(total: Tensor, batch: Moments, first: int) -> None:
        total[:, first : first + len(batch.mean)] += batch.sums()

    with ExitStack() as stack:
        for norm, total in sums.items():
            norm.watchers.append(partial(add, total))
            stack.callback(norm.watchers.pop)
        stack.enter_context(normalized_by(model, "batch", norms))
        stack.enter_context(torch.no_grad())
        run_batches()
    moments = {n: Moments.pooled(sum_over_ranks(s), torch.float64) for n, s in sums.items()}
    if moments and not any(bool((pooled.count > 1).any()) for pooled in moments.values()):
        raise UserError("recalibration had no tokens: run_batches must run at least one batch")
    with statistics_kept(model):
        for norm, pooled in moments.items():
            mean, var = norm.estimates(pooled)
            norm.enter(slice(None), mean, var, (pooled.count >= norm.fewest).to(mean))
        yield
