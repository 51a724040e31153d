"""Scores a model during and after training, and chooses the weights to test.

    last           weights of the last step (validate.test=last)
    average        mean of the weights of the last k validations (validate.average=k)
    best           weights of the best validation by validate.select_by (validate.test=best)
    best_<score>   weights of the best validation by a score

A run is judged by one of the first three, whose scores have paths such as `test/bleu`. With
`validate.best`, the best weights are also tested, and their scores have paths such as
`test/best_loss/bleu`.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normlab.data.batching import eval_batches
from normlab.distributed.process_group import gather_objects
from normlab.errors import UserError
from normlab.metrics.counts import mean_score
from normlab.records.record import Score
from normlab.records.store import hypotheses_file
from normlab.stages import TESTING, VALIDATING, Stage, say
from normlab.tasks.base import Batch, Task, spread
from normlab.tasks.conditions import Condition, conditions, under
from normlab.training.checkpoint import Checkpoints, load_checkpoint, reading, weights_of
from normlab.training.runtime import Runtime

# A separate seed, because recalibration must not use the order of the training batches.
_RECALIBRATION_SEED = 0x5EED
LAST, AVERAGE, BEST = "last", "average", "best"
LOSS = "loss"


class Evaluator:
    """Evaluates the models of one task.

    Args:
        recalibration_batches: number of training batches for recalibration.
        disturbances: values of noise, weight noise and brightness with which to repeat the test.
        test_seen: number of training examples to score in the test, rounded up to whole batches.
        one_batch: whether to score and recalibrate with a single batch.
        limit: maximum number of examples of a split to score, or None for all.
    """

    def __init__(
        self,
        task: Task,
        runtime: Runtime,
        *,
        recalibration_batches: int,
        disturbances: Mapping[str, Sequence[float]] = {},
        test_seen: int = 0,
        one_batch: bool = False,
        limit: int | None = None,
    ):
        self.task = task
        self.runtime = runtime
        self.recalibration_batches = 1 if one_batch else recalibration_batches
        self.test_seen = min(test_seen, 1) if one_batch else test_seen
        self.one_batch, self.limit = one_batch, limit
        self.disturbances = disturbances
        for brightness in disturbances.get("brightness", ()):
            task.dimmed(brightness)  # raises UserError if the task has no images

    @property
    def conditions(self) -> list[Condition]:
        """The conditions under which the test is repeated."""
        return conditions(self.task, self.disturbances)

    def scores(
        self,
        model: nn.Module,
        split: str,
        *,
        recalibrate: bool = False,
        outputs: Path | None = None,
        condition: Condition | None = None,
        limit: int | None = None,
    ) -> dict[str, Score]:
        """Return the scores of a split by path, such as `valid/bleu`, or `valid/batch_size_1/bleu`.

        At most `limit` examples, spread over the split, are scored. The default is the evaluator's
        limit, but a split whose `outputs` are written is scored as a whole.

        A norm's running statistics are recalibrated first if its `eval_stats` asks for it or if
        `recalibrate` is true. The model's mode (training or evaluation) is restored afterwards.
        """
        say(Stage(VALIDATING if split == "valid" else TESTING))
        condition = condition or Condition()
        size = condition.batch_size
        if limit is None and outputs is None:
            limit = self.limit
        if self.one_batch:
            limit = size or self.task.eval_batch_size
        with self.scoring(model, condition, recalibrate=recalibrate):
            scores = self.task.evaluate(
                model, split, self.runtime.world, outputs=outputs, batch_size=size, limit=limit
            )
        path = f"{split}/{condition.name}".rstrip("/")
        return {f"{path}/{name}": score for name, score in scores.items()}

    def scores_on_training_examples(
        self, model: nn.Module, *, recalibrate: bool = False
    ) -> dict[str, Score]:
        """Return the losses on training examples in evaluation mode, such as `test/seen/loss`.

        The examples are spread evenly over all lengths and are the same in every run. They are
        scored without dropout or augmentation. Losses other than `loss` get a suffix, such as
        `mlm_loss`. The result is empty if `test_seen` is 0.
        """
        if not self.test_seen:
            return {}
        say(Stage(TESTING))
        size = self.task.eval_batch_size
        batches = eval_batches(self.task.lengths("train"), batch_size=size)
        chosen = spread(len(batches), math.ceil(self.test_seen / size))
        world, device = self.runtime.world, self.runtime.device
        sums: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        with self.scoring(model, Condition(), recalibrate=recalibrate):
            for place in chosen[world.rank :: world.size]:
                batch = self.task.batch("train", batches[place].tolist()).to(device)
                losses = self.task.losses(model, batch)
                sums.update({name: float(value) for name, value in losses.items()})
                counts.update(batch.counts)
        all_sums: Counter[str] = Counter()
        all_counts: Counter[str] = Counter()
        # Ranks without a batch do not know the names. `+` would drop NaN and negative sums.
        for rank_sums, rank_counts in gather_objects((sums, counts)):
            all_sums.update(rank_sums)
            all_counts.update(rank_counts)
        return {
            f"test/seen/{name if name == LOSS else f'{name}_{LOSS}'}": mean_score(
                LOSS, all_sums[name], count
            )
            for name, count in sorted(all_counts.items())
            if count
        }

    @contextmanager
    def scoring(
        self, model: nn.Module, condition: Condition, *, recalibrate: bool
    ) -> Iterator[None]:
        """Put a model into evaluation mode under a condition, and restore its mode on exit.

        Inside the context, its norms have the running statistics that they are scored with.
        """
        was_training = model.training
        model.eval()
        batches = self._recalibration_batches()
        try:
            with (
                torch.no_grad(),
                self.runtime.autocast(),
                under(condition, self.task, model, batches, recalibrate=recalibrate),
            ):
                yield
        finally:
            model.train(was_training)

    def _recalibration_batches(self) -> Iterator[Batch]:
        """Yield the batches for recalibration. A model without it needs no training data."""
        batches = self.task.calibration_batches(self.runtime.world, _RECALIBRATION_SEED)
        yield from islice(batches, self.recalibration_batches)

    def test(
        self, model: nn.Module, weights: "Weights", *, outputs: Path | None = None
    ) -> dict[str, Score]:
        """Load weights and score every test split.

        With `outputs`, the generated text of each split that `limit` does not shorten is written to
        that folder, `test` is scored again under each of the `conditions` that can change the
        model's outputs, and finally the examples of `test_seen` are scored. Without `outputs`, only
        whole splits are scored (see `whole`).
        """
        model.load_state_dict(weights.state)
        score = partial(self.scores, model, recalibrate=weights.recalibrate)
        scores: dict[str, Score] = {}
        for split in self.task.test_splits():
            whole_split = self.limit is None or len(self.task.lengths(split)) <= self.limit
            file = outputs / hypotheses_file(split) if outputs is not None and whole_split else None
            scores |= score(split, outputs=file)
        if outputs is None:
            return whole(scores)
        for condition in self.conditions:
            if condition.matters(model):
                scores |= score("test", condition=condition)
        return scores | self.scores_on_training_examples(model, recalibrate=weights.recalibrate)


def whole(scores: Mapping[str, Score]) -> dict[str, Score]:
    """Return the scores of whole splits under the run's own settings, such as `test/bleu`."""
    return {name: score for name, score in scores.items() if name.count("/") == 1}


