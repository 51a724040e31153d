"""Loads finished runs with their model and task, exports them, and rescores their translations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normlab.config.plain import from_dict, to_dict
from normlab.errors import UserError
from normlab.models.folding import fold as fold_norms
from normlab.norms.running import running_norms
from normlab.records.files import atomic_write
from normlab.records.packed import address_of
from normlab.records.record import DISTURBANCES, RunRecord, Score
from normlab.records.store import HYPOTHESES_FILE, hypotheses_file, read_hypotheses, read_record
from normlab.tasks.base import Task
from normlab.tasks.batch import Batch
from normlab.training.build import build_evaluator, build_model, build_task, check_nodes
from normlab.training.checkpoint import FORMAT, Checkpoints, load_checkpoint, put_weights, reading
from normlab.training.data import (
    OTHER_VOCABULARY,
    VOCABULARY,
    changed_text,
    differing,
    read_vocabulary,
)
from normlab.training.evaluate import Evaluator, judged_by, load_weights
from normlab.training.runtime import Runtime, torch_settings_kept
from normlab.training.stopping import Validations

WEIGHTS_FILE = "model.pt"
_COMPARED = 8  # validation examples on which a folded model must agree with the run's model
_AGREES = 1e-3  # relative to the largest logit, for float32 rounding over dozens of layers


@dataclass(frozen=True)
class LoadedRun:
    """A finished run, with its record, its task, and its model in eval mode.

    `weights` is the name of the loaded weights. `recalibrate` says whether their running statistics
    must be recalibrated before use (averaged weights). `folded` has the names of the folded norms.
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
        """Score a split, also under the extra conditions that `observe` asks for.

        With a `limit`, at most that many examples of the split are scored.
        """
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

    def _reached(self) -> dict[str, Score]:
        """Return the steps and tokens to reach each target of `observe.targets`."""
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
    false, the run's data may be missing; the model can then translate or continue text, but cannot
    be scored.

    Raises UserError if a file is missing or damaged, a key is invalid, the run is published (and
    has no weights), or no norm can be folded.
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
    model = build_model(config, task)
    checkpoints = Checkpoints(folder / "checkpoints", writes=False)
    validate = config["validate"]
    name, step = weights or judged_by(validate), record.budget.steps
    chosen_weights = load_weights(name, validate, checkpoints, step=step)
    with reading(folder / "checkpoints"):
        put_weights(model, chosen_weights.state, folder / "checkpoints")
    model.to(runtime.device, runtime.parameter_dtype).eval()
    folded = _fold(model, recalibrate=chosen_weights.recalibrate) if fold else ()
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
            f"{folder}: a published run keeps no weights: train it again, or score its kept "
            "translations with normlab eval RUN --kept"
        )
    return record


def _config_of(record: RunRecord, changes: Sequence[str]) -> dict[str, Any]:
    """Return a run's config with changes, without its extra tests unless the changes ask for them.

    Extra tests are tests with noise, tests on training examples, and targets.
    """
    none = {**{f"test_{name}": [] for name in DISTURBANCES}, "test_seen": 0, "targets": None}
    settings = dict(record.config)
    if isinstance(observe := settings.get("observe"), dict):
        settings["observe"] = {**observe, **none}
    config = to_dict(from_dict(settings, changes))
    check_nodes(config)
    return config


def _settle_data(
    task: Task, folder: Path, record: RunRecord, config: Mapping[str, Any], *, data: bool
) -> None:
    """Check a run's data and vocabulary. If `data` is false, let its task work without data.

    Raises UserError if data or vocabulary have changed since the run was trained.
    """
    vocabulary = read_vocabulary(folder)
    if not data:
        try:
            task.restore(vocabulary, record.data)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        except Exception as error:  # the tokenizers library raises plain exceptions
            raise UserError(
                f"{folder / VOCABULARY}: missing or damaged ({error}); train the run again"
            ) from error
        return
    check_data(folder, record, task, config)
    if task.vocabulary() != vocabulary:
        raise UserError(f"{folder} {OTHER_VOCABULARY}")


