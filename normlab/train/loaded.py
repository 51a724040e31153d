"""A finished run, its model and task ready to use."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from normlab.config.compose import from_dict, to_dict
from normlab.config.registry import option_names
from normlab.models.folding import fixed_map
from normlab.models.folding import fold as fold_norms
from normlab.norms.base import running_norms
from normlab.records.record import RunRecord, Score
from normlab.records.store import HYPOTHESES_FILE, RunStore, hypotheses_splits, read_hypotheses
from normlab.tasks.base import Task
from normlab.train.build import build_evaluator, build_model, build_task, check_nodes, make_norm
from normlab.train.checkpoint import Checkpoints, put_weights, reading
from normlab.train.evaluate import Evaluator, judged_by, load_weights
from normlab.train.preflight import check_memory
from normlab.train.runtime import Runtime

_WIDTH = 8  # of a norm that is asked what it can


@dataclass(frozen=True)
class LoadedRun:
    """A finished run: its record, and its model and task ready to use."""

    record: RunRecord
    config: dict[str, Any]
    model: nn.Module
    task: Task
    runtime: Runtime
    evaluator: Evaluator
    weights: str
    recalibrate: bool

    def evaluate(
        self, split: str = "test", *, outputs: Path | None = None, limit: int | None = None
    ) -> dict[str, Score]:
        """Score a split under the config as loaded, and what changes of `observe` ask for.

        With a `limit` about so many of its examples are scored.
        """
        score = partial(
            self.evaluator.scores, self.model, split, recalibrate=self.recalibrate, limit=limit
        )
        scores = score(outputs=outputs)
        for condition in self.evaluator.conditions:
            if condition.noise is not None:
                scores |= score(condition=condition)
        if self.evaluator.test_seen:
            scores |= self.evaluator.seen(self.model, recalibrate=self.recalibrate)
        return scores


def load_run(
    run_dir: Path | str,
    changes: list[str] | None = None,
    *,
    fold: bool = False,
    weights: str | None = None,
) -> LoadedRun:
    """Load a run with the weights its test was scored with, or others by their name.

    `weights` are `last`, `average`, `best` or `best_<score>`, such as `best_loss`.
    `changes` are dotted `key=value` settings of the config that replace those of the run, such as
    `task.test_search.beam=1` or `norm.eval_stats=batch`. `fold` puts norms with running statistics
    into the products beside them (see `normlab.models.folding`).

    Raises ValueError naming a missing or damaged file, a key that does not fit, or why nothing can
    be folded.
    """
    folder = Path(run_dir)
    record = RunStore(folder).read(folder)
    config = to_dict(from_dict(_without_more_tests(record.config), changes or ()))
    check_nodes(config)
    check_memory(config, training=False)
    runtime = Runtime.start(
        device=config["device"],
        precision=config["precision"],
        threads=config["observe"]["threads"],
    )
    task = build_task(config)
    model = build_model(config, task)
    found = load_weights(
        weights or judged_by(config["validate"]),
        config["validate"],
        Checkpoints(folder / "checkpoints", writes=False),
        step=record.budget.steps,
    )
    with reading(folder / "checkpoints"):
        put_weights(model, found.state, folder / "checkpoints")
    model.to(runtime.device, runtime.parameter_dtype).eval()
    if fold:
        _fold(model, recalibrate=found.recalibrate)
    evaluator = build_evaluator(config, task, runtime)
    return LoadedRun(record, config, model, task, runtime, evaluator, found.name, found.recalibrate)


def _without_more_tests(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a run's config without the tests that it repeated, which are to be asked for anew."""
    observe = config.get("observe")
    if not isinstance(observe, Mapping):
        return config
    return {**config, "observe": {**observe, "test_noise": [], "test_seen": 0}}


def rescored(folder: Path, task: Task) -> dict[str, Score]:
    """Score again what a run's tested weights translated, from the lines kept beside its record.

    The folder may be a run's or a published one. Raises ValueError where it keeps no lines, for a
    task that makes none, and where lines and references do not pair up.
    """
    score_lines = getattr(task, "score_lines", None)
    if score_lines is None:
        raise ValueError(f"{folder} is of a task that writes no text")
    splits = hypotheses_splits(folder)
    if not splits:
        raise ValueError(f"{folder} keeps no {HYPOTHESES_FILE}, plain or gzipped")
    found: dict[str, Score] = {}
    for split in splits:
        _, lines = read_hypotheses(folder, split)
        scores = score_lines(split, lines)
        found |= {f"{split}/{name}": score for name, score in scores.items()}
    return found


def _fold(model: nn.Module, *, recalibrate: bool) -> None:
    """Fold norms for inference; ValueError where that is not possible."""
    norms = running_norms(model)
    if norms and recalibrate:
        raise ValueError(
            "fold=true needs the running statistics of training, and those of averaged weights are "
            "re-estimated before the test: give validate.average_statistics=average, or "
            "validate.average=0 for the last weights"
        )
    if any(norm.eval_stats == "recalibrated" for norm in norms):
        raise ValueError(
            "fold=true needs the running statistics of training, and norm.eval_stats=recalibrated "
            "re-estimates them before the test: give norm.eval_stats=running"
        )
    if not fold_norms(model):
        raise ValueError(
            "fold=true finds no norm to fold: it takes norms that scale and shift each feature by "
            f"running statistics (norm={' or '.join(_foldable())}, norm.eval_stats=running) "
            "inside the branches (placement=pre), or behind convolutions"
        )


def _foldable() -> Iterator[str]:
    """Yield the options of norms that fold, with the values of their files."""
    for name in option_names("norm"):
        if fixed_map(make_norm(name, _WIDTH).eval()) is not None:
            yield name
