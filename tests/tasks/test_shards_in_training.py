"""Training text of several shards: an epoch takes each once, and a stream resumes among them."""

import pytest

from normlab.data.documents.prepare import prepare_documents
from normlab.tasks.documents import LengthChange
from tests.tasks.test_lm import lm
from tests.tasks.test_mlm import ALONE, SmallCorpus, mlm


def plain(batch):
    return {name: getattr(v, "tolist", lambda v=v: v)() for name, v in vars(batch).items()}


@pytest.fixture(scope="module", params=["mlm", "lm"])
def sharded(request, tmp_path_factory):
    task = {"mlm": mlm, "lm": lm}[request.param](batching="random")
    task.data = prepare_documents(
        SmallCorpus(),
        vocab_size=task.vocab_size,
        pieces=task.pieces,
        lowercase=task.lowercase,
        max_length=32,
        cache=tmp_path_factory.mktemp("cache"),
        shard_tokens=900,
    )
    return task


def shard_order(task, seed):
    """Return the shards of the first epoch, by the sums of their ids."""
    count = len(task.data.shards["train"])
    return [int(task.text("train", seed=seed, epoch=e).text.ids.sum()) for e in range(count)]


def test_an_epoch_takes_every_shard_once_in_an_order_of_its_own(sharded):
    count = len(sharded.data.shards["train"])
    assert count > 3
    texts = [sharded.text("train", seed=7, epoch=epoch) for epoch in range(4 * count)]
    sums = [int(text.text.ids.sum()) for text in texts]
    epochs = [sums[i : i + count] for i in range(0, len(sums), count)]
    of_all = sorted(int(shard.text.ids.sum()) for shard in sharded.data.shards["train"])
    assert all(sorted(epoch) == of_all for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    orders = {tuple(shard_order(sharded, seed)) for seed in range(5)}
    assert len(orders) > 1


def test_a_stream_over_shards_goes_on_where_its_state_says(sharded):
    count = len(sharded.data.shards["train"])
    stream = sharded.train_batches(ALONE, 1)
    tokens = 0
    for drawn_so_far in range(400):
        if drawn_so_far % 37 == 0:
            other = sharded.train_batches(ALONE, 1)
            other.load_state_dict(stream.state_dict())
            assert other.epochs == stream.epochs
            expected = plain(next(other))
            found = next(stream)
            assert plain(found) == expected
        else:
            found = next(stream)
        tokens += found.tokens
        if stream.epochs >= 2:
            break
    assert stream.epochs == 2
    assert stream.state_dict()["epoch"] == 2 * count
    assert tokens > 2 * sharded.data.description["tokens"]["train"] * 0.7


def test_held_out_text_is_scored_in_one_piece(sharded):
    assert len(sharded.data.shards["valid"]) > 1
    for epoch in range(3):
        text = sharded.text("valid", seed=epoch, epoch=epoch).text
        assert len(text.ids) == sharded.data.description["tokens"]["valid"]
    assert len(sharded.evaluated("valid")) == len(sharded.lengths("valid"))


def test_a_share_of_the_steps_may_stand_for_the_step_of_a_length_change():
    change = LengthChange(step=None, max_length=64, after=0.9, steps=50)
    assert change.step == 46
    for wrong in (
        {"after": 1.0, "steps": 50},
        {"after": 0.9, "steps": None},
        {"after": 0.9, "steps": 50, "step": 3},
    ):
        with pytest.raises(ValueError, match=r"task\.length_change\.after"):
            LengthChange(**{"step": None, "max_length": 64, **wrong})
