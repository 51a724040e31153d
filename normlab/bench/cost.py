"""What a run would take on this machine: an update, a validation, the test, memory.

A few updates are taken, and the middle batch of each split is scored; their times are scaled by
tokens to the whole. An untrained model would decode to the length limit, so hypotheses get the
mean length of the references. Nothing is kept.

`python -m normlab.bench.cost key=value ... --seconds N` prints what it found as JSON.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from normlab.bench.speed import Clock, runtime_of, start
from normlab.config.compose import compose, to_dict
from normlab.data.batching import eval_batches
from normlab.norms.base import running_norms
from normlab.norms.ranks import Shard
from normlab.tasks.base import Condition, Task
from normlab.tasks.documents import DocumentTask
from normlab.tasks.images import Classification
from normlab.tasks.translation import Translation
from normlab.train.evaluate import best_by
from normlab.train.loop import Trainer
from normlab.train.runtime import Runtime
from normlab.train.stopping import Diverged

if TYPE_CHECKING:
    from normlab.models.base import Decoding
    from normlab.models.seq2seq import Seq2Seq

FORMAT = "normlab.bench.cost/1"
_UPDATES = 12  # at most; the first is not counted if there are others
_DRAWN = 200  # micro-batches whose size is counted


def main(argv: list[str] | None = None) -> int:
    """Measure the run of some overrides and print JSON; 1 and a message for wrong values."""
    parser = argparse.ArgumentParser(prog="python -m normlab.bench.cost")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as for `normlab train`")
    parser.add_argument("--seconds", type=float, default=20.0, help="default: 20")
    arguments = parser.parse_intermixed_args(argv)
    try:
        config = to_dict(compose(arguments.overrides))
        print(json.dumps(measure(config, runtime_of(config), seconds=arguments.seconds)))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def measure(config: Mapping[str, Any], runtime: Runtime, *, seconds: float) -> dict[str, Any]:
    """Return what a run of a config takes, by parts; about half of `seconds` go to updates.

    `start_seconds` is processor time up to the first update.
    """
    steps, clock = start("run", config, runtime), Clock(runtime.device)
    began, trainer = time.process_time(), steps.trainer
    task, until = trainer.task, time.perf_counter() + seconds / 2
    with _whole_sentences(trainer):
        taken = []
        try:
            while not taken or (len(taken) < _UPDATES and time.perf_counter() < until):
                taken.append(steps.take(1, clock))
        except Diverged:
            if not taken:
                raise ValueError("the first updates diverge: nothing to measure") from None
        taken = taken[1:] or taken
        wall, tokens = sum(span.wall for span, _ in taken), sum(count for _, count in taken)
        before, until = trainer.stream.epochs, time.perf_counter() + seconds / 8
        drawn = [next(trainer.stream)]
        while len(drawn) < _DRAWN and time.perf_counter() < until:
            drawn.append(next(trainer.stream))
        widest = max(drawn, key=lambda batch: batch.positions).to(runtime.device)
        with runtime.autocast():
            torch.stack(list(task.losses(trainer.model, widest).values())).sum().backward()
        trainer.optimizer.zero_grad()
        validation, test = _scoring(trainer, "valid", Condition()), _test(trainer, config)
    per_update = config["accumulate"] * sum(batch.tokens for batch in drawn) / len(drawn)
    description = task.describe()
    return {
        "format": FORMAT,
        "environment": runtime.environment(),
        "data": {
            "label": description.get("label"),
            "origin": _origin(task, config["task"]),
            "sizes": description.get("sizes"),
        },
        "start_seconds": began,
        "update_seconds": wall / tokens * per_update,
        "updates_measured": len(taken),
        "tokens_per_update": per_update,
        "updates_per_epoch": len(drawn) / (trainer.stream.epochs - before) / config["accumulate"],
        "validation_seconds": validation,
        "test_seconds": test,
        "memory_bytes": runtime.peak_memory_bytes(),
    }


def _origin(task: Task, config: Mapping[str, Any]) -> str:
    """Name the folder of the data, or where the task finds them without one."""
    folder = (config.get("corpus") or config["source"]).get("data_dir")
    if folder is not None:
        return f"data_dir={folder}"
    source = task.source if isinstance(task, Classification) else None
    if source is None:
        assert isinstance(task, Translation | DocumentTask), "there is no other kind of task"
        source = task.corpus
    return source.origin


def _test(trainer: Trainer, config: Mapping[str, Any]) -> float:
    """Return the seconds of all test splits, the first also under all conditions of a test.

    The best weights are tested separately, so they count as often as there are any.
    """
    task = trainer.task
    splits = task.test_splits()
    tokens = [float(task.lengths(split).sum()) for split in splits]
    weights = 1 + len(best_by(config["validate"], task.headline))
    conditions = [each for each in trainer.evaluator.conditions if each.matters(trainer.model)]
    plain = _scoring(trainer, splits[0], Condition()) * weights * sum(tokens) / tokens[0]
    return plain + sum(_scoring(trainer, splits[0], condition) for condition in conditions)


def _scoring(trainer: Trainer, split: str, condition: Condition) -> float:
    """Return the seconds that a split takes, by its middle batch and by its tokens."""
    task, runtime = trainer.task, trainer.runtime
    lengths = task.lengths(split)
    size = condition.batch_size or getattr(task, "eval_batch_size", None) or len(lengths)
    batches = eval_batches(lengths, batch_size=size)
    middle = len(batches) // 2
    shard, part = Shard(middle, len(batches)), nullcontext()
    if isinstance(task, Translation):  # its scores need all of a split
        shard, part = Shard(0, 1), task.reduced(split, batches[middle])
    model, clock = cast("Any", trainer.model.eval()), Clock(runtime.device)
    with part, runtime.autocast(), condition.applied(model), condition.disturbed(model):
        clock.restart()
        task.evaluate(model, split, shard, batch_size=condition.batch_size)
        took = clock.read().wall * float(lengths.sum() / lengths[batches[middle]].sum())
        if any(norm.eval_stats == "recalibrated" for norm in running_norms(model)):
            batch = next(task.calibration_batches(Shard(0, 1), 0)).to(runtime.device)
            clock.restart()
            with torch.no_grad():
                task.losses(model, batch)
            took += clock.read().wall * trainer.evaluator.recalibration_batches
    model.train()
    return took


@contextmanager
def _whole_sentences(trainer: Trainer) -> Iterator[None]:
    """Let hypotheses of a translation model have the mean length of the references."""
    task = trainer.task
    if not isinstance(task, Translation):
        yield
        return
    source, target = task.lengths("valid").sum(axis=0)
    size = {"length_factor": float(target / source), "length_offset": 0}
    task.valid_search = replace(task.valid_search, **size)
    task.test_search = replace(task.test_search, **size)
    model = cast("Seq2Seq", trainer.model)  # translation has no other
    with full_length(model, task.data.target_tokenizer.eos_id):
        yield


@contextmanager
def full_length(model: "Seq2Seq", eos_id: int) -> Iterator[None]:
    """Let no hypothesis of a model end before the length limit."""
    step = model.decode_step

    def endless(ids: Tensor, state: "Decoding") -> Tensor:
        logits = step(ids, state)
        logits[:, eos_id] = -1e4
        return logits

    model.decode_step = endless
    try:
        yield
    finally:
        del model.decode_step


if __name__ == "__main__":
    sys.exit(main())