def check_data(folder: Path, record: RunRecord, task: Task, config: Mapping[str, Any]) -> None:
    """Raise UserError if a task's data differ from the data that a run was trained on."""
    if changed := differing(record.data.get("checksums"), task.checksums()):
        raise UserError(
            f"{folder} {changed_text(changed, config['data_dir'])}: set data_dir=FOLDER to the "
            "data of the run"
        )


@dataclass(frozen=True)
class Exported:
    """An exported run. `apart` is the largest change of an output divided by the largest output."""

    record: RunRecord
    file: Path
    folded: Sequence[str]
    apart: float


def export(run_dir: Path, folder: Path, *, fold: bool) -> Exported:
    """Write a finished run's tested weights to a folder, with norms folded if `fold`.

    The file holds a state dict under `model` (without the weights of folded norms), the config, and
    the names of the folded norms. Everything runs on the CPU. Raises UserError if no norm can be
    folded, or if the folded model's outputs do not agree with the run's.
    """
    run = load_run(run_dir, ["device=cpu"])
    written = load_run(run_dir, ["device=cpu"], fold=True) if fold else run
    batch = run.task.batch("valid", range(min(_COMPARED, len(run.task.lengths("valid")))))
    expected = outputs(run.task, run.model, batch)
    difference = (outputs(run.task, written.model, batch) - expected).abs().max()
    apart = float(difference / expected.abs().max().clamp(min=1e-12))
    if not apart <= _AGREES:
        raise UserError(
            f"{run_dir}: the folded model's outputs differ by {apart:.2g} of the largest output; "
            "nothing is exported"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / WEIGHTS_FILE, "wb") as file:
        content = {
            "format": FORMAT,
            "run_id": run.record.run_id,
            "config": run.record.config,
            "folded": [*written.folded],
            "model": written.model.state_dict(),
        }
        torch.save(content, file)
    return Exported(run.record, folder / WEIGHTS_FILE, written.folded, apart)


@torch.no_grad()
def outputs(task: Task, model: nn.Module, batch: Batch) -> Tensor:
    """Return the logits at a batch's real targets, or its mean losses if the task has no logits."""
    if (stepwise := task.stepwise(model, batch)) is not None:
        return stepwise[0]
    losses = task.losses(model, batch)
    return torch.stack([losses[name] / batch.counts[name] for name in sorted(losses)])


def score_kept(folder: Path, changes: Sequence[str]) -> dict[str, Score]:
    """Rescore the translations kept with a run, with changed settings."""
    record = read_record(folder)
    config = to_dict(from_dict(record.config, changes))
    task = build_task(config)
    check_data(folder, record, task, config)
    scores = rescored(folder, task)
    return {name: score for name, score in scores.items() if name in record.scores}


def rescored(folder: Path, task: Task) -> dict[str, Score]:
    """Rescore the translations kept with a run's record.

    `folder` may be the address of a packed run. Raises UserError if no translations were kept, if
    the task generates no text, or if there are more or fewer translations than references.
    """
    score_lines = getattr(task, "score_lines", None)
    if score_lines is None:
        raise UserError(f"{folder}: the task of this run generates no text")
    hypotheses = read_hypotheses(folder)
    if not hypotheses:
        raise UserError(f"{folder} keeps no {HYPOTHESES_FILE}")
    new_scores: dict[str, Score] = {}
    for split, lines in hypotheses.items():
        try:
            scores = score_lines(split, lines)
        except UserError as error:
            raise UserError(f"{folder / hypotheses_file(split)}: {error}") from None
        new_scores |= {f"{split}/{name}": score for name, score in scores.items()}
    return new_scores


def _fold(model: nn.Module, *, recalibrate: bool) -> Sequence[str]:
    """Fold norms for inference and return their names, or raise UserError if none can be folded."""
    norms = running_norms(model)
    if any(recalibrate or norm.eval_stats == "recalibrated" for norm in norms):
        raise UserError(
            "--fold needs the running statistics of training, but this run recalibrates them: set "
            "norm.eval_stats=running, or validate.average_statistics=average for averaged weights"
        )
    if not (folded := fold_norms(model)):
        raise UserError(
            "--fold finds no norm to fold: it folds norms that scale and shift each feature by "
            "constants (norm=bn and its variants with norm.eval_stats=running, or norm=taper once "
            "it has tapered) inside the branches (placement=pre), or after convolutions"
        )
    return folded
