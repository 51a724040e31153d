"""What a run would take, measured in seconds: an update, a validation, the test, memory.

The parts of a run are built as the run builds them. A few updates are taken and a few batches of
validation and test are scored; what they took is scaled by positions and tokens to all of them. A
model that has not learnt yet would decode to the length limit: here its hypotheses have the mean
length of the references. Nothing is written but a state of the weights, which is thrown away.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from normlab.bench.clock import Clock
from normlab.bench.decode import full_length
from normlab.bench.train import Contender, start
from normlab.data.batching import eval_batches
from normlab.data.corpus import ParallelText
from normlab.data.encoded import EncodedPairs
from normlab.distributed import Shard
from normlab.norms.base import running_norms
from normlab.tasks.base import Batch, Condition, Task
from normlab.tasks.documents import DocumentTask
from normlab.tasks.pictures import Classification
from normlab.tasks.translation import Translation
from normlab.train.divergence import Diverged
from normlab.train.runtime import Runtime
from normlab.train.tested import best_by

if TYPE_CHECKING:
    from normlab.models.seq2seq import Seq2Seq

FORMAT = "normlab.bench.cost/1"
_WARM_UP = 2  # updates that are taken and not counted, where there is time for them
_UPDATES = 12  # counted, at most
_DRAWN = 200  # micro-batches whose size is looked at
_SCORED = 12  # batches of a split that are scored, at most
_NEVER = 1 << 40


def measure(config: Mapping[str, Any], runtime: Runtime, *, seconds: float) -> dict[str, Any]:
    """Return what a run of a config takes, by parts, from about `seconds` of work.

    Three updates and one batch of each split are taken however long they last. `later_share` is
    how much larger the batches are after a change of length (`task.length_change`). The time of
    `start_seconds` is that of a process of its own, up to its first update.
    """
    contender = start("run", _before_the_change(config), runtime)
    trainer, task = contender.trainer, contender.trainer.task
    probe = _Probe(config, contender, runtime, Clock(runtime.device))
    with probe.whole_sentences():
        updates, drawn = probe.updates(seconds / 2)
        probe.widest_update(drawn.widest)
        validation = probe.scoring("valid", Condition(), seconds / 6)
        test = probe.test(seconds / 3)
    description = task.describe()
    return {
        "format": FORMAT,
        "environment": runtime.environment(),
        "data": {
            "label": description.get("label"),
            "origin": _origin(task, config["task"]),
            "sizes": description.get("sizes"),
        },
        "params": sum(p.numel() for p in trainer.parameters),
        "start_seconds": contender.first_step_seconds,
        **updates,
        "tokens_per_update": drawn.tokens * trainer.settings.accumulate,
        "updates_per_epoch": drawn.per_epoch / trainer.settings.accumulate,
        "later_share": probe.later_share(drawn.positions),
        "validation_seconds": validation,
        "test_seconds": test,
        "save_seconds": probe.saving(),
        "memory_bytes": runtime.peak_memory_bytes(),
    }


def _origin(task: Task, config: Mapping[str, Any]) -> str:
    """Name the folder of the data, or their place where the task is given none."""
    folder = (config.get("corpus") or config["source"]).get("data_dir")
    if folder is not None:
        return f"data_dir={folder}"
    if isinstance(task, Classification):
        return str(task.source.description()["source"])
    assert isinstance(task, Translation | DocumentTask), "there is no other kind of task"
    return task.corpus.origin()


def _before_the_change(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put a change of length off for ever; examples keep their limits."""
    change = config["task"].get("length_change") or {}
    if change.get("step") is None:
        return config
    return {**config, "task": {**config["task"], "length_change": {**change, "step": _NEVER}}}


@dataclass(frozen=True)
class _Drawn:
    """Means of a micro-batch, how many an epoch has, and the widest that was seen."""

    tokens: float
    positions: float
    per_epoch: float
    widest: Batch


class _Repeated(Iterator[Any]):
    """A stream of one batch, over and over."""

    epochs = 0.0

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __next__(self) -> Batch:
        return self._batch

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: there is one place."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stay."""


