"""When a run ends, by its budget, a divergence or a signal; and what its validations have shown.

A run has diverged when the loss or the gradient of a step is not finite, or when the mean loss of a
log interval exceeds a multiple of the first step's loss. A step that is not finite is not taken, so
one more forward pass, on the same batch with the same random numbers, finds the first layer whose
output was not finite.
"""

import math
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, ClassVar

import torch
from msgspec import to_builtins
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from normlab.records.record import Score


@dataclass(frozen=True)
class Budget:
    """Limits of a run; None is no limit, and at least one is set.

    `tokens` counts target tokens. With a limit in minutes the number of steps depends on the
    machine.
    """

    steps: int | None = None
    epochs: float | None = None
    tokens: int | None = None
    minutes: float | None = None

    def __post_init__(self):
        limits = vars(self)
        if all(limit is None for limit in limits.values()):
            raise ValueError("budget: set at least one of budget.steps, epochs, tokens, minutes")
        for name, limit in limits.items():
            if limit is not None and limit <= 0:
                raise ValueError(f"budget.{name}={limit} must be above 0")

    def spent(self, *, steps: int, epochs: float, tokens: int, seconds: float) -> str | None:
        """Return the name of the limit that is reached, or None."""
        used = {"steps": steps, "epochs": epochs, "tokens": tokens, "minutes": seconds / 60}
        for name, limit in vars(self).items():
            if limit is not None and used[name] >= limit:
                return name
        return None


class Diverged(Exception):
    """The end of a run that blew up: the step that was not taken, why, and the first bad layer."""

    def __init__(self, step: int, reason: str, layer: str | None):
        super().__init__(f"step {step}: {reason}" + (f" at {layer}" if layer else ""))
        self.step, self.reason, self.layer = step, reason, layer


def first_nonfinite_layer(model: nn.Module, forward: Callable[[], object]) -> str | None:
    """Run `forward` and return the name of the first leaf module with a non-finite output."""
    found: list[str] = []

    def watch(name: str, module: nn.Module) -> RemovableHandle:
        def look(_: nn.Module, __: object, output: object) -> None:
            if isinstance(output, Tensor) and not found and not output.isfinite().all():
                found.append(name)

        return module.register_forward_hook(look)

    hooks = [watch(name, m) for name, m in model.named_modules() if not list(m.children())]
    try:
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None


def first_nonfinite_gradient(model: nn.Module) -> str | None:
    """Return the parameter nearest the loss (last in order) whose gradient is not finite."""
    bad = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and not parameter.grad.isfinite().all()
    ]
    return bad[-1] if bad else None


class Interrupts:
    """While entered, remember SIGTERM or Ctrl-C for the loop; a second signal acts at once."""

    SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._former: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        for number in self.SIGNALS:
            try:
                self._former[number] = signal.signal(number, self._remember)
            except ValueError:  # not the main thread: the host program handles signals
                return self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        signal.signal(number, self._former[number])


@dataclass
class Targets:
    """Since when each target has held, over a run's validations.

    `values` are targets by the name of a validation score. A target that is lost again counts from
    when it is reached for good. `since` holds (step, tokens) of those that hold now; `validations`
    counts how often was looked.
    """

    values: Mapping[str, Sequence[float]]
    since: dict[str, tuple[int, int]] = field(default_factory=dict)
    validations: int = 0

    def see(self, scores: Mapping[str, Score], *, step: int, tokens: int) -> None:
        """Take in a validation; raises ValueError for a target that is no score of the task."""
        self.validations += 1
        for name, values in self.values.items():
            score = scores.get(f"valid/{name}")
            if score is None:
                there = ", ".join(sorted(known.removeprefix("valid/") for known in scores))
                raise ValueError(
                    f"a target is set for {name}, which is no score of this task; it has {there}: "
                    "correct observe.targets"
                )
            sign = 1 if score.higher_is_better else -1
            for value in values:
                if sign * score.value >= sign * value:
                    self.since.setdefault(_label(name, value), (step, tokens))
                else:
                    self.since.pop(_label(name, value), None)

    def scores(self, *, lost: bool) -> dict[str, Score]:
        """Return steps and tokens to each target; infinite for one not reached, or all if `lost`.

        Names: `valid/steps_to/<score>_<value>` and `valid/tokens_to/<score>_<value>`.
        """
        labels = [_label(name, value) for name, values in self.values.items() for value in values]
        never = (math.inf, math.inf)
        ends = {label: never if lost else self.since.get(label, never) for label in labels}
        return {
            f"valid/{kind}_to/{label}": Score(float(end[part]), False, self.validations)
            for part, kind in enumerate(("steps", "tokens"))
            for label, end in ends.items()
        }


