"""The training loop.

One step draws all its micro-batches, counts the denominator of each loss (over all micro-batches
and ranks), back-propagates the summed losses divided by these counts, and updates once: the
gradient is that of the mean loss over the whole step, for any padding, accumulation and number of
processes. Each micro-batch gets exactly one forward pass in training mode, because each such pass
updates running statistics.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from normlab.distributed import process_group
from normlab.norms.model_norms import ModelNorms
from normlab.probes.base import ProbeGroup, StepView
from normlab.progress import TRAINING, Stage, say
from normlab.records.record import Outcome, Score
from normlab.tasks.base import Batch, Task
from normlab.train.checkpoint import (
    Checkpoints,
    check_kept,
    random_state,
    restore_random_state,
    restore_rank,
)
from normlab.train.divergence import (
    Diverged,
    Divergence,
    Reading,
    first_nonfinite_gradient,
    first_nonfinite_layer,
)
from normlab.train.evaluate import Evaluator, best_by
from normlab.train.runtime import Runtime
from normlab.train.schedule import Schedule
from normlab.train.sinks import NO_SCORES, Row, SinkGroup
from normlab.train.stopping import Budget, Interrupts, Validation, Validations

DEBUG_STEPS = 3
"""The maximum number of steps of a run with `observe.debug`."""


@dataclass
class Progress:
    """The progress of a run, saved in checkpoints; `interval` holds sums since the last row."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    train_seconds: float = 0.0
    rows: int = 0
    interval: dict[str, float] = field(default_factory=dict)