@dataclass(frozen=True)
class _Probe:
    """A run whose parts are timed."""

    config: Mapping[str, Any]
    contender: Contender
    runtime: Runtime
    clock: Clock

    @property
    def task(self) -> Task:
        """The task of the run."""
        return self.contender.trainer.task

    def updates(self, seconds: float) -> tuple[dict[str, float], _Drawn]:
        """Return the mean seconds of an update and how they were had, and what batches are like.

        `busy_share` is the processor's part of the time, where `Clock` counts it: the rest went to
        other programs.
        """
        taken = []
        until = time.perf_counter() + seconds
        try:
            while len(taken) < _WARM_UP + _UPDATES:
                taken.append(self.contender.take(1, self.clock))
                if time.perf_counter() > until:
                    break
        except Diverged:
            if not taken:
                raise ValueError("the first updates diverge: nothing to measure") from None
        counted = taken[_WARM_UP:] or taken[-1:]
        wall, busy = (sum(getattr(i.time, name) for i in counted) for name in ("wall", "busy"))
        drawn = self._drawn(seconds / 4)
        positions = drawn.positions * self.contender.trainer.settings.accumulate
        found = {
            "update_seconds": wall / sum(i.positions for i in counted) * positions,
            "updates_measured": len(counted),
            "busy_share": busy / wall,
        }
        return found, drawn

    def _drawn(self, seconds: float) -> _Drawn:
        """Draw further micro-batches and look at them."""
        stream = self.contender.stream
        before = stream.epochs
        until = time.perf_counter() + seconds
        widest = next(stream)
        count, tokens, positions = 1, widest.tokens, widest.positions
        while count < _DRAWN and time.perf_counter() < until:
            batch = next(stream)
            count, tokens, positions = (
                count + 1,
                tokens + batch.tokens,
                positions + batch.positions,
            )
            widest = max(widest, batch, key=lambda each: each.positions)
        epochs = stream.epochs - before
        return _Drawn(tokens / count, positions / count, count / epochs, widest)

    def widest_update(self, batch: Batch) -> None:
        """Take one update of the widest batch, for the memory that it takes."""
        trainer = self.contender.trainer
        stream, trainer.stream = trainer.stream, _Repeated(batch)
        try:
            trainer.step()
        except Diverged:
            pass
        finally:
            trainer.stream = stream

    def later_share(self, positions: float) -> float:
        """Return the size of the batches that training ends with, over those it begins with."""
        change = (self.config["task"].get("length_change") or {}).get("step")
        if change is None:
            return 1.0
        stream = self.task.calibration_batches(Shard(0, 1), 0)
        return float(np.mean([next(stream).positions for _ in range(20)])) / positions

    def test(self, seconds: float) -> float:
        """Return the seconds of all test splits, the first also under all conditions of a test.

        The best weights are tested too, each apart: what the last ones take if none is one of them.
        """
        model = self.contender.trainer.model
        splits = self.task.test_splits()
        every = self.contender.trainer.evaluator.conditions
        conditions = [each for each in every if each.matters(model)]
        each = seconds / (1 + len(conditions))
        plain = self.scoring(splits[0], Condition(), each)
        tokens = [float(self.task.lengths(split).sum()) for split in splits]
        weights = 1 + len(best_by(self.config["validate"], self.task.headline))
        return weights * plain * sum(tokens) / tokens[0] + sum(
            self.scoring(splits[0], condition, each) for condition in conditions
        )

    def scoring(self, split: str, condition: Condition, seconds: float) -> float:
        """Return the seconds that a split takes, from some of its batches."""
        lengths = self.task.lengths(split).sum(axis=1)
        size = condition.batch_size or getattr(self.task, "eval_batch_size", None)
        batches = eval_batches(self.task.lengths(split), batch_size=size or len(lengths))
        again = self._recalibration(condition)
        took, share = self._scored(split, batches, len(batches), condition)
        if took < seconds / 2:
            count = int(min(_SCORED, len(batches), max(2, seconds / took)))
            took, share = self._scored(split, batches, len(batches) // count, condition)
        return took / share + again

    def _scored(
        self, split: str, batches: list[np.ndarray], every: int, condition: Condition
    ) -> tuple[float, float]:
        """Score every so manieth batch; return the seconds and the share of the tokens."""
        trainer = self.contender.trainer
        part = Shard(every // 2, every)
        lengths = self.task.lengths(split).sum(axis=1)
        chosen = np.concatenate(batches[part.rank :: part.size])
        model = trainer.model.eval()
        with (
            _only(self.task, split, chosen) as cut,
            self.runtime.autocast(),
            condition.applied(model),
            condition.disturbed(model),
        ):
            self.clock.restart()
            self.task.evaluate(
                model, split, Shard(0, 1) if cut else part, batch_size=condition.batch_size
            )
            took = self.clock.read().wall
        model.train()
        return took, float(lengths[chosen].sum() / lengths.sum())

    def _recalibration(self, condition: Condition) -> float:
        """Return the seconds of re-estimating statistics, where scoring does that first."""
        model = self.contender.trainer.model
        with condition.applied(model):
            if not any(norm.eval_stats == "recalibrated" for norm in running_norms(model)):
                return 0.0
        batch = next(self.task.calibration_batches(Shard(0, 1), 0)).to(self.runtime.device)
        self.clock.restart()
        with torch.no_grad(), self.runtime.autocast():
            self.task.losses(model, batch)
        return self.clock.read().wall * self.config["validate"]["recalibration_batches"]

    def saving(self) -> float:
        """Return the seconds that writing the state of weights and optimizer takes."""
        trainer = self.contender.trainer
        state = {"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}
        with TemporaryDirectory() as folder:
            self.clock.restart()
            torch.save(state, Path(folder) / "state.pt")
            return self.clock.read().wall

    @contextmanager
    def whole_sentences(self) -> Iterator[None]:
        """Let hypotheses of a translation model have the mean length of the references."""
        task = self.task
        if not isinstance(task, Translation):
            yield
            return
        model = cast("Seq2Seq", self.contender.trainer.model)  # translation has no other
        source, target = task.lengths("valid").sum(axis=0)
        size = {"length_factor": float(target / source), "length_offset": 0}
        task.valid_search = replace(task.valid_search, **size)
        task.test_search = replace(task.test_search, **size)
        with full_length(model, task.data.target_tokenizer.eos_id):
            yield


@contextmanager
def _only(task: Task, split: str, chosen: np.ndarray) -> Iterator[bool]:
    """Leave a split of translation these sentences, whose scores need all; tell whether it did."""
    if not isinstance(task, Translation):
        yield False
        return
    whole = task.data
    pairs, text = whole.pairs[split], whole.texts[split]
    fewer = EncodedPairs(pairs.source.select(chosen), pairs.target.select(chosen))
    lines = ([text.source[i] for i in chosen], [text.target[i] for i in chosen])
    task.data = replace(
        whole,
        pairs={**whole.pairs, split: fewer},
        texts={**whole.texts, split: ParallelText(*lines)},
    )
    try:
        yield True
    finally:
        task.data = whole
