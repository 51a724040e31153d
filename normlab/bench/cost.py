"""What a run would take on this machine: an update, a validation, the test, memory.

The parts of a run are built as the run builds them. A few updates are taken and a few batches of
validation and test are scored; their times are scaled by positions and tokens to the whole. An
untrained model would decode to the length limit, so hypotheses get the mean length of the
references. Nothing is written but a state of the weights, which is thrown away.

`python -m normlab.bench.cost key=value ... --seconds N` prints what it found as JSON.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from normlab.bench.speed import Clock, start
from normlab.config.compose import compose, to_dict
from normlab.data.batching import BatchStream, eval_batches
from normlab.distributed import Shard
from normlab.norms.base import running_norms
from normlab.tasks.base import Batch, Condition, Task
from normlab.tasks.documents import DocumentTask
from normlab.tasks.images import Classification
from normlab.tasks.translation import Translation
from normlab.train.evaluate import best_by
from normlab.train.runtime import Runtime
from normlab.train.stopping import Diverged

if TYPE_CHECKING:
    from normlab.models.base import Decoding
    from normlab.models.seq2seq import Seq2Seq

FORMAT = "normlab.bench.cost/1"
_WARM_UP = 2  # updates that are taken and not counted, if there is time for them
_UPDATES = 12  # counted, at most
_DRAWN = 200  # micro-batches whose size is counted
_SCORED = 12  # batches of a split that are scored, at most
_NEVER = 1 << 40
_UNLIKELY = -1e4


def main(argv: list[str] | None = None) -> int:
    """Measure the run of some overrides and print JSON; 1 and a message for wrong values."""
    parser = argparse.ArgumentParser(prog="python -m normlab.bench.cost")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as of `normlab train`")
    parser.add_argument("--seconds", type=float, default=20.0, help="default: 20")
    arguments = parser.parse_intermixed_args(argv)
    try:
        config = to_dict(compose(arguments.overrides))
        runtime = Runtime.start(
            device=config["device"],
            precision=config["precision"],
            threads=config["observe"]["threads"],
        )
        print(json.dumps(measure(config, runtime, seconds=arguments.seconds)))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def measure(config: Mapping[str, Any], runtime: Runtime, *, seconds: float) -> dict[str, Any]:
    """Return what a run of a config takes, by parts, from about `seconds` of work.

    Three updates and one batch of each split are taken however long they last. `later_share` is
    how much larger the batches are after a change of length (`task.length_change`).
    `start_seconds` is the time of a process up to its first update.
    """
    probe = _Probe(config, runtime)
    task, accumulate = probe.task, probe.trainer.settings.accumulate
    with probe.whole_sentences():
        updates = probe.updates(seconds / 2)
        drawn = probe.drawn(seconds / 8)
        probe.widest_update(drawn["widest"])
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
        "params": sum(p.numel() for p in probe.trainer.parameters),
        "start_seconds": probe.start_seconds,
        "update_seconds": updates["seconds_per_position"] * drawn["positions"] * accumulate,
        "updates_measured": updates["count"],
        "busy_share": updates["busy_share"],
        "tokens_per_update": drawn["tokens"] * accumulate,
        "updates_per_epoch": drawn["per_epoch"] / accumulate,
        "later_share": probe.later_share(drawn["positions"]),
        "validation_seconds": validation,
        "test_seconds": test,
        "save_seconds": probe.saving(),
        "memory_bytes": runtime.peak_memory_bytes(),
    }


def _origin(task: Task, config: Mapping[str, Any]) -> str:
    """Name the folder of the data, or where the task finds them without one."""
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


class _Counted(BatchStream):
    """A batch stream that counts positions, and can be made to repeat one batch."""

    def __init__(self, stream: BatchStream):
        self.stream, self.positions = stream, 0
        self.repeated: Batch | None = None

    def __next__(self) -> Batch:
        batch = self.repeated or next(self.stream)
        self.positions += batch.positions
        return batch

    @property
    def epochs(self) -> float:
        return self.stream.epochs

    def state_dict(self) -> dict[str, Any]:
        return self.stream.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.stream.load_state_dict(state)


class _Probe:
    """A run whose parts are timed."""

    def __init__(self, config: Mapping[str, Any], runtime: Runtime):
        self.config, self.runtime = config, runtime
        steps = start("run", _before_the_change(config), runtime)
        self.trainer, self.start_seconds = steps.trainer, steps.first_step_seconds
        self.task: Task = self.trainer.task
        self.stream = self.trainer.stream = _Counted(self.trainer.stream)
        self.clock = Clock(runtime.device)

    def updates(self, seconds: float) -> dict[str, float]:
        """Time updates: `busy_share` is the processor's part, where `Clock` counts it."""
        taken = []
        until = time.perf_counter() + seconds
        try:
            while len(taken) < _WARM_UP + _UPDATES and (not taken or time.perf_counter() < until):
                before = self.stream.positions
                self.clock.restart()
                self.trainer.step()
                taken.append((self.clock.read(), self.stream.positions - before))
        except Diverged:
            if not taken:
                raise ValueError("the first updates diverge: nothing to measure") from None
        counted = taken[_WARM_UP:] or taken[-1:]
        wall = sum(span.wall for span, _ in counted)
        return {
            "seconds_per_position": wall / sum(positions for _, positions in counted),
            "busy_share": sum(span.busy for span, _ in counted) / wall,
            "count": len(counted),
        }

    def drawn(self, seconds: float) -> dict[str, Any]:
        """Draw micro-batches: means of one, how many an epoch has, and the widest."""
        before, batches = self.stream.epochs, [next(self.stream)]
        until = time.perf_counter() + seconds
        while len(batches) < _DRAWN and time.perf_counter() < until:
            batches.append(next(self.stream))
        count = len(batches)
        return {
            "tokens": sum(batch.tokens for batch in batches) / count,
            "positions": sum(batch.positions for batch in batches) / count,
            "per_epoch": count / (self.stream.epochs - before),
            "widest": max(batches, key=lambda batch: batch.positions),
        }

    def widest_update(self, batch: Batch) -> None:
        """Take one update of the widest batch, for its memory."""
        self.stream.repeated = batch
        try:
            self.trainer.step()
        except Diverged:
            pass
        finally:
            self.stream.repeated = None

    def later_share(self, positions: float) -> float:
        """Return the size of the batches that training ends with, over those it begins with."""
        change = (self.config["task"].get("length_change") or {}).get("step")
        if change is None:
            return 1.0
        stream = self.task.calibration_batches(Shard(0, 1), 0)
        return float(np.mean([next(stream).positions for _ in range(20)])) / positions

    def test(self, seconds: float) -> float:
        """Return the seconds of all test splits, the first also under all conditions of a test.

        The best weights are tested separately, so they count as often as there are any.
        """
        model = self.trainer.model
        splits = self.task.test_splits()
        every = self.trainer.evaluator.conditions
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
        """Score every n-th batch; return the seconds and the share of the tokens."""
        trainer = self.trainer
        shard, part = Shard(every // 2, every), nullcontext()
        lengths = self.task.lengths(split).sum(axis=1)
        chosen = np.concatenate(batches[shard.rank :: shard.size])
        if isinstance(self.task, Translation):  # its scores need all of a split
            shard, part = Shard(0, 1), self.task.reduced(split, chosen)
        model: Any = trainer.model.eval()
        with (
            part,
            self.runtime.autocast(),
            condition.applied(model),
            condition.disturbed(model),
        ):
            self.clock.restart()
            self.task.evaluate(model, split, shard, batch_size=condition.batch_size)
            took = self.clock.read().wall
        model.train()
        return took, float(lengths[chosen].sum() / lengths.sum())

    def _recalibration(self, condition: Condition) -> float:
        """Return the seconds of recalibrating statistics, if scoring does that first."""
        model = self.trainer.model
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
        trainer = self.trainer
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
        model = cast("Seq2Seq", self.trainer.model)  # translation has no other
        source, target = task.lengths("valid").sum(axis=0)
        size = {"length_factor": float(target / source), "length_offset": 0}
        task.valid_search = replace(task.valid_search, **size)
        task.test_search = replace(task.test_search, **size)
        with full_length(model, task.data.target_tokenizer.eos_id):
            yield


@contextmanager
def full_length(model: "Seq2Seq", eos_id: int) -> Iterator[None]:
    """Let no hypothesis of a model end before the length limit."""
    step = model.decode_step

    def endless(ids: Tensor, state: "Decoding") -> Tensor:
        logits = step(ids, state)
        logits[:, eos_id] = _UNLIKELY
        return logits

    model.decode_step = endless
    try:
        yield
    finally:
        del model.decode_step


if __name__ == "__main__":
    sys.exit(main())