def judged_by(validate: Mapping[str, Any]) -> str:
    """Return the name of the weights that a run with this `validate` node is judged by."""
    return AVERAGE if validate["average"] else str(validate["test"])


def best_by(validate: Mapping[str, Any], headline: str | None) -> list[str]:
    """Return the names of the scores for which a run keeps its best weights.

    `headline` is the task's main score, or None if that is the loss.
    """
    selected = [validate["select_by"]] if judged_by(validate) == BEST or validate["best"] else []
    also = [LOSS, *([headline] if headline else [])] if validate["best"] else []
    return list(dict.fromkeys([*also, *selected]))


@dataclass(frozen=True)
class Weights:
    """A model's weights, their name and step, and whether to recalibrate running statistics."""

    name: str
    step: int
    state: Mapping[str, Tensor]
    recalibrate: bool = False


def load_weights(
    name: str, validate: Mapping[str, Any], checkpoints: Checkpoints, *, step: int
) -> Weights:
    """Return the weights called `name` of a run that ended at `step`.

    Raises UserError if a file is missing or damaged, or if the name is unknown.
    """
    if name == AVERAGE:
        count = validate["average"] or 1
        recalibrate = validate["average_statistics"] == "recalibrate"
        return Weights(name, step, checkpoints.average(step, count), recalibrate)
    if name not in (LAST, BEST) and not name.startswith(f"{BEST}_"):
        raise UserError(
            f"weights={name!r} does not exist; choose {LAST}, {AVERAGE}, {BEST} or "
            f"{BEST}_<score>, such as {BEST}_{LOSS}"
        )
    score = validate["select_by"] if name == BEST else name.removeprefix(f"{BEST}_")
    path = checkpoints.last if name == LAST else checkpoints.best(score)
    if name != LAST and not validate["best"] and not path.exists():
        raise UserError(
            f"{path} was not kept, because the run was trained with validate.best=false"
        )
    content = load_checkpoint(path)
    with reading(path):
        at = content["progress"] if name == LAST else content
        return Weights(name, int(at["step"]), weights_of(content, path))


def score_weights(
    evaluator: Evaluator,
    model: nn.Module,
    validate: Mapping[str, Any],
    checkpoints: Checkpoints,
    *,
    step: int,
    outputs: Path,
) -> tuple[dict[str, Score], dict[str, int]]:
    """Test the weights by which a run that ended at `step` is judged, and its best weights.

    Returns the scores, and the step of each set of weights by name. The text generated with the
    weights that the run is judged by is written to the folder `outputs`. Weights from the same step
    are scored only once.
    """
    first = load_weights(judged_by(validate), validate, checkpoints, step=step)
    scores = evaluator.test(model, first, outputs=outputs)
    steps = {first.name: first.step}
    by_step = {} if first.name == AVERAGE else {first.step: whole(scores)}
    others = []
    if validate["best"]:
        others = [f"{BEST}_{name}" for name in best_by(validate, evaluator.task.headline)]
        others += [LAST] if first.name == BEST else []
    for name in others:
        other = load_weights(name, validate, checkpoints, step=step)
        if other.step not in by_step:
            by_step[other.step] = evaluator.test(model, other)
        scores |= renamed(by_step[other.step], name)
        steps[name] = other.step
    return scores, steps


def renamed(scores: Mapping[str, Score], weights: str) -> dict[str, Score]:
    """Add the name of the weights to the paths of scores, such as `test/best_loss/bleu`."""
    parts = ((path.split("/", 1), score) for path, score in scores.items())
    return {f"{split}/{weights}/{name}": score for (split, name), score in parts}


def path_in_record(path: str, weights: str, validate: Mapping[str, Any]) -> str:
    """Return the path that a record gives to a score of some weights.

    That is the path itself for the weights that a run with this `validate` node is judged by, and
    otherwise a path such as `test/best_loss/bleu`.
    """
    best_weights = f"{BEST}_{validate['select_by']}"
    judged = judged_by(validate)
    name, judged_name = (best_weights if each == BEST else each for each in (weights, judged))
    split, score = path.split("/", 1)
    return path if name == judged_name else f"{split}/{name}/{score}"
