"""A probe measures every part of a run, scales it to the whole, and leaves nothing behind."""

import json

import pytest

from normlab.bench import cost
from normlab.bench.speed import Clock, Span
from normlab.config.compose import compose, to_dict
from normlab.studies.costs import estimate, planned_updates
from normlab.train.runtime import Runtime
from tests.bench.small import TOY

PARTS = ("start", "update", "validation", "test")
TEXT = ("task=mlm", "model.dim=16", "model.ffn_dim=32", "model.num_layers=1", "batch_size=8")


def measured(*overrides):
    runtime = Runtime.start(device="cpu", precision="fp32", threads=1)
    return cost.measure(to_dict(compose(overrides)), runtime, seconds=0.5)


@pytest.fixture(scope="module")
def toy():
    return measured(*TOY, "accumulate=2")


def test_every_part_of_a_run_has_its_seconds(toy):
    assert all(toy[f"{part}_seconds"] > 0 for part in PARTS)
    assert toy["format"] == cost.FORMAT and toy["memory_bytes"] > 2**20
    assert toy["data"]["origin"] == "built in" and toy["data"]["sizes"]["train"] == 300


def test_an_update_is_counted_over_its_micro_batches(toy):
    one = measured(*TOY)
    assert toy["updates_per_epoch"] == pytest.approx(one["updates_per_epoch"] / 2, rel=0.3)
    assert toy["tokens_per_update"] == pytest.approx(one["tokens_per_update"] * 2, rel=0.3)


def test_conditions_of_the_test_and_recalibrated_statistics_count(monkeypatch):
    monkeypatch.setattr(Clock, "read", lambda clock: Span(1.0, 1.0))
    more = ("data_dir=elsewhere", "task.corpus.data_dir=null")  # of another row's data
    plain = measured(*TEXT, *more, "task.test_batch_sizes=[]", "task.test_eval_stats=[]")
    assert plain["data"]["origin"] == "built in" and plain["test_seconds"] > 0
    alone = measured(*TEXT, *more, "task.test_batch_sizes=[1]", "task.test_eval_stats=[]")
    assert alone["test_seconds"] > plain["test_seconds"]
    recalibrated = ("norm=bn", "norm.eval_stats=recalibrated", "validate.recalibration_batches=999")
    again = measured(*TEXT, *recalibrated)
    assert again["validation_seconds"] == plain["validation_seconds"] + 999


def test_a_probe_prints_json_and_writes_no_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = [*TOY, "budget.steps=30", "observe.threads=1", "--seconds", "0.2"]
    assert cost.main(argv) == 0
    assert json.loads(capsys.readouterr().out)["format"] == cost.FORMAT
    assert cost.main([*TOY, "nrom=bn"]) == 1
    assert "nrom" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


COST = {
    "start_seconds": 10.0,
    "update_seconds": 0.5,
    "tokens_per_update": 400.0,
    "updates_per_epoch": 100.0,
    "validation_seconds": 2.0,
    "test_seconds": 20.0,
}


def limited(**budget):
    every = {"steps": None, "epochs": None, "tokens": None, "minutes": None}
    return {
        "budget": {**every, **budget},
        "validate": {"every": 40},
    }


@pytest.mark.parametrize(
    ("budget", "updates"),
    [
        ({"steps": 7}, 7),
        ({"epochs": 1.5}, 150),
        ({"tokens": 4001}, 11),
        ({"minutes": 2.0}, 240),
        ({"steps": 7, "epochs": 1.0}, 7),
        ({"steps": 700, "epochs": 1.0}, 100),
    ],
)
def test_the_first_limit_of_a_budget_ends_a_run(budget, updates):
    assert planned_updates(limited(**budget), COST) == updates
    known = updates if set(budget) == {"steps"} else None
    assert planned_updates(limited(**budget)) == known


def test_a_run_is_the_sum_of_its_parts():
    assert estimate(limited(steps=100), COST) == 10 + 100 * 0.5 + 3 * 2 + 20
