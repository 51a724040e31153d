"""Estimates what a run would take on this machine: updates, validation, test, memory.

It takes a few updates and scores the middle batch of each split, scaling its time by tokens to the
whole split. Nothing is kept. `python -m normlab.bench.cost key=value ... --seconds N` prints the
estimate as JSON.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import torch

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

FORMAT = "normlab.bench.cost/1"
_UPDATES = 12  # at most; the first is not counted if there are more


def main(argv: list[str] | None = None) -> int:
    """Estimate the run of some overrides and print JSON; 1 and a message for wrong values."""
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
    """Return the estimated cost of a run in parts; updates are taken for half of `seconds`.

    `start_seconds` is the processor time until the first timed update.
    """
    steps, clock = start("run", config, runtime), Clock(runtime.device)
    began, trainer, task = time.process_time(), steps.trainer, steps.trainer.task
    before, until = trainer.stream.epochs, time.perf_counter() + seconds / 2
    taken = []
    try:
        while not taken or (len(taken) < _UPDATES and time.perf_counter() < until):
            taken.append(steps.take(1, clock))
    except Diverged:
        if not taken:
            raise ValueError("the first updates diverge: nothing to measure") from None
    per_epoch = len(taken) / (trainer.stream.epochs - before)
    taken = taken[1:] or taken
    update = sum(span.wall for span, _ in taken) / len(taken)
    if isinstance(task, Translation):  # untrained models would translate up to the length limit
        source, target = task.lengths("valid").sum(axis=0)
        size = {"length_factor": float(target / source), "length_offset": 0}
        task.valid_search = replace(task.valid_search, **size)
        task.test_search = replace(task.test_search, **size)
    weights = 1 + len(best_by(config["validate"], task.headline))
    conditions = [each for each in trainer.evaluator.conditions if each.matters(trainer.model)]
    _scoring(trainer, "valid")  # a first call loads what scoring needs
    tests = [_scoring(trainer, split) for split in task.test_splits()]
    more = [_scoring(trainer, "test", condition) for condition in conditions]
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
        "update_seconds": update,
        "updates_measured": len(taken),
        "tokens_per_update": sum(tokens for _, tokens in taken) / len(taken),
        "updates_per_epoch": per_epoch,
        "validation_seconds": _scoring(trainer, "valid"),
        "test_seconds": weights * sum(tests) + sum(more),
        "memory_bytes": runtime.peak_memory_bytes(),
    }


def _origin(task: Task, config: Mapping[str, Any]) -> str:
    """Return the folder of the data, or where the task gets its data without one."""
    folder = (config.get("corpus") or config["source"]).get("data_dir")
    if folder is not None:
        return f"data_dir={folder}"
    if isinstance(task, Classification):
        return task.source.origin
    assert isinstance(task, Translation | DocumentTask), "there is no other kind of task"
    return task.corpus.origin


def _scoring(trainer: Trainer, split: str, condition: Condition | None = None) -> float:
    """Estimate the seconds to score a split: the time of its middle batch, scaled by tokens."""
    task, runtime, evaluator = trainer.task, trainer.runtime, trainer.evaluator
    condition, lengths = condition or Condition(), task.lengths(split)
    batches = eval_batches(lengths, batch_size=condition.batch_size or task.eval_batch_size)
    middle = len(batches) // 2
    shard, part = Shard(middle, len(batches)), nullcontext()
    if isinstance(task, Translation):  # BLEU needs a whole split, so the batch becomes one
        shard, part = Shard(0, 1), task.reduced(split, batches[middle])
    clock, model = Clock(runtime.device), cast("Any", trainer.model.eval())
    with part, runtime.autocast(), condition.applied(model), condition.disturbed(model):
        task.evaluate(model, split, shard, batch_size=condition.batch_size)
        took = clock.read().wall * float(lengths.sum() / lengths[batches[middle]].sum())
        if any(norm.eval_stats == "recalibrated" for norm in running_norms(model)):
            batch = next(task.calibration_batches(Shard(0, 1), 0)).to(runtime.device)
            clock.restart()
            with torch.no_grad():
                task.losses(model, batch)
            took += clock.read().wall * evaluator.recalibration_batches
    model.train()
    return took


if __name__ == "__main__":
    sys.exit(main())
