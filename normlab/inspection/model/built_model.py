"""Builds the model of a config, or loads the model of a run, each with its task."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.norms.running import running_norms
from normlab.tasks.base import Batch, Task
from normlab.training.build import build_model, build_task, calibrate_model
from normlab.training.loaded_run import load_run
from normlab.training.own_norms import check_own_norms
from normlab.training.runtime import Runtime
from normlab.training.speed import runtime_of


@dataclass(frozen=True)
class BuiltModel:
    """A model at initialization or at the end of a run, with its task.

    The model is in eval mode. It computes in the dtype of its weights, which is float32, or float64
    if the config sets precision=fp64. At initialization, `step` is 0 and `run_id` is None.
    """

    config: dict[str, Any]
    task: Task
    model: nn.Module
    runtime: Runtime
    run_id: str | None = None
    step: int = 0

    @property
    def seed(self) -> int:
        """The seed of the run, which also seeds the random draws of questions."""
        return int(self.config["seed"])

    @property
    def keeps_statistics(self) -> bool:
        """Whether any norm uses running statistics in eval mode."""
        return any(norm.eval_stats != "batch" for norm in running_norms(self.model))

    def number(self, split: str) -> int:
        """Return the number of examples in a split."""
        return len(self.task.lengths(split))

    def batch(self, split: str, indices: Sequence[int], *, padding: float = 0.0) -> Batch:
        """Return a batch on the device. At least a share `padding` of its positions is padding."""
        return self.task.batch(split, indices, padding=padding).to(self.runtime.device)

    def losses(self, batch: Batch, model: nn.Module | None = None) -> dict[str, Tensor]:
        """Return the summed losses of a batch. If `model` is passed, it computes them."""
        return self.task.losses(model or self.model, batch)

    def generator(self, question: str) -> np.random.Generator:
        """Return a random generator for a question, which other questions do not affect."""
        return np.random.default_rng([self.seed, *question.encode()])


def model_from_overrides(overrides: Sequence[str]) -> BuiltModel:
    """Compose a config as `normlab train` does, and return its model at initialization."""
    return model_from_config(to_dict(compose(overrides)))


def model_from_config(config: dict[str, Any]) -> BuiltModel:
    """Return the model of a config at initialization. The config is a plain dict."""
    runtime, task = runtime_of(config), build_task(config)
    model = build_model(config, task).to(runtime.device, runtime.parameter_dtype)
    check_own_norms(config, model)
    calibrate_model(config, model, task, runtime)
    return BuiltModel(config, task, model.eval(), runtime)


def model_from_run(folder: Path, changes: list[str]) -> BuiltModel:
    """Return the model of a finished run, with the weights and statistics that the run tested.

    `changes` are overrides of the run's config.
    """
    run = load_run(folder, changes)
    run.runtime.set_torch()
    record = run.record
    with run.as_tested() as model:
        model = deepcopy(model)
    return BuiltModel(run.config, run.task, model, run.runtime, record.run_id, record.outcome.step)
