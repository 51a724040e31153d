"""Loads finished runs with their model and task."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from normlab.config.run_config import check_acting, from_dict, to_dict
from normlab.config.schema import NORM_KEYS
from normlab.data.cache import cache_key
from normlab.errors import UserError
from normlab.models.folding import fold as fold_norms
from normlab.records.packed import address_of
from normlab.records.record import DISTURBANCES, RunRecord, Score
from normlab.records.store import (
    MEND_VOCABULARY,
    VOCABULARY_FOLDER,
    read_record,
    read_vocabulary,
)
from normlab.tasks.base import Task
from normlab.tasks.conditions import Condition, norms_to_recalibrate
from normlab.training.build import build_evaluator, build_model, build_task, check_nodes
from normlab.training.checkpoint import Checkpoints, load_checkpoint, put_weights, reading
from normlab.training.data_changes import OTHER_VOCABULARY, check_data
from normlab.training.evaluate import Evaluator, judged_by, load_weights, path_in_record
from normlab.training.runtime import Runtime, torch_settings_kept
from normlab.training.stopping import Validations

BATCHES = ("batch_size", "max_tokens", "batching")
"""The keys that choose the training batches, on which running statistics are recalibrated."""
SCORED = (
    *("task", "model", "placement", "sites", *NORM_KEYS, "precision", "device", "data_dir"),
    *(f"validate.{key}" for key in ("test", "best", "select_by", "average", "average_statistics")),
    *("validate.recalibration_batches", "validate.limit"),
    *("observe.threads", "observe.debug", "observe.targets", "observe.test_seen"),
    *(f"observe.test_{name}" for name in DISTURBANCES),
)
"""The keys and nodes that the scores of a trained run may depend on, besides `BATCHES`."""
_LOADED = (*SCORED, *BATCHES, "seed", "optim")  # the last two for an inspection


@dataclass(frozen=True)
class LoadedRun:
    """A finished run, with its record, its task, and its model in eval mode.

    `weights` is the name of the loaded weights. `recalibrate` says whether their running statistics
    must be recalibrated before use (averaged weights), as `as_tested` does. `folded` has the names
    of the folded norms.
    """

    record: RunRecord
    config: dict[str, Any]
    model: nn.Module
    task: Task
    runtime: Runtime
    evaluator: Evaluator
    weights: str
    recalibrate: bool
    checkpoints: Checkpoints
    folded: Sequence[str] = ()

    @torch_settings_kept()
    def evaluate(
        self, split: str = "test", *, outputs: Path | None = None, limit: int | None = None
    ) -> dict[str, Score]:
        """Score a split, also under the extra conditions set in `observe`.

        With a `limit`, at most that many examples of the split are scored. Raises UserError if
        `outputs` are to be written, but the task generates no text.
        """
        if outputs is not None and not hasattr(self.task, "translate"):
            task = self.record.choice("task")
            raise UserError(f"task={task} generates no translations to write to {outputs}")
        self.runtime.set_torch()
        score = partial(
            self.evaluator.scores, self.model, split, recalibrate=self.recalibrate, limit=limit
        )
        scores = score(outputs=outputs)
        for condition in self.evaluator.conditions:
            if any(getattr(condition, name) is not None for name in DISTURBANCES):
                scores |= score(condition=condition)
        scores |= self.evaluator.scores_on_training_examples(
            self.model, recalibrate=self.recalibrate
        )
        return scores | self._reached()

    @contextmanager
    def as_tested(self) -> Generator[nn.Module]:
        """Return the model with the running statistics and the precision that its test used.

        Running statistics are recalibrated if a norm has `eval_stats: recalibrated` or if
        `recalibrate` is set. On exit, the model has its own statistics again.
        """
        with self.evaluator.scoring(self.model, Condition(), recalibrate=self.recalibrate):
            yield self.model

    def path_in_record(self, path: str) -> str:
        """Return the path that the run's record gives to a score of the loaded weights."""
        return path_in_record(path, self.weights, self.config["validate"])

    @property
    def recalibrates(self) -> bool:
        """Whether training batches recalibrate running statistics before the model is used."""
        return bool(norms_to_recalibrate(self.model, recalibrate=self.recalibrate))

    def _reached(self) -> dict[str, Score]:
        """Return the steps and tokens that the run needed for each target in `observe.targets`."""
        if not (targets := self.config["observe"]["targets"]):
            return {}
        state, validations = load_checkpoint(self.checkpoints.last), Validations()
        with reading(self.checkpoints.last):
            validations.load_state_dict(state["validations"])
        return validations.reached(targets, lost=self.record.outcome.status == "diverged")


