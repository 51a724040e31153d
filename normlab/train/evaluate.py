"""Scoring a model in the middle or at the end of a run, without disturbing it."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from normlab.data.batching import eval_batches
from normlab.distributed import Shard, gather_objects
from normlab.metrics.counts import mean_score
from normlab.progress import TESTING, VALIDATING, Stage, say
from normlab.records.hypotheses import hypotheses_file
from normlab.records.record import Score
from normlab.tasks.base import Condition, Task
from normlab.train.runtime import Runtime

# A stream of its own: re-estimating statistics must not draw from the batches of training.
_RECALIBRATION_SEED = 0x5EED
_LOSS = "loss"


class Evaluator:
    """Evaluate one model of one task.

    Args:
        recalibration_batches: training batches that re-estimated statistics are made of.
        noise: deviations of noise on the input, under each of which the test is repeated.
        test_seen: training examples that are tested, too, to the next whole batch.

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
        test_seen: int = 0,
    ):
        self.task = task
        self.runtime = runtime
        self.recalibration_batches = recalibration_batches
        self.test_seen = test_seen
        self.conditions = (*task.conditions, *(Condition(noise=value) for value in noise))

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
        """Score a split; names are paths such as `valid/bleu`, or `valid/batch_size_1/bleu`.

        With a `limit` about so many examples are scored, spread over the split.

        Running statistics are re-estimated first where a norm's `eval_stats` says so, or for all
        of them with `recalibrate`. The model's mode is put back.
        """
        say(Stage(VALIDATING if split == "valid" else TESTING))
        condition = condition or Condition()
        world = self.runtime.world
        part = nullcontext(1) if limit is None else self.task.some(split, limit)
        with self._scoring(model, condition, recalibrate=recalibrate), part as every:
            shard = Shard(world.rank, world.size * every)
            scores = self.task.evaluate(
                model, split, shard, outputs=outputs, batch_size=condition.batch_size
            )
        path = f"{split}/{condition.name}".rstrip("/")
        return {f"{path}/{name}": score for name, score in scores.items()}

    def seen(self, model: nn.Module, *, recalibrate: bool = False) -> dict[str, Score]:
        """Return the training losses of training examples in evaluation mode: `test/seen/loss`.

        The examples lie evenly over all lengths and are the same in every run; nothing is dropped
        or varied. What a test's loss is above theirs is what the model knows of them alone, where
        both losses are smoothed alike. Other losses than `loss` are called `mlm_loss`.
        """
        say(Stage(TESTING))
        size = self.task.eval_batch_size
        batches = eval_batches(self.task.lengths("train"), batch_size=size)
        count = min(len(batches), math.ceil(self.test_seen / size))
        chosen = np.linspace(0, len(batches) - 1, count).round().astype(int).tolist()
        world, device = self.runtime.world, self.runtime.device
        sums: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        with self._scoring(model, Condition(), recalibrate=recalibrate):
            for place in chosen[world.rank :: world.size]:
                batch = self.task.batch("train", batches[place].tolist()).to(device)
                losses = self.task.losses(model, batch)
                sums.update({name: float(value) for name, value in losses.items()})
                counts.update(batch.counts)
        shares = gather_objects((sums, counts))  # a rank may have no batch, and so no names
        all_sums, all_counts = (sum(each, Counter()) for each in zip(*shares, strict=True))
        return {
            f"test/seen/{name if name == _LOSS else f'{name}_{_LOSS}'}": mean_score(
                all_sums[name], all_counts[name], higher_is_better=False
            )
            for name in sorted(all_counts)
        }

    @contextmanager
    def _scoring(
        self, model: nn.Module, condition: Condition, *, recalibrate: bool
    ) -> Iterator[None]:
        """Let a model be scored under a condition; its mode is put back."""
        was_training = model.training
        model.eval()
        batches = islice(
            self.task.calibration_batches(self.runtime.world, _RECALIBRATION_SEED),
            self.recalibration_batches,
        )
        with (
            torch.no_grad(),
            self.runtime.autocast(),
            condition.applied(model),
            self.task.recalibrated(model, batches, force=recalibrate),
            condition.disturbed(model),
        ):
            yield
        model.train(was_training)

    def validation(self, model: nn.Module) -> dict[str, Score]:
        """Score the validation split."""
        return self.scores(model, "valid")

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
        return scores | (self.seen(model, recalibrate=recalibrate) if self.test_seen else {})

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
