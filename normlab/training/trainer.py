"""The training loop.

A step draws all its micro-batches, counts the denominator of each loss over all micro-batches and
ranks, back-propagates the summed losses divided by these counts, and updates once. Its gradient is
therefore the gradient of the mean loss over the whole step, for any padding, accumulation and
number of processes. Each micro-batch gets exactly one forward pass in training mode, because each
such pass updates running statistics.
"""

import time
from collections.abc import Mapping
from contextlib import closing
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from normlab.data.batching import BatchesAhead
from normlab.distributed import process_group
from normlab.norms.model_norms import ModelNorms
from normlab.probes.base import ProbeGroup, StepView
from normlab.records.record import Outcome, Score
from normlab.stages import TRAINING, Stage, say
from normlab.tasks.base import Batch, Task
from normlab.training.checkpoint import (
    Checkpoints,
    check_kept,
    random_state,
    restore_random_state,
    restore_rank,
)
from normlab.training.counters import Counters
from normlab.training.divergence import (
    Diverged,
    Divergence,
    Verdict,
    first_nonfinite_gradient,
    first_nonfinite_layer_of_ranks,
)
from normlab.training.evaluate import Evaluator, best_by
from normlab.training.runtime import Runtime
from normlab.training.schedule import Schedule
from normlab.training.sinks import NO_SCORES, Notice, Row, SinkGroup
from normlab.training.stopping import Budget, Interrupts, Validation, Validations


class StepBatches(NamedTuple):
    """The micro-batches of a step on this rank, with their sums over all micro-batches and ranks.

    `counts` has the denominator of each loss, by name. `sums` has the numbers of tokens, positions
    and padding. `stop` says whether any rank has been asked to stop.
    """

    step: int
    batches: list[Batch]
    counts: Mapping[str, float]
    sums: Mapping[str, float]
    stop: bool