@torch_settings_kept()
def load_run(
    run_dir: Path | str,
    changes: list[str] | None = None,
    *,
    fold: bool = False,
    weights: str | None = None,
    data: bool = True,
) -> LoadedRun:
    """Load a run with the weights that its test used, or with other weights by name.

    `weights` is `last`, `average`, `best` or `best_<score>`, such as `best_loss`. `changes` are
    dotted `key=value` settings that replace settings in the run's config, such as
    `task.test_search.beam=1` or `norm.eval_stats=batch`. `fold` folds norms that are fixed in eval
    into the adjacent linear layers or convolutions (see `normlab.models.folding`). If `data` is
    false, the run's data may be missing, unless its running statistics must be recalibrated. The
    model can then translate or continue text, but cannot be scored.

    Raises UserError if a file is missing or damaged, a key is invalid or has no effect, the run is
    published (and has no weights), or no norm can be folded.
    """
    folder = Path(run_dir)
    record = _record_with_weights(folder)
    config = _config_of(record, changes or ())
    runtime = Runtime.start(
        device=config["device"],
        precision=config["precision"],
        threads=config["observe"]["threads"],
    )
    task = build_task(config)
    _settle_data(task, folder, record, config, data=data)
    model = build_model(config, task).to(runtime.device, runtime.parameter_dtype).eval()
    checkpoints = Checkpoints(folder / "checkpoints", writes=False)
    validate = config["validate"]
    name, step = weights or judged_by(validate), record.budget.steps
    chosen_weights = load_weights(name, validate, checkpoints, step=step)
    with reading(folder / "checkpoints"):
        put_weights(model, chosen_weights.state, folder / "checkpoints")
    folded = _fold(model, recalibrate=chosen_weights.recalibrate) if fold else ()
    if not data and norms_to_recalibrate(model, recalibrate=chosen_weights.recalibrate):
        task = _task_for_recalibration(folder, record, config)
    evaluator = build_evaluator(config, task, runtime)
    return LoadedRun(
        record,
        config,
        model,
        task,
        runtime,
        evaluator,
        chosen_weights.name,
        chosen_weights.recalibrate,
        checkpoints,
        folded,
    )


def _record_with_weights(folder: Path) -> RunRecord:
    """Return the record of a run, or raise UserError if the run is published."""
    record = read_record(folder)
    if address_of(folder) is not None:
        raise UserError(
            f"{folder} is a published run, which keeps no weights; train it again, or score its "
            "kept translations with normlab eval RUN --kept"
        )
    return record


def _config_of(record: RunRecord, changes: Sequence[str]) -> dict[str, Any]:
    """Return a run's config with `changes`, without extra measurements unless a change sets them.

    These are tests with noise, tests on training examples, and the steps to reach targets.
    """
    none = {**{f"test_{name}": [] for name in DISTURBANCES}, "test_seen": 0, "targets": None}
    settings = dict(record.config)
    if isinstance(observe := settings.get("observe"), dict):
        settings["observe"] = {**observe, **none}
    config = to_dict(from_dict(settings, changes))
    check_acting(changes, _LOADED)
    check_nodes(config)
    return config


def _settle_data(
    task: Task, folder: Path, record: RunRecord, config: Mapping[str, Any], *, data: bool
) -> None:
    """Check a run's data and vocabulary. If `data` is false, let its task work without data.

    Raises UserError if data or vocabulary have changed since the run was trained.
    """
    if not data:
        try:
            task.restore(read_vocabulary(folder), record.data)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        except Exception as error:  # the tokenizers library raises plain exceptions
            raise UserError(
                f"{folder / VOCABULARY_FOLDER} is missing or damaged ({error}); {MEND_VOCABULARY}"
            ) from error
        return
    check_data(folder, record, task, config)
    _check_vocabulary(folder, task.vocabulary())


def _check_vocabulary(folder: Path, vocabulary: Mapping[str, str]) -> None:
    """Raise UserError if the vocabulary learned from a run's data is not the one in its folder."""
    if read_vocabulary(folder) == vocabulary:
        return
    last = Checkpoints(folder / "checkpoints", writes=False).last
    with reading(last):
        trained_with = load_checkpoint(last)["vocabulary"]
    if trained_with != cache_key(vocabulary):
        raise UserError(f"{folder} {OTHER_VOCABULARY}")
    raise UserError(f"{folder / VOCABULARY_FOLDER} is missing or damaged; {MEND_VOCABULARY}")


def _task_for_recalibration(folder: Path, record: RunRecord, config: Mapping[str, Any]) -> Task:
    """Return a run's task with its data. Raises UserError if the data are missing or changed."""
    task = build_task(config)
    try:
        _settle_data(task, folder, record, config, data=True)
    except UserError as error:
        raise UserError(
            f"this run recalibrates its running statistics on training batches, but {error} (or "
            "use norm.eval_stats=running and validate.average_statistics=average, which need no "
            "data but are not what the run tested)"
        ) from None
    return task


def _fold(model: nn.Module, *, recalibrate: bool) -> Sequence[str]:
    """Fold norms for inference and return their names, or raise UserError if none can be folded."""
    if norms_to_recalibrate(model, recalibrate=recalibrate):
        raise UserError(
            "--fold needs the running statistics from training, but this run recalibrates them; "
            "set norm.eval_stats=running, or validate.average_statistics=average for averaged "
            "weights"
        )
    if not (folded := fold_norms(model)):
        raise UserError(
            "--fold finds no norm to fold; it folds norms that scale and shift each feature by "
            "constants (norm=bn and its variants with norm.eval_stats=running, or norm=taper "
            "once it has tapered) inside the branches (placement=pre), or after convolutions"
        )
    return folded
