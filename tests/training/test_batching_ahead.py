"""A thread collates batches in advance. A batch counts when it is taken."""

import threading
from pathlib import Path

import pytest
import torch

from normlab.data.batching import Batches, BatchesAhead
from normlab.errors import UserError
from normlab.norms.tokens import Tokens
from normlab.tasks.base import Batch
from normlab.training.trainer import Trainer
from tests.training.trainers import build_trainer, largest_difference, weights

CPU = torch.device("cpu")
PER_EPOCH = 3


class Counting(Batches):
    """Three batches per epoch, each of which is its index. Collating batch `fails_at` fails."""

    def __init__(self, fails_at=None):
        self.drawn, self.fails_at = 0, fails_at

    @property
    def epochs(self):
        return self.drawn / PER_EPOCH

    def __next__(self):
        self.drawn += 1
        if self.drawn == self.fails_at:
            raise UserError("batch 4 cannot be collated")
        return self.drawn

    def state_dict(self):
        return {"drawn": self.drawn}

    def load_state_dict(self, state):
        self.drawn = state["drawn"]


def ahead_of(batches, ahead=2):
    return BatchesAhead(batches, ahead=ahead, device=CPU)


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("batches")]


@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_a_batch_counts_when_it_is_taken(ahead):
    batches = ahead_of(Counting(), ahead)
    assert [next(batches) for _ in range(4)] == [1, 2, 3, 4]
    assert batches.epochs == 4 / PER_EPOCH and batches.state_dict() == {"drawn": 4}
    batches.load_state_dict({"drawn": 1})
    assert batches.epochs == 1 / PER_EPOCH and next(batches) == 2
    batches.close()
    assert not threads() and next(batches) == 3  # and continues where it was
    batches.close()


@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_an_error_in_collating_is_raised_when_its_batch_is_taken(ahead):
    batches = ahead_of(Counting(fails_at=4), ahead)
    assert [next(batches) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(UserError, match="batch 4"):
        next(batches)
    batches.close()
    assert not threads()


def test_the_next_batch_is_collated_before_it_is_requested():
    collated = threading.Event()

    class Watched(Counting):
        def __next__(self):
            if (number := super().__next__()) == 3:
                collated.set()
            return number

    batches = ahead_of(Watched())
    assert next(batches) == 1 and collated.wait(10)
    batches.close()


def ending(trainer: Trainer, steps: int) -> tuple[object, dict[str, torch.Tensor]]:
    for _ in range(steps):
        trainer.step()
    trainer.batches.close()
    at, batches = trainer.counters, trainer.batches
    return (at.tokens, batches.epochs, at.loss, trainer._epoch_ended), weights(trainer.model)


def test_a_run_with_a_collating_thread_resumes_and_ends_like_one_without(
    corpus: Path, tmp_path: Path
):
    def built(name: str, *, ahead: int) -> Trainer:
        values = ("norm=bn", "batch_size=16", "accumulate=2", "observe.log_every=1")
        trainer = build_trainer(corpus, tmp_path / name, *values)
        trainer.batches.ahead = ahead
        return trainer

    expected, end = ending(built("without", ahead=0), 7)
    threaded = built("with", ahead=2)
    ending(threaded, 4)
    threaded.save()
    resumed = built("resumed", ahead=2)
    for trainer in (threaded, resumed):
        trainer.resume(torch.load(threaded.checkpoints.last, weights_only=False))
        found, last = ending(trainer, 3)
        assert found == expected and largest_difference(end, last) == 0


def test_fit_stops_the_thread_even_after_an_error(corpus: Path, tmp_path: Path, monkeypatch):
    trainer = build_trainer(corpus, tmp_path, "norm=ln", "budget.steps=3", "validate.every=100")
    trainer.batches.ahead = 1
    monkeypatch.setattr(trainer, "_backward", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trainer.fit()
    assert not threads()


def test_every_tensor_of_a_batch_is_pinned(corpus: Path, tmp_path: Path, monkeypatch):
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x: pinned.append(x) or x)
    trainer = build_trainer(corpus, tmp_path, "norm=ln")
    batch = next(trainer.batches)
    same = batch.pinned()
    tensors = [x for x in vars(batch).values() if torch.is_tensor(x)]
    tokens = [x for x in vars(batch).values() if isinstance(x, Tokens) and x.valid is not None]
    tensors += [x for each in tokens for x in (each.valid, each.rows)]
    assert isinstance(same, Batch) and tokens and len(pinned) == len(tensors)
    assert all(any(x is y for y in pinned) for x in tensors)
