"""Masked language modelling: batches, losses, scores, and resuming batches."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from normlab.config.schema import NORM_KEYS as SITES
from normlab.data.batching import BatchesAhead
from normlab.data.vocabulary import DocumentTokenizer
from normlab.distributed.process_group import Shard
from normlab.tasks.base import Draw
from normlab.tasks.lm import LengthChange
from normlab.tasks.mlm import MaskedLanguageModeling
from normlab.training.evaluate import Evaluator, Weights
from normlab.training.runtime import Runtime
from normlab.training.start_checks import check_start
from tests.tasks.sentences import SmallDocuments, text_model, values_of

ALONE = Shard(0, 1)
PLAIN = {"nsp": False, "short_share": 0.0}


def mlm(**changes):
    values = {
        "vocab_size": 60,
        "pieces": "wordpiece",
        "lowercase": True,
        "max_length": 32,
        "eval_max_length": None,
        "length_change": LengthChange(None, None),
        "batch_size": 8,
        "max_tokens": None,
        "batching": "bucket",
        "accumulate": 1,
        "eval_batch_size": 16,
        "test_batch_sizes": [1, 8],
        "test_eval_stats": ["batch", "recalibrated"],
        "length_buckets": [16, 24, 28],
        "targets": {},
        "nsp": True,
        "short_share": 0.1,
        "mask_share": 0.15,
        "mask_split": [0.8, 0.1, 0.1],
        "whole_word": False,
    }
    return MaskedLanguageModeling(corpus=SmallDocuments(), **{**values, **changes})


@pytest.fixture(scope="module")
def task():
    return mlm()


def restored(batch):
    """Return the ids of a batch before they were corrupted."""
    ids = batch.ids.clone()
    rows = batch.real // batch.places.shape[1]
    ids[rows, batch.places.flatten()[batch.real]] = batch.labels
    return ids


def plain(batch):
    return [getattr(batch, name).tolist() for name in ("ids", "places", "labels", "is_random_next")]


def drawn(batches, count):
    return [plain(next(batches)) for _ in range(count)]


@pytest.mark.parametrize(
    ("changes", "norm", "refused"),
    [
        ({"batch_size": 1}, "bn", True),
        ({"batch_size": 1, "mask_share": 1.0}, "bn", False),
        ({"batch_size": 1}, "ln", False),
        ({"batch_size": 2}, "bn", False),
    ],
)
def test_a_norm_that_may_get_a_single_masked_token_is_refused_at_the_start(changes, norm, refused):
    task = mlm(**changes)
    config = {"seed": 1, **dict.fromkeys(SITES)}
    said = nullcontext()
    if refused:
        said = pytest.raises(ValueError, match=r"single token.*raise batch_size.*task\.mask_share")
    with said:
        check_start(config, task, text_model(task, norm), ALONE)


def test_a_batch_contains_its_masked_examples(task):
    pairs = task.drawn("valid")
    batch = task.batch("valid", range(12))
    whole = pairs.batch(task.data.splits["valid"], np.arange(12))
    assert restored(batch).tolist() == whole.ids.tolist()
    assert batch.segments.tolist() == whole.segments.tolist()
    assert batch.real_tokens.real(batch.ids).tolist() == whole.valid.tolist()
    assert (batch.ids == DocumentTokenizer.mask_id).any()
    assert batch.is_random_next.tolist() == [int(not follows) for follows in pairs.is_next[:12]]
    assert batch.counts == {"mlm": len(batch.real), "nsp": 12}
    assert batch.tokens == pairs.lengths[:12].sum() == batch.real_tokens.real(batch.ids).sum()
    assert batch.positions == batch.ids.numel() == batch.tokens + batch.padding


def test_an_example_has_the_same_masks_in_every_batch():
    task = mlm(whole_word=True)
    together = task.batch("valid", [3, 0, 17, 30])
    labels = iter(together.labels.tolist())
    for row, index in enumerate([3, 0, 17, 30]):
        alone = task.batch("valid", [index])
        width, count = alone.ids.shape[1], len(alone.labels)
        assert alone.ids[0].tolist() == together.ids[row, :width].tolist()
        assert alone.places[0].tolist() == together.places[row, :count].tolist()
        assert alone.labels.tolist() == [next(labels) for _ in range(count)]
    assert next(labels, None) is None


@torch.no_grad()
def test_each_loss_is_divided_by_its_own_count(task):
    model = text_model(task)
    scores = task.evaluate(model, "valid", ALONE)
    batch = task.batch("valid", range(len(task.lengths("valid"))))
    for name, loss in task.losses(model, batch).items():
        score = scores[f"{name}_loss"]
        assert score.value == pytest.approx(loss.item() / batch.counts[name], rel=1e-10)
        assert score.n == batch.counts[name] and not score.higher_is_better
    mlm_loss = scores["mlm_loss"].value
    assert scores["loss"].value == pytest.approx(mlm_loss + scores["nsp_loss"].value)
    assert scores["perplexity"].value == pytest.approx(math.exp(mlm_loss))
    tokens, pairs = task.logits(model, batch)
    best = tokens.argsort(-1, descending=True) == batch.labels[:, None]
    for name, hits in {
        "mlm_accuracy": best[:, 0],
        "mlm_accuracy_top5": best[:, :5].any(1),
        "nsp_accuracy": pairs.argmax(-1) == batch.is_random_next,
    }.items():
        assert scores[name].value == pytest.approx(hits.double().mean().item())
        assert scores[name].higher_is_better


def test_length_buckets_add_up_to_the_whole_split(task):
    model = text_model(task)
    scores = task.evaluate(model, "test", ALONE)
    names = ["length_1_16", "length_17_24", "length_25_28", "length_over_28"]
    assert {name.split("/")[0] for name in scores if "/" in name} == set(names)
    for figure in ("mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"):
        parts = [scores[f"{name}/{figure}"] for name in names]
        whole = scores[figure]
        assert sum(part.n for part in parts) == whole.n
        assert sum(part.n * part.value for part in parts) == pytest.approx(whole.n * whole.value)
    lengths = task.lengths("test")[:, 0]
    counts = [scores[f"{name}/nsp_loss"].n for name in names]
    assert counts == np.histogram(lengths, [1, 17, 25, 29, 99])[0].tolist()
    long = task.batch("test", np.flatnonzero(lengths > 28).tolist())
    for name, loss in task.losses(model, long).items():
        found = scores[f"length_over_28/{name}_loss"]
        assert found.value == pytest.approx(loss.item() / long.counts[name], rel=1e-10)


def test_without_nsp_there_is_no_sentence_pair_loss():
    task = mlm(nsp=False)
    model = text_model(task)
    batch = task.batch("valid", range(5))
    assert set(task.losses(model, batch)) == set(batch.counts) == {"mlm"}
    assert not batch.segments.any()
    scores = task.evaluate(model, "valid", ALONE)
    assert set(scores) == {"loss", "mlm_loss", "mlm_accuracy", "mlm_accuracy_top5", "perplexity"}
    assert scores["loss"].value == scores["mlm_loss"].value


@pytest.mark.parametrize("size", [(8, None), (None, 300)])
def test_each_epoch_yields_its_own_examples_and_masks(size):
    task = mlm(batch_size=size[0], max_tokens=size[1])
    batches = task.train_batches(ALONE, 4)
    for epoch, last in ((0, None), (1, None), (2, 3)):
        for indices in batches.indices[:last]:
            batch = next(batches)
            assert plain(batch) == plain(task.collate("train", indices, Draw(4, epoch)))
            assert size[1] is None or batch.positions <= size[1]
    assert batches.epochs == 2 + 3 / len(batches.indices)


CHANGED = {"length_change": LengthChange(step=6, max_length=32), "max_length": 20, "accumulate": 2}


@pytest.mark.parametrize("changes", [{}, CHANGED], ids=["one_length", "length_change"])
def test_a_thread_collates_the_same_batches_of_every_epoch_and_length(changes):
    alone = mlm(**changes).train_batches(ALONE, 1)
    inner = mlm(**changes).train_batches(ALONE, 1)
    ahead = BatchesAhead(inner, ahead=3, device=torch.device("cpu"))
    for _ in range(60):
        assert plain(next(ahead)) == plain(next(alone))
        assert (ahead.state_dict(), ahead.epochs) == (alone.state_dict(), alone.epochs)
    ahead.close()


@pytest.mark.parametrize("changes", [{}, CHANGED], ids=["one_length", "length_change"])
@pytest.mark.parametrize("count", [0, 11, 140])
def test_training_batches_resume_from_a_saved_state(changes, count):
    task = mlm(**changes)
    batches = task.train_batches(ALONE, 1)
    for _ in range(count):
        next(batches)
    other = task.train_batches(ALONE, 1)
    other.load_state_dict(batches.state_dict())
    assert other.epochs == batches.epochs
    epoch = mlm(max_length=20).train_batches(ALONE, 1).indices
    assert 20 < len(epoch) < 140  # one count is within the first epoch and one beyond it
    assert drawn(other, 20) == drawn(batches, 20)


@pytest.mark.parametrize(("step", "accumulate"), [(1, 1), (4, 2), (40, 1)])
def test_the_sequence_length_changes_at_the_configured_step(accumulate, step):
    change = LengthChange(step=step, max_length=32)
    task = mlm(max_length=16, length_change=change, accumulate=accumulate, batching="random")
    batches = task.train_batches(ALONE, 1)
    before = [next(batches) for _ in range((step - 1) * accumulate)]
    epochs = batches.epochs
    after = [next(batches) for _ in range(6)]
    assert max([batch.ids.shape[1] for batch in before], default=0) <= 16
    assert all(16 < batch.ids.shape[1] <= 32 for batch in after)
    # The change starts a new epoch: the masks of the current one have been seen.
    epoch = math.ceil(epochs)
    other = mlm(max_length=32, batching="random").train_batches(ALONE, 1)
    other.load_state_dict({"drawn": 0, "epoch": epoch, "index": 0})
    expected = task.collate("train", other.indices[0], Draw(1, epoch, 32))
    assert plain(after[0]) == plain(expected)


@pytest.mark.parametrize(("step", "max_length"), [(3, None), (None, 16)])
def test_a_length_change_without_a_step_or_a_length_is_refused(step, max_length):
    with pytest.raises(ValueError, match=r"task\.length_change\.step=(3|None|0)"):
        LengthChange(step=step, max_length=max_length)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"length_change": LengthChange(step=3, max_length=4)}, "length_change.max_length=4"),
        ({"max_length": 3, "nsp": False}, "max_length=3"),
        ({"eval_max_length": 4}, "eval_max_length=4"),
    ],
)
def test_a_length_without_room_for_tokens_is_refused_before_training(changes, key):
    with pytest.raises(ValueError, match=rf"task\.{key} is too small: .*set it to [45] or more"):
        mlm(**changes)


def test_evaluation_uses_its_own_length_or_else_the_final_training_length():
    own = mlm(max_length=12, eval_max_length=30)
    assert 12 < own.lengths("valid").max() <= 30
    assert own.drawn("train", Draw(0, 0)).lengths.max() <= 12
    changed = mlm(max_length=12, length_change=LengthChange(step=3, max_length=26))
    assert 12 < changed.lengths("valid").max() <= 26
    shorter = mlm(eval_max_length=10)
    assert shorter.lengths("test").max() <= 10


@pytest.mark.parametrize("changes", [{"max_length": 10, "eval_max_length": 32}, CHANGED])
def test_a_model_with_too_few_positions_is_refused(changes):
    with pytest.raises(ValueError, match=r"has 32 tokens, but model\.max_positions=31; raise it"):
        text_model(mlm(**changes), max_positions=31)
    text_model(mlm(**changes), max_positions=32)


def test_the_test_is_repeated_only_under_conditions_that_matter_for_the_norm(tmp_path):
    task = mlm(test_batch_sizes=[8], length_buckets=[])
    evaluator = Evaluator(
        task, Runtime(torch.device("cpu"), "fp64", ALONE), recalibration_batches=2
    )
    found = {}
    for norm in ("ln", "bn"):
        model = text_model(task, norm)
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        scores = values_of(evaluator.test(model, Weights("last", 1, weights), outputs=tmp_path))
        found[norm] = {name[:-5]: value for name, value in scores.items() if "/loss" in name}
        after = model.state_dict()
        assert all(torch.equal(after[name], value) for name, value in weights.items())
    assert found["ln"].keys() == {"test", "test_odd", "test/batch_size_8"}
    stats = ["test/eval_stats_batch", "test/eval_stats_recalibrated"]
    both = "test/eval_stats_batch/batch_size_8"
    assert found["bn"].keys() == {*found["ln"], *stats, both}
    assert found["bn"]["test/batch_size_8"] == pytest.approx(found["bn"]["test"], rel=1e-10)
    assert len({round(found["bn"][name], 6) for name in ("test", *stats, both)}) == 4


def test_extra_padding_does_not_change_the_losses(task):
    batch, narrow = (task.batch("valid", range(6), padding=share) for share in (0.75, 0.0))
    assert batch.padding / batch.positions == pytest.approx(0.75, abs=0.02)
    losses = [task.losses(text_model(task, max_positions=120), x) for x in (batch, narrow)]
    for name in ("mlm", "nsp"):
        assert losses[0][name].item() == pytest.approx(losses[1][name].item(), rel=1e-10)


def test_recalibration_uses_the_final_length():
    task = mlm(max_length=12, length_change=LengthChange(step=3, max_length=32), short_share=0.0)
    batches = task.calibration_batches(ALONE, 1)
    assert max(next(batches).ids.shape[1] for _ in range(8)) > 12
