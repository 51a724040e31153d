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
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from normlab.data.batching import BatchesAhead
from normlab.distributed import process_group
from normlab.probes.base import StepView
from normlab.progress import TRAINING, Stage, say
from normlab.records.record import Outcome, Score
from normlab.tasks.base import Batch
from normlab.training.build import RunParts
from normlab.training.checkpoint import (
    check_kept,
    random_state,
    restore_random_state,
    restore_rank,
)
from normlab.training.divergence import (
    Diverged,
    Divergence,
    Verdict,
    first_nonfinite_gradient,
    first_nonfinite_layer_of_ranks,
)
from normlab.training.evaluate import best_by
from normlab.training.progress import Progress
from normlab.training.sinks import NO_SCORES, Notice, Row
from normlab.training.stopping import Budget, Interrupts, Validation, Validations

DEBUG_STEPS = 3
"""The maximum number of steps of a run with `observe.debug`."""


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


class Trainer:
    """Trains a model on a task. `fit` runs the whole training."""

    def __init__(self, run: RunParts):
        config, task, runtime = run.config, run.task, run.runtime
        self.config, self.task, self.model, self.runtime = config, task, run.model, runtime
        self.optimizer, self.schedule, self.evaluator = run.optimizer, run.schedule, run.evaluator
        self.probes, self.sinks, self.checkpoints = run.probes, run.sinks, run.checkpoints
        self.norms, self.stamp = run.norms, run.stamp
        observe, self.validate = config["observe"], config["validate"]
        self.budget, self.log_every = Budget(**config["budget"]), observe["log_every"]
        if observe["debug"]:
            steps = min(self.budget.steps or DEBUG_STEPS, DEBUG_STEPS)
            self.budget, self.log_every = replace(self.budget, steps=steps), 1
        self.best_by = best_by(self.validate, task.headline)
        self.batches = BatchesAhead(
            task.train_batches(runtime.world, config["seed"]),
            ahead=config["accumulate"] if runtime.device.type == "cuda" else 0,
            device=runtime.device,
        )
        self.parameters = [p for p in run.model.parameters() if p.requires_grad]
        self.progress, self.validations = Progress(), Validations()
        self.divergence = Divergence(config["divergence_factor"], runtime.device)
        self._epoch_ended = False
        self._before: Mapping[str, Any] | None = None  # the state before the unread steps
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
                return Outcome("interrupted", self.progress.step, name)
        self.divergence.end_window(self.progress.step, last=True)
        if (high := self.divergence.high()) is not None:
            self.sinks.note(Notice(f"diverged at step {high.step}: {high.reason}"))
            return Outcome("diverged", high.step, high.reason)
        return Outcome("finished", self.progress.step, end)

    def start(self) -> None:
        """Prepare for the first step. `fit` calls this; call it before `step` otherwise."""
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
        at, shared = self.progress, self._rank_0_seconds
        return {
            **{"steps": at.step, "epochs": self.batches.epochs},
            **{"tokens": at.tokens, "seconds": at.seconds if shared is None else shared},
        }

    def _due(self, every: int | Literal["epoch"]) -> bool:
        return self._epoch_ended if every == "epoch" else self.progress.step % every == 0

    def step(self, *, stop_requested: bool = False) -> bool:
        """Take one step, and return whether any rank has been asked to stop.

        The steps since the last row are read from the device together, when a row is logged, a
        checkpoint is due or the run stops; other steps do not wait for the device. If one of these
        steps has diverged, they are repeated and checked one by one. Diverged is raised for the
        first step that diverged, with the state before that step if it was not finite, or after it
        (see `Divergence`).
        """
        if self.log_every == 1:
            return self._checked_step(stop_requested=stop_requested)
        started = time.perf_counter()
        before = self._before = self._before or self._copy_of_state()
        drawn = self._draw(stop_requested=stop_requested)
        totals, grad_norm = self._backward(drawn)
        self._update(drawn, totals[0], grad_norm)
        saves = self._due(self.config["observe"]["checkpoint_every"])
        if not (drawn.stop or saves or self._row_due()):
            self._end_step(started)
            return drawn.stop
        verdict, self._before = self._judge(), None
        if verdict is None or (verdict.taken and verdict.step == drawn.step):
            self._tick()
            self._end_step(started, verdict)
        else:
            self._repeat(before, verdict.step)
        return drawn.stop

    def _checked_step(self, *, stop_requested: bool = False) -> bool:
        """Take one step like `step`, but check its loss and gradient before its update."""
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

    def _repeat(self, before: Mapping[str, Any], until: int) -> None:
        """Go back to a copy of the state, and repeat the steps up to `until`, checking each.

        This raises Diverged, unless no step diverges this time: on a GPU, repeated sums may differ
        in their last bits. The run then continues.
        """
        wall, self.divergence = self.progress.seconds, before["divergence"]
        self.restore(before)
        restore_random_state(before["random"], self.runtime.device)
        lost = wall - self.progress.seconds
        try:
            while self.progress.step < until:
                self._checked_step()
        finally:
            self.progress.seconds += lost

    def _copy_of_state(self) -> Mapping[str, Any]:
        """Return a copy of all state that steps change, made without waiting for the device."""
        return {
            "divergence": deepcopy(self.divergence),
            "random": random_state(self.runtime.device),
            **deepcopy(self.state()),
        }

    def _row_due(self) -> bool:
        return self._budget_spent() is not None or any(
            map(self._due, (self.log_every, self.validate["every"]))
        )

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
        totals, grad_norm = (
            process_group.sum_over_ranks(totals),
            torch.nn.utils.get_total_norm(grads),
        )
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
        self.progress.count(drawn.sums)
        self._tick()
        self.divergence.end_window(drawn.step, last=self._budget_spent() is not None)

    def _end_step(self, started: float, verdict: Verdict | None = None) -> None:
        """Time and report a step, and log a row if one is due. Raise Diverged if it diverged."""
        at = self.progress
        at.time(time.perf_counter() - started)
        spent = min(1.0, max(self.budget.shares(**self._used).values()))
        say(Stage(TRAINING, at.step, self.budget.steps, at.loss, spent))
        if self._row_due():
            self._log_step()
        if verdict is not None:
            raise Diverged(self.progress.step, verdict.reason, None)

    def _judge(self) -> Verdict | None:
        """Read the steps since the last row, and return a verdict if one of them has diverged."""
        for reading in self.divergence.read():
            if (reason := reading.nonfinite) is not None:
                high = self.divergence.high()
                earlier = high is not None and high.step < reading.step
                return high if earlier else Verdict(reading.step, reason, taken=False)
            self.progress.read(reading)
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
            "seconds": self.progress.seconds if process_group.is_main() else 0.0,
        }
        totals = process_group.sum_scalars([*map(float, [*counts.values(), *sums.values()])])
        counts = dict(zip(counts, totals, strict=False))
        sums = dict(zip(sums, totals[len(counts) :], strict=True))
        stop, seconds = sums.pop("stop") > 0, sums.pop("seconds")
        self._rank_0_seconds = seconds if process_group.world().size > 1 else None
        return StepBatches(self.progress.step + 1, batches, counts, sums, stop)

    def _loss(self, batch: Batch, counts: Mapping[str, float]) -> Tensor:
        """Return the part of the step's loss that comes from a micro-batch."""
        with self.runtime.autocast():
            losses = self.task.losses(self.model, batch.to(self.runtime.device))
            # The count of a step may be zero, for example if no token could be masked.
            means = [losses[name] / max(counts[name], 1) for name in sorted(losses)]
            return torch.stack(means).sum()

    def _log_step(self) -> None:
        """Log the means since the last row, and the last step's gradient norm and learning rate."""
        rate = self.schedule(self.progress.step)
        self._log({**self.progress.end_interval(lr=rate), **self.probes.metrics()})

    def _validate(self) -> None:
        """Score the validation split, log it, and save the weights if they are the best so far."""
        at = self.progress
        scores = self.evaluator.scores(self.model, "valid")
        self.validations.history.append(this := Validation(at.step, at.tokens, scores))
        weights = self.model.state_dict()
        for name in self.best_by:
            if self.validations.best(name) is this:
                content = {"model": weights, "step": at.step}
                self.checkpoints.save(self.checkpoints.best(name), content)
        self.checkpoints.keep_for_average(at.step, weights, self.validate["average"])
        self._tick()
        self._log({"step": at.step, "tokens": at.tokens, "time/seconds": at.seconds}, scores)

    def _log(self, row: Row, scores: Mapping[str, Score] = NO_SCORES) -> None:
        self.sinks.log(row, scores)
        self.progress.rows += 1

    def _tick(self) -> None:
        now = time.perf_counter()
        self.progress.seconds += now - self._clock
        self._clock = now

    def save(self) -> None:
        """Write the full state, from which a run resumes bit for bit on a CPU."""
        self._tick()
        self.sinks.sync()
        random = process_group.gather_objects(random_state(self.runtime.device))
        self.checkpoints.save(
            self.checkpoints.last,
            {
                **self.stamp,
                **self.state(),
                "divergence": self.divergence.state_dict(),
                "validations": self.validations.state_dict(),
                "random": random,
            },
        )

    def state(self) -> dict[str, Any]:
        """Return the state that steps change, except for divergence and random numbers."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "batches": self.batches.state_dict(),
            "probes": self.probes.state_dict(),
            "progress": asdict(self.progress),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state`."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.batches.load_state_dict(state["batches"])
        self.probes.load_state_dict(state["probes"])
        self.progress = Progress(**state["progress"])

    def resume(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `save`, or raise UserError if weights for the test are missing."""
        self.restore(state)
        self.divergence.load_state_dict(state["divergence"])
        self.validations.load_state_dict(state["validations"])
        if self.validations.history:
            average = self.validate["average"]
            check_kept(self.checkpoints, self.best_by, self.progress.step, average)
        restore_rank(state["random"], self.runtime.device)
