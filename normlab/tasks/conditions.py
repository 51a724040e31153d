"""The conditions under which a test is repeated: statistics, batch size, noise, brightness."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from normlab.models.noise import noisy, noisy_weights
from normlab.norms.model_norms import recalibrated
from normlab.norms.running import EvalStats, RunningNorm, normalized_by, running_norms
from normlab.tasks.base import Task


@dataclass(frozen=True)
class Condition:
    """Settings under which to repeat the test. None keeps the run's own setting.

    `noise` is the standard deviation of noise on the input (see `noisy`), `weight_noise` that of
    noise on the weights (see `noisy_weights`), and `brightness` is a factor for all pixels.
    """

    eval_stats: EvalStats | None = None
    batch_size: int | None = None
    noise: float | None = None
    weight_noise: float | None = None
    brightness: float | None = None

    @property
    def name(self) -> str:
        """The condition's segment of a score path, such as `eval_stats_batch/batch_size_1`."""
        values = ((name, value) for name, value in vars(self).items() if value is not None)
        return "/".join(
            f"{name}_{value:g}" if isinstance(value, float) else f"{name}_{value}"
            for name, value in values
        )

    def matters(self, model: nn.Module) -> bool:
        """Return whether the condition can change the model's outputs."""
        return self.eval_stats is None or bool(running_norms(model))


def conditions(task: Task, disturbances: Mapping[str, Sequence[float]]) -> list[Condition]:
    """Return the conditions under which a task's test is repeated.

    `disturbances` has the values of noise, weight noise and brightness, by name.
    """
    sizes = [Condition(batch_size=size) for size in task.test_batch_sizes]
    stats = [Condition(eval_stats=each) for each in task.test_eval_stats]
    both = [replace(each, eval_stats="batch") for each in sizes]
    disturbed = [
        replace(Condition(), **{name: float(value)})
        for name, values in disturbances.items()
        for value in values
    ]
    return [*sizes, *stats, *(both if "batch" in task.test_eval_stats else []), *disturbed]


def norms_to_recalibrate(model: nn.Module, *, recalibrate: bool) -> list[RunningNorm]:
    """Return the norms whose running statistics must be recalibrated before the model is used.

    These are the norms with `eval_stats: recalibrated` and, with `recalibrate`, those with
    `eval_stats: running`.
    """
    kinds = {"recalibrated", "running"} if recalibrate else {"recalibrated"}
    return [norm for norm in running_norms(model) if norm.eval_stats in kinds]


@contextmanager
def under(
    condition: Condition,
    task: Task,
    model: nn.Module,
    batches: Iterable[Any],
    *,
    recalibrate: bool,
) -> Iterator[None]:
    """Apply a condition to a model that is in eval mode, and undo it on exit.

    The running statistics of norms with `eval_stats: recalibrated` are recalibrated on training
    `batches`, and also those of norms with `eval_stats: running` if `recalibrate` is set because
    they do not match the weights (averaged weights). The other norms keep their own statistics.
    """
    with ExitStack() as stack:
        if condition.eval_stats is not None:
            stack.enter_context(normalized_by(model, condition.eval_stats))
        if norms := norms_to_recalibrate(model, recalibrate=recalibrate):
            device = next(model.parameters()).device

            def run() -> None:
                for batch in batches:
                    task.losses(model, batch.to(device))

            stack.enter_context(recalibrated(model, run, norms))
        if condition.noise is not None:
            stack.enter_context(noisy(model, condition.noise))
        if condition.weight_noise is not None:
            stack.enter_context(noisy_weights(model, condition.weight_noise))
        if condition.brightness is not None:
            stack.enter_context(task.dimmed(condition.brightness))
        yield