def _label(name: str, value: float) -> str:
    return f"{name}_{value:g}"


@dataclass
class Convergence:
    """The one definition of "steps to converge", from a run's validation losses.

    It is the first update at which the loss is at most `MARGIN` above its last value, and only if
    the loss gained less than `MARGIN` over the last `TAIL` of the run. Without a validation before
    that last part nobody knows, and the run has not converged.

    Attributes:
        curve: step, tokens and loss of each validation.
    """

    curve: list[tuple[int, int, float]] = field(default_factory=list)

    LOSS: ClassVar[str] = "valid/loss"
    MARGIN: ClassVar[float] = 0.01
    TAIL: ClassVar[float] = 0.2

    def see(self, scores: Mapping[str, Score], *, step: int, tokens: int) -> None:
        """Take in a validation; a task without a score called `loss` never converges."""
        if (score := scores.get(self.LOSS)) is not None:
            self.curve.append((step, tokens, score.value))

    def scores(self, *, lost: bool) -> dict[str, Score]:
        """Return steps and tokens to converge; infinite for a run that did not, or is `lost`.

        Names: `valid/steps_to_converge` and `valid/tokens_to_converge`.
        """
        place = None if lost else self._place()
        steps, tokens = (math.inf, math.inf) if place is None else place
        count = len(self.curve)
        return {
            "valid/steps_to_converge": Score(float(steps), False, count),
            "valid/tokens_to_converge": Score(float(tokens), False, count),
        }

    def _place(self) -> tuple[int, int] | None:
        """Return step and tokens at which the run has converged, None where it has not."""
        if not self.curve:
            return None
        end, _, last = self.curve[-1]
        before = [loss for step, _, loss in self.curve if step <= (1 - self.TAIL) * end]
        bound = last + self.MARGIN * abs(last)
        if not before or not math.isfinite(last) or not before[-1] < bound:
            return None
        return next((step, tokens) for step, tokens, loss in self.curve if loss <= bound)


@dataclass(frozen=True)
class Best:
    """The best validation so far: its step, and its scores by their paths."""

    step: int
    scores: dict[str, Score]


class BestValidations:
    """The best validation by each of `names`, scores without their split, such as `bleu`.

    Of equal validations the first is the best; NaN is worse than any number.
    """

    def __init__(self, names: Sequence[str]):
        self.names = tuple(dict.fromkeys(names))
        self.found: dict[str, Best] = {}

    def see(self, scores: Mapping[str, Score], *, step: int) -> list[str]:
        """Take in a validation; return the names by which it is the best so far.

        Raises ValueError for a name that is no score of the task.
        """
        better = [name for name in self.names if self._is_better(name, scores)]
        self.found |= {name: Best(step, dict(scores)) for name in better}
        return better

    def _is_better(self, name: str, scores: Mapping[str, Score]) -> bool:
        path = f"valid/{name}"
        if path not in scores:
            there = ", ".join(sorted(known.removeprefix("valid/") for known in scores))
            raise ValueError(f"validate.select_by={name} is no score of this task; it has {there}")
        if name not in self.found:
            return True
        now, former = scores[path], self.found[name].scores[path].value
        sign = 1 if now.higher_is_better else -1
        return math.isnan(former) or sign * now.value > sign * former

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return to_builtins(self.found)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.found = {
            name: Best(
                best["step"], {path: Score(**score) for path, score in best["scores"].items()}
            )
            for name, best in state.items()
        }
