"""What is examined, and what an examination finds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from normlab.build import build_model, build_task, calibrate_model
from normlab.config import compose, to_dict
from normlab.loaded import load_run
from normlab.tasks.base import Batch, Task
from normlab.train.runtime import Runtime

Plain = Any  # what JSON holds: numbers, texts, lists and dictionaries of them


@dataclass(frozen=True)
class Subject:
    """A model at its first values or at the end of a run, with its task.

    The model is in eval mode and computes in the precision of its weights, float32 unless the
    config asks for fp64. `step` is 0 at initialisation.
    """

    config: dict[str, Any]
    task: Task
    model: nn.Module
    runtime: Runtime
    run_id: str | None = None
    step: int = 0

    @property
    def device(self) -> torch.device:
        """Return where the model is."""
        return self.runtime.device

    @property
    def seed(self) -> int:
        """Return the seed of the run, which also draws what examinations draw."""
        return int(self.config["seed"])

    def batch(self, split: str, indices: Sequence[int], *, padding: float = 0.0) -> Batch:
        """Return a batch of chosen examples on the device (see `Task.batch`)."""
        return self.task.batch(split, indices, padding=padding).to(self.device)

    def generator(self, examination: str) -> np.random.Generator:
        """Return the random numbers of an examination, the same whatever others are made."""
        return np.random.default_rng([self.seed, *examination.encode()])


@dataclass(frozen=True)
class Finding:
    """What an examination found.

    Attributes:
        question: what is asked, in one line.
        answer: what came out, in one line with its figures.
        figures: all figures as plain values.
        columns, rows: those of them that a person reads, as a table.
        why_not: why the question does not apply to the subject; then there are no figures.
    """

    question: str
    answer: str
    figures: Mapping[str, Plain] = field(default_factory=dict)
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str | float | int | None]] = ()
    why_not: str | None = None

    @classmethod
    def none(cls, question: str, why_not: str) -> "Finding":
        """Return the finding of a question that does not apply."""
        return cls(question, f"does not apply: {why_not}", why_not=why_not)


def subject_of_config(overrides: Sequence[str]) -> Subject:
    """Return the model of a config, as `normlab train` would compose it, at its first values."""
    return subject_of(to_dict(compose(overrides)))


def subject_of(config: dict[str, Any]) -> Subject:
    """Return the model of a plain config at its first values."""
    runtime = _runtime(config)
    task = build_task(config)
    model = build_model(config, task).to(runtime.device, runtime.parameter_dtype)
    calibrate_model(config, model, task, runtime)
    return Subject(config, task, model.eval(), runtime)


def subject_of_run(folder: Path, changes: list[str]) -> Subject:
    """Return the model of a finished run, with the weights its test was scored with."""
    run = load_run(folder, changes)
    return Subject(
        run.config,
        run.task,
        run.model,
        run.runtime,
        run_id=run.record.run_id,
        step=run.record.outcome.step,
    )


def _runtime(config: Mapping[str, Any]) -> Runtime:
    return Runtime.start(
        device=config["device"],
        precision=config["precision"],
        threads=config["observe"]["threads"],
    )
