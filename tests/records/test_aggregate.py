"""Seeds become a row: finished ones are averaged, others are told, unlike ones are refused."""

import math

import pytest

from normlab.records.pairs import Cell, summarise
from tests.records.examples import SIGNATURE, record


def test_scores_are_averaged_over_finished_seeds_only():
    cell = Cell.of(
        [
            record(seed=3, bleu=33.0),
            record(seed=1, bleu=30.0),
            record(seed=2, bleu=0.0, status="diverged", spikes=9.0),
        ]
    )
    score = cell.score("test/bleu")
    assert score is not None
    assert (score.mean, score.n) == (31.5, 2)
    assert score.sd == pytest.approx(3 / math.sqrt(2))  # two values 3 apart, n - 1
    assert cell.seeds == (1, 2, 3)
    assert cell.outcome == "diverged 1/3"
    assert cell.signature("test/bleu") == SIGNATURE


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        (["finished"] * 3, "finished 3/3"),
        (["finished", "diverged", "diverged"], "diverged 2/3"),
        (["failed", "interrupted", "finished"], "failed 1/3, interrupted 1/3"),
    ],
)
def test_outcomes_are_counted(statuses, said):
    runs = [record(seed=seed, status=status) for seed, status in enumerate(statuses)]
    assert Cell.of(runs).outcome == said


def test_one_seed_has_no_spread_and_none_no_score():
    one = Cell.of([record(bleu=30.0)]).score("test/bleu")
    assert one is not None and one.sd is None
    assert Cell.of([record(status="diverged")]).score("test/bleu") is None
    assert Cell.of([record(bleu=None)]).score("test/bleu") is None
    assert Cell.of([record()]).score("test/chrf") is None
    assert summarise([]) is None


@pytest.mark.parametrize(
    ("other", "key"),
    [
        ({"data": {"checksums": {"train": "xyz"}}}, "data.checksums"),
        ({"data": {"source": "elsewhere"}}, "data.source"),
        ({"data": {"sizes": {"train": 5}}}, "data.sizes"),
        ({"environment": {"precision": "bf16"}}, "environment.precision"),
        ({"environment": {"world_size": 2}}, "environment.world_size"),
        ({"params": 1001}, "params"),
    ],
)
def test_what_is_not_comparable_is_not_averaged(other, key):
    with pytest.raises(ValueError, match=f"seed1 and .*seed2 are not comparable: {key}"):
        Cell.of([record(seed=1), record(seed=2, **other)])


def test_a_seed_counts_once():
    with pytest.raises(ValueError, match="seed 1 is given twice"):
        Cell.of([record(seed=1), record(seed=1)])


def test_scores_of_several_kinds_are_not_averaged():
    cell = Cell.of([record(seed=1), record(seed=2, signature="tok:none")])
    with pytest.raises(ValueError, match=r"test/bleu was computed in several ways \(nrefs.*none"):
        cell.score("test/bleu")