@dataclass(kw_only=True, eq=False)
class Trainer:
    """Trains a model on a task. `fit` runs the whole training.

    `config` is the run's plain config. `stamp` has plain values about the run's code and data,
    which are written into each checkpoint.
    """

    config: Mapping[str, Any]
    task: Task
    model: nn.Module
    runtime: Runtime
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    evaluator: Evaluator
    norms: ModelNorms
    probes: ProbeGroup
    checkpoints: Checkpoints
    sinks: SinkGroup = field(default_factory=partial(SinkGroup, {}))
    stamp: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        config, device = self.config, self.runtime.device
        observe, self.validate = config["observe"], config["validate"]
        self.budget, self.log_every = Budget(**config["budget"]), observe["log_every"]
        if observe["debug"]:
            self.budget, self.log_every = self.budget.for_debugging(), 1
        self.best_by = best_by(self.validate, self.task.headline)
        self.batches = BatchesAhead(
            self.task.train_batches(self.runtime.world, config["seed"]),
            ahead=config["accumulate"] if device.type == "cuda" else 0,
            device=device,
        )
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.counters, self.validations = Counters(), Validations()
        self.divergence = Divergence(config["divergence_factor"], device)
        self._epoch_ended = False
        self._before_unread: Mapping[str, Any] | None = None  # the state before the unread steps
        self._rank_0_seconds: float | None = None  # rank 0's clock decides for all processes
        self._clock = time.perf_counter()

    def fit(self) -> Outcome:
        """Train until the budget is spent, the score stalls, or the run diverges or is stopped."""
        self.start()
        with Interrupts() as interrupts, closing(self.batches):
            while (end := self._end()) is None:
                try:
                    interrupted = self.step(stop_requested=interrupts.received is not None)
                except Diverged as divergence:
                    self.sinks.note(Notice(f"diverged at {divergence}"))
                    return Outcome("diverged", divergence.step, divergence.reason, divergence.layer)
                validated = self._due(self.validate["every"]) or self._budget_spent()
                if validated:
                    self._validate()
                due = self._due(self.config["observe"]["checkpoint_every"])
                if interrupted or validated or due:
                    self.save()
                if interrupted:
                    break
            # A signal may have arrived during the last validation, after the last step's check.
            if process_group.sum_scalars([float(interrupts.received is not None)])[0] > 0:
                name = interrupts.received.name if interrupts.received else "another rank"
                return Outcome("interrupted", self.counters.step, name)
        self.divergence.end_window(self.counters.step, last=True)
        if (high := self.divergence.high()) is not None:
            self.sinks.note(Notice(f"diverged at step {high.step}: {high.reason}"))
            return Outcome("diverged", high.step, high.reason)
        return Outcome("finished", self.counters.step, end)

    def start(self) -> None:
        """Prepare for the first step. Callers of `step` must call this first, as `fit` does."""
        self.model.train()
        self.probes.attach(self.model)
        if notice := self.probes.notice:
            self.sinks.note(Notice(notice))
        self._clock = time.perf_counter()

    def _end(self) -> str | None:
        patience, score = self.validate["patience"], self.validate["select_by"]
        if patience is not None and self.validations.since_best(score) >= patience:
            return "patience"
        return self._budget_spent()

    def _budget_spent(self) -> str | None:
        return self.budget.spent(**self._used)

    @property
    def _used(self) -> dict[str, Any]:
        """The steps, epochs, tokens and seconds that the run has used."""
        at, shared = self.counters, self._rank_0_seconds
        return {
            **{"steps": at.step, "epochs": self.batches.epochs},
            **{"tokens": at.tokens, "seconds": at.seconds if shared is None else shared},
        }

    def _due(self, every: int | Literal["epoch"]) -> bool:
        return self._epoch_ended if every == "epoch" else self.counters.step % every == 0

    def step(self, *, stop_requested: bool = False) -> bool:
        """Take one step, and return whether any rank has been asked to stop.

        Raises Diverged for the first step that diverged. If that step was not finite, the state is
        the one before it, otherwise the one after it (see `Divergence`).
        """
        take = self._checked_step if self.log_every == 1 else self._unread_step
        return take(stop_requested=stop_requested)

    def _unread_step(self, *, stop_requested: bool) -> bool:
        """Take one step without waiting for the device, and check it later.

        The steps since the last row are read from the device together, when a row is logged, a
        checkpoint is due or the run stops. If one of them has diverged, they are repeated, and each
        is checked before its update.
        """
        started = time.perf_counter()
        before = self._before_unread = self._before_unread or self._copy_of_state()
        drawn = self._draw(stop_requested=stop_requested)
        totals, grad_norm = self._backward(drawn)
        self._update(drawn, totals[0], grad_norm)
        saves = self._due(self.config["observe"]["checkpoint_every"])
        if not (drawn.stop or saves or self._row_due()):
            self._end_step(started)
            return drawn.stop
        verdict, self._before_unread = self._judge(), None
        if verdict is None or (verdict.taken and verdict.step == drawn.step):
            self._tick()
            self._end_step(started, verdict)
        else:
            self._repeat_checked(before, verdict.step)
        return drawn.stop

    def _checked_step(self, *, stop_requested: bool = False) -> bool:
        """Take one step, and check its loss and gradient before its update."""
        started = time.perf_counter()
        drawn = self._draw(stop_requested=stop_requested)
        rng_state = random_state(self.runtime.device)
        totals, grad_norm = self._backward(drawn)
        if (verdict := self._judge()) is not None:
            if totals.sum().isfinite():
                layer = first_nonfinite_gradient(self.model)
            else:
                restore_random_state(rng_state, self.runtime.device)
                forwards = [partial(self._loss, batch, drawn.counts) for batch in drawn.batches]
                layer = first_nonfinite_layer_of_ranks(self.model, forwards)
            raise Diverged(drawn.step, verdict.reason, layer)
        self._update(drawn, totals[0], grad_norm)
        verdict = self._judge()
        self._tick()
        self._end_step(started, verdict)
        return drawn.stop

    def _repeat_checked(self, before: Mapping[str, Any], until: int) -> None:
        """Go back to a copy of the state, and repeat the steps up to `until` as checked steps.

        This raises Diverged unless no step diverges this time, because on a GPU, repeated sums may
        differ in their last bits. The run then continues.
        """
        wall, self.divergence = self.counters.seconds, before["divergence"]
        self.restore(before)
        restore_random_state(before["random"], self.runtime.device)
        lost = wall - self.counters.seconds
        try:
            while self.counters.step < until:
                self._checked_step()
        finally:
            self.counters.seconds += lost

    def _copy_of_state(self) -> Mapping[str, Any]:
        """Return a copy of all state that steps change, made without waiting for the device."""
        random = random_state(self.runtime.device)
        return {**deepcopy(self.state()), "divergence": deepcopy(self.divergence), "random": random}

    def _row_due(self) -> bool:
        due = self._due(self.log_every) or self._due(self.validate["every"])
        return due or self._budget_spent() is not None

    def _backward(self, drawn: StepBatches) -> tuple[Tensor, Tensor]:
        """Compute the gradients of a step, and add the step to `divergence`.

        Returns its loss and penalty (float64 [2]), and its gradient norm.
        """
        self.optimizer.zero_grad(set_to_none=True)
        self.norms.begin_step(drawn.step, self.budget.steps)
        self.probes.before_forward(drawn.step)
        totals = torch.zeros(2, dtype=torch.float64, device=self.runtime.device)
        for batch in drawn.batches:
            loss = self._loss(batch, drawn.counts)
            totals[0].add_(loss.detach())
            if (term := self.norms.penalty()) is not None:
                penalty = term / max(*drawn.counts.values(), 1)  # per token of the main loss
                totals[1].add_(penalty.detach())
                loss = loss + penalty
            loss.backward()
        self.norms.commit()
        process_group.sum_gradients(self.parameters)
        grads = [p.grad for p in self.parameters if p.grad is not None]
        totals = process_group.sum_over_ranks(totals)
        grad_norm = torch.nn.utils.get_total_norm(grads)
        self.divergence.add(drawn.step, totals, grad_norm)
        return totals, grad_norm

    def _update(self, drawn: StepBatches, loss: Tensor, grad_norm: Tensor) -> None:
        """Update the weights and count the step. Probes measure before and after the update."""
        rate = self.schedule(drawn.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("rate", 1.0)
        view = StepView(
            step=drawn.step,
            model=self.model,
            loss=loss,
            grad_norm=grad_norm,
            lr=rate,
            padding_share=drawn.sums["padding"] / drawn.sums["positions"],
        )
        self.probes.before_update(view)
        if (limit := self.config["clip_grad"]) is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, limit, grad_norm)
        self.optimizer.step()
        self.probes.after_update(view)
        self.counters.count(drawn.sums)
        self._tick()
        self.divergence.end_window(drawn.step, last=self._budget_spent() is not None)

    def _end_step(self, started: float, verdict: Verdict | None = None) -> None:
        """Time and report a step, and log a row if one is due. Raise Diverged for a `verdict`."""
        at = self.counters
        at.time(time.perf_counter() - started)
        spent = min(1.0, max(self.budget.shares(**self._used).values()))
        say(Stage(TRAINING, at.step, self.budget.steps, at.loss, spent))
        if self._row_due():
            row = at.end_interval(lr=self.schedule(at.step))
            self._log({**row, **self.probes.metrics()})
        if verdict is not None:
            raise Diverged(self.counters.step, verdict.reason, None)

    def _judge(self) -> Verdict | None:
        """Read the steps since the last row, and return a verdict if one of them has diverged."""
        for reading in self.divergence.read():
            if (reason := reading.nonfinite) is not None:
                high = self.divergence.high()
                earlier = high is not None and high.step < reading.step
                return high if earlier else Verdict(reading.step, reason, taken=False)
            self.counters.read(reading)
        return self.divergence.high()

    def _draw(self, *, stop_requested: bool) -> StepBatches:
        """Draw the micro-batches of the next step, and sum their counts over all ranks."""
        epoch = int(self.batches.epochs)
        batches = [next(self.batches) for _ in range(self.config["accumulate"])]
        self._epoch_ended = int(self.batches.epochs) > epoch
        counts = {
            name: sum(batch.counts[name] for batch in batches) for name in sorted(batches[0].counts)
        }
        sums = {
            "tokens": sum(batch.tokens for batch in batches),
            "positions": sum(batch.positions for batch in batches),
            "padding": sum(batch.padding for batch in batches),
            "stop": int(stop_requested),
            "seconds": self.counters.seconds if process_group.is_main() else 0.0,
        }
        totals = process_group.sum_scalars([*map(float, [*counts.values(), *sums.values()])])
        counts = dict(zip(counts, totals, strict=False))
        sums = dict(zip(sums, totals[len(counts) :], strict=True))
        stop, seconds = sums.pop("stop") > 0, sums.pop("seconds")
        self._rank_0_seconds = seconds if process_group.world().size > 1 else None
        return StepBatches(self.counters.step + 1, batches, counts, sums, stop)

    def _loss(self, batch: Batch, counts: Mapping[str, float]) -> Tensor:
        """Return the part of the step's loss that comes from a micro-batch."""
        with self.runtime.autocast():
            losses = self.task.losses(self.model, batch.to(self.runtime.device))
            # The count of a step may be zero, for example if no token could be masked.
            means = [losses[name] / max(counts[name], 1) for name in sorted(losses)]
            return torch.stack(means).sum()

    def _validate(self) -> None:
        """Score the validation split, log it, and save the weights if they are the best so far."""
        at = self.counters
        scores = self.evaluator.scores(self.model, "valid")
        self.validations.history.append(this := Validation(at.step, at.tokens, scores))
        weights = self.model.state_dict()
        for name in self.best_by:
            if self.validations.best(name) is this:
                self.checkpoints.save_best(name, at.step, weights)
        self.checkpoints.keep_for_average(at.step, weights, self.validate["average"])
        self._tick()
        self._log({"step": at.step, "tokens": at.tokens, "time/seconds": at.seconds}, scores)

    def _log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        self.sinks.log(row, scores)
        self.counters.rows += 1

    def _tick(self) -> None:
        now = time.perf_counter()
        self.counters.seconds += now - self._clock
        self._clock = now

    def save(self) -> None:
        """Write the full state, from which a run resumes bit for bit on a CPU."""
        self._tick()
        self.sinks.sync()
        content = {
            **self.stamp,
            **self.state(),
            "divergence": self.divergence.state_dict(),
            "validations": self.validations.state_dict(),
            "random": process_group.gather_objects(random_state(self.runtime.device)),
        }
        self.checkpoints.save(self.checkpoints.last, content)

    def state(self) -> dict[str, Any]:
        """Return the state that steps change, except for divergence and random numbers."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "batches": self.batches.state_dict(),
            "probes": self.probes.state_dict(),
            "progress": asdict(self.counters),  # the key in checkpoints
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state`."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.batches.load_state_dict(state["batches"])
        self.probes.load_state_dict(state["probes"])
        self.counters = Counters(**state["progress"])

    def resume(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `save`, or raise UserError if weights for the test are missing."""
        self.restore(state)
        self.divergence.load_state_dict(state["divergence"])
        self.validations.load_state_dict(state["validations"])
        if self.validations.history:
            average = self.validate["average"]
            check_kept(self.checkpoints, self.best_by, self.counters.step, average)
        restore_rank(state["random"], self.runtime.device)