class Trainer:
    """Trains one model on one task; `fit` runs the whole training.

    `config` is the run's config; `stamp` holds plain values that are written into each checkpoint
    (the code and the data of the run).
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        task: Task,
        model: nn.Module,
        runtime: Runtime,
        *,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        evaluator: Evaluator,
        norms: ModelNorms,
        probes: ProbeGroup,
        sinks: SinkGroup,
        checkpoints: Checkpoints,
        stamp: Mapping[str, Any],
    ):
        self.config, self.task, self.model, self.runtime = config, task, model, runtime
        self.optimizer, self.schedule, self.evaluator = optimizer, schedule, evaluator
        self.probes, self.sinks, self.checkpoints = probes, sinks, checkpoints
        self.norms, self.stamp = norms, stamp
        observe, self.validate = config["observe"], config["validate"]
        self.budget, self.log_every = Budget(**config["budget"]), observe["log_every"]
        if observe["debug"]:
            steps = min(self.budget.steps or DEBUG_STEPS, DEBUG_STEPS)
            self.budget, self.log_every = replace(self.budget, steps=steps), 1
        self.best_by = best_by(self.validate, task.headline)
        self.stream = task.train_batches(runtime.world, config["seed"])
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.progress, self.validations = Progress(), Validations()
        self.divergence = Divergence(config["divergence_factor"], runtime.device)
        self._epoch_ended = False
        self._clock = time.perf_counter()

    def fit(self) -> Outcome:
        """Train until the budget is spent, the score stalls, or the run diverges or is stopped."""
        self.start()
        with Interrupts() as interrupts:
            while (end := self._end()) is None:
                try:
                    interrupted = self.step(stop_requested=interrupts.received is not None)
                except Diverged as divergence:
                    self.sinks.note(f"diverged at {divergence}")
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
        if (reason := self.divergence.high(last=True)) is not None:  # after the last full window
            self.sinks.note(f"diverged at step {self.progress.step}: {reason}")
            return Outcome("diverged", self.progress.step, reason)
        return Outcome("finished", self.progress.step, end)

    def start(self) -> None:
        """Prepare for the first step; `fit` does this, callers of `step` must."""
        self.model.train()
        self.probes.attach(self.model)
        if notice := self.probes.notice:
            self.sinks.note(notice)
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
        """What the run has used of its budget."""
        at = self.progress
        return {
            **{"steps": at.step, "epochs": self.stream.epochs},
            **{"tokens": at.tokens, "seconds": at.seconds},
        }

    def _due(self, every: int | Literal["epoch"]) -> bool:
        return self._epoch_ended if every == "epoch" else self.progress.step % every == 0

    def step(self, *, stop_requested: bool = False) -> bool:
        """Take one step; return whether any rank has been asked to stop.

        Raises Diverged, before the update, if the loss or the gradient norm is not finite, and
        after it if the mean loss of a window is too high (see `Divergence`).
        """
        started = time.perf_counter()
        step = self.progress.step + 1
        epoch = int(self.stream.epochs)
        batches = [next(self.stream) for _ in range(self.config["accumulate"])]
        self._epoch_ended = int(self.stream.epochs) > epoch
        counts, sums = self._sum_over_ranks(batches, stop_requested)
        rng_state = random_state(self.runtime.device)
        self.optimizer.zero_grad(set_to_none=True)
        self.norms.begin_step(step, self.budget.steps)
        self.probes.before_forward(step)
        totals = torch.zeros(2, dtype=torch.float64, device=self.runtime.device)
        for batch in batches:
            loss = self._loss(batch, counts)
            totals[0].add_(loss.detach())
            if (term := self.norms.penalty()) is not None:
                penalty = term / max(*counts.values(), 1)  # per token of the main loss
                totals[1].add_(penalty.detach())
                loss = loss + penalty
            loss.backward()
        self.norms.commit()
        process_group.sum_gradients(self.parameters)
        totals = process_group.sum_over_ranks(totals)
        grads = [p.grad for p in self.parameters if p.grad is not None]
        grad_norm = torch.nn.utils.get_total_norm(grads)
        reading = Reading(*self.divergence.add(totals, grad_norm).tolist())
        if (reason := reading.nonfinite) is not None:
            if math.isfinite(reading.loss + reading.penalty):
                raise Diverged(step, reason, first_nonfinite_gradient(self.model))
            raise Diverged(step, reason, self._first_nonfinite_layer(batches, counts, rng_state))
        rate = self.schedule(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("rate", 1.0)
        view = StepView(
            step=step,
            model=self.model,
            loss=totals[0],
            grad_norm=grad_norm,
            lr=rate,
            padding_share=sums["padding"] / sums["positions"],
        )
        self.probes.before_update(view)
        if (limit := self.config["clip_grad"]) is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, limit, grad_norm)
        self.optimizer.step()
        self.probes.after_update(view)
        stop = sums.pop("stop") > 0
        seconds = time.perf_counter() - started
        losses = {"loss": reading.loss, "penalty": reading.penalty}
        self._count({**losses, "steps": 1, "seconds": seconds, **sums})
        last = self._budget_spent() is not None
        if last or any(map(self._due, (self.log_every, self.validate["every"]))):
            self._log_step({"train/grad_norm": reading.grad_norm, "train/lr": rate})
        if (reason := self.divergence.high(last=last)) is not None:
            raise Diverged(step, reason, None)
        return stop

    def _sum_over_ranks(
        self, batches: list[Batch], stop_requested: bool
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return the losses' denominators and the step's sums, over all batches and ranks."""
        names = sorted(batches[0].counts)
        counts = {name: sum(batch.counts[name] for batch in batches) for name in names}
        sums = {
            "tokens": sum(batch.tokens for batch in batches),
            "positions": sum(batch.positions for batch in batches),
            "padding": sum(batch.padding for batch in batches),
            "stop": int(stop_requested),
        }
        totals = process_group.sum_scalars([*map(float, [*counts.values(), *sums.values()])])
        counts = dict(zip(names, totals, strict=False))
        return counts, dict(zip(sums, totals[len(names) :], strict=True))

    def _loss(self, batch: Batch, counts: Mapping[str, float]) -> Tensor:
        """Return a micro-batch's share of the step's loss."""
        with self.runtime.autocast():
            losses = self.task.losses(self.model, batch.to(self.runtime.device))
            # A step may have a count of zero, for example if no token could be masked.
            means = [losses[name] / max(counts[name], 1) for name in sorted(losses)]
            return torch.stack(means).sum()

    def _first_nonfinite_layer(
        self, batches: list[Batch], counts: Mapping[str, float], rng_state: Mapping[str, Tensor]
    ) -> str | None:
        """Repeat the step's forward passes to find the first layer with a non-finite output.

        Every rank repeats its passes, whichever rank failed: synced norms wait for all ranks.
        """
        restore_random_state(rng_state, self.runtime.device)
        found = [
            first_nonfinite_layer(self.model, partial(self._loss, batch, counts))
            for batch in batches
        ]
        layers = [layer for own in process_group.gather_objects(found) for layer in own]
        return next((layer for layer in layers if layer is not None), None)

    def _count(self, step: Mapping[str, float]) -> None:
        """Add a step to the run's progress."""
        at = self.progress
        at.step += 1
        at.tokens += int(step["tokens"])
        at.train_seconds += step["seconds"]
        at.interval = {name: at.interval.get(name, 0) + value for name, value in step.items()}
        self._tick()
        spent = min(1.0, max(self.budget.shares(**self._used).values()))
        say(Stage(TRAINING, at.step, self.budget.steps, step["loss"], spent))

    def _log_step(self, last: Row) -> None:
        """Log the means since the last row."""
        at, since = self.progress, self.progress.interval
        at.interval = {}
        row = {
            "step": at.step,
            "tokens": at.tokens,
            "train/loss": since["loss"] / since["steps"],
            **last,
            "train/padding_share": since["padding"] / since["positions"],
            "time/seconds": at.seconds,
            "train/tokens_per_second": since["tokens"] / since["seconds"],
            **self.probes.metrics(),
        }
        if since["penalty"]:  # only some norms have a penalty
            row["train/penalty"] = since["penalty"] / since["steps"]
        self._log(row)

    def _validate(self) -> None:
        """Score the validation split, log it, and save the weights if they are the best so far."""
        at = self.progress
        scores = self.evaluator.scores(self.model, "valid")
        self.validations.seen.append(this := Validation(at.step, at.tokens, scores))
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
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "stream": self.stream.state_dict(),
                "probes": self.probes.state_dict(),
                "progress": asdict(self.progress),
                "divergence": self.divergence.state_dict(),
                "validations": self.validations.state_dict(),
                "random": random,
            },
        )

    def resume(self, state: Mapping[str, Any]) -> None:
        """Restore what `save` wrote; UserError if weights needed by the test are missing."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.stream.load_state_dict(state["stream"])
        self.probes.load_state_dict(state["probes"])
        self.progress = Progress(**state["progress"])
        self.divergence.load_state_dict(state["divergence"])
        self.validations.load_state_dict(state["validations"])
        if self.validations.seen:
            average = self.validate["average"]
            check_kept(self.checkpoints, self.best_by, self.progress.step, average)
        restore_rank(state["random"], self.runtime.device)
