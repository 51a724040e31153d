"""Scoring a model in the middle or at the end of a run, without disturbing it."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn

from normlab.progress import TESTING, VALIDATING, Stage, say
from normlab.records.hypotheses import hypotheses_file
from normlab.records.record import Score
from normlab.tasks.base import Condition, Task
from normlab.train.runtime import Runtime

# A stream of its own: re-estimating statistics must not draw from the batches of training.
_RECALIBRATION_SEED = 0x5EED
_BLEND = Condition(blend=True)


class Evaluator:
    """Evaluate one model of one task.

    Args:
        recalibration_batches: training batches that re-estimated statistics are made of.
        noise: deviations of noise on the input, under each of which the test is repeated.

    Attributes:
        conditions: under what the test is repeated, where the model can tell it apart.
    """

    def __init__(
        self,
        task: Task,
        runtime: Runtime,
        *,
        recalibration_batches: int,
        noise: Sequence[float] = (),
    ):
        self.task = task
        self.runtime = runtime
        self.recalibration_batches = recalibration_batches
        self.conditions = (*task.conditions, *(Condition(noise=value) for value in noise), _BLEND)

    def scores(
        self,
        model: nn.Module,
        split: str,
        *,
        recalibrate: bool = False,
        outputs: Path | None = None,
        condition: Condition | None = None,
    ) -> dict[str, Score]:
        """Score a split; names are paths such as `valid/bleu`, or `valid/batch_size_1/bleu`.

        Running statistics are re-estimated first where a norm's `eval_stats` says so, or for all
        of them with `recalibrate`. The model's mode is put back.
        """
        say(Stage(VALIDATING if split == "valid" else TESTING))
        condition = condition or Condition()
        was_training = model.training
        model.eval()
        world = self.runtime.world
        batches = islice(
            self.task.calibration_batches(world, _RECALIBRATION_SEED), self.recalibration_batches
        )
        with (
            torch.no_grad(),
            self.runtime.autocast(),
            condition.applied(model),
            self.task.recalibrated(model, batches, force=recalibrate),
            condition.disturbed(model),
        ):
            scores = self.task.evaluate(
                model, split, world, outputs=outputs, batch_size=condition.batch_size
            )
        model.train(was_training)
        path = f"{split}/{condition.name}".rstrip("/")
        return {f"{path}/{name}": score for name, score in scores.items()}

    def validation(self, model: nn.Module) -> dict[str, Score]:
        """Score the validation split, and again by the blend that a norm trains on, if one does."""
        scores = self.scores(model, "valid")
        return scores | (
            self.scores(model, "valid", condition=_BLEND) if _BLEND.matters(model) else {}
        )

    def test(
        self,
        model: nn.Module,
        weights: Mapping[str, Tensor],
        *,
        recalibrate: bool,
        outputs: Path | None,
    ) -> dict[str, Score]:
        """Load weights and score every test split; what they make of it is kept in `outputs`.

        The first is scored again under each of the `conditions` that the model can tell apart.
        """
        model.load_state_dict(weights)
        scores: dict[str, Score] = {}
        for split in self.task.test_splits():
            kept = None if outputs is None else outputs / hypotheses_file(split)
            scores |= self.scores(model, split, recalibrate=recalibrate, outputs=kept)
        for condition in self.conditions:
            if condition.matters(model):
                scores |= self.scores(model, "test", recalibrate=recalibrate, condition=condition)
        return scores

    def test_briefly(
        self, model: nn.Module, weights: Mapping[str, Tensor], *, recalibrate: bool
    ) -> dict[str, Score]:
        """Load weights and return the scores of every test split as a whole."""
        model.load_state_dict(weights)
        scores: dict[str, Score] = {}
        for split in self.task.test_splits():
            scores |= self.scores(model, split, recalibrate=recalibrate)
        return whole(scores)


def whole(scores: Mapping[str, Score]) -> dict[str, Score]:
    """Return the scores of whole splits under the run's own settings, such as `test/bleu`."""
    return {name: score for name, score in scores.items() if name.count("/") == 1}
