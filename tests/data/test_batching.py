"""How batches partition an epoch, in which order, how they resume and how ranks share them."""

from itertools import pairwise

import numpy as np
import pytest

from normlab.data.batching import ALONE, Batches, eval_batches, plan_batches
from normlab.distributed.process_group import Shard

LENGTHS = np.random.default_rng(5).integers(1, 40, size=(101, 2))
SIZES = [dict(batch_size=8, max_tokens=None), dict(batch_size=None, max_tokens=120)]
MODES = ["bucket", "random"]


def plan(mode, size, seed=0, lengths=LENGTHS):
    return plan_batches(lengths, batching=mode, rng=np.random.default_rng(seed), **size)


def endless(mode="bucket", size=SIZES[0], seed=3, shard=ALONE):
    return Batches(LENGTHS, batching=mode, seed=seed, shard=shard, **size)


def take(source, count):
    return [next(source).tolist() for _ in range(count)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", SIZES)
def test_an_epoch_contains_every_sentence_exactly_once(mode, size):
    batches = plan(mode, size)
    assert sorted(np.concatenate(batches).tolist()) == list(range(101))
    for batch in batches:
        if size["max_tokens"] is None:
            assert len(batch) <= 8
        else:
            assert len(batch) * LENGTHS[batch].max() <= 120


def test_buckets_cover_disjoint_ranges_of_target_length():
    batches = plan("bucket", SIZES[0])
    ranges = sorted((LENGTHS[b, 1].min(), LENGTHS[b, 1].max()) for b in batches)
    for (_, highest), (lowest, _) in pairwise(ranges):
        assert highest <= lowest
    assert [LENGTHS[b, 1].min() for b in batches] != sorted(LENGTHS[b, 1].min() for b in batches)


def test_the_order_of_batches_depends_only_on_seed_and_epoch():
    per_epoch = len(endless().indices)
    first = take(endless(), 2 * per_epoch)
    assert first == take(endless(), 2 * per_epoch)
    assert first[:per_epoch] != first[per_epoch:]
    assert first[:per_epoch] != take(endless(seed=4), per_epoch)


@pytest.mark.parametrize(("mode", "size"), zip(MODES, SIZES, strict=True))
@pytest.mark.parametrize("drawn", [7, 61])
def test_batches_resume_exactly_where_they_were_saved(mode, size, drawn):
    whole = endless(mode, size)
    take(whole, drawn)
    state = whole.state_dict()
    resumed = endless(mode, size)
    resumed.load_state_dict(state)
    assert resumed.epochs == whole.epochs
    assert take(resumed, 40) == take(whole, 40)


def test_resuming_beyond_the_end_of_the_epoch_is_refused():
    with pytest.raises(ValueError, match="cannot resume at batch 1000"):
        endless().load_state_dict({"epoch": 0, "index": 1000})


@pytest.mark.parametrize("mode", MODES)
def test_ranks_split_the_batches_of_an_epoch_between_them(mode):
    alone = endless(mode)
    ranks = [endless(mode, shard=Shard(r, 3)) for r in range(3)]
    rounds = len(alone.indices) // 3
    assert {len(r.indices) for r in ranks} == {rounds}
    drawn = [take(r, rounds) for r in ranks]
    interleaved = [batch for group in zip(*drawn, strict=True) for batch in group]
    assert interleaved == take(alone, 3 * rounds)
    assert all(r.epochs == 1 for r in ranks)


@pytest.mark.parametrize("ranks", [1, 3])
def test_evaluation_batches_are_partitioned_over_ranks(ranks):
    parts = [eval_batches(LENGTHS, shard=Shard(r, ranks), batch_size=8) for r in range(ranks)]
    everything = np.concatenate([batch for part in parts for batch in part])
    assert sorted(everything.tolist()) == list(range(101))
    longest_first = [LENGTHS[batch, 0].max() for batch in parts[0]]
    assert longest_first == sorted(longest_first, reverse=True)


def test_a_sentence_longer_than_max_tokens_raises_an_error():
    lengths = np.array([[3, 4], [5, 31], [2, 2]])
    with pytest.raises(ValueError, match=r"sentence 2 has 31 tokens, more than max_tokens=30"):
        plan("bucket", dict(batch_size=None, max_tokens=30), lengths=lengths)
