"""Impossible values are refused when a run is composed. Each key has a range in the schema."""

import json
import math
from pathlib import Path

import pytest

from normlab.config.compose import compose
from normlab.config.key_list import config_keys
from normlab.config.keys import OPTION_KEYS
from normlab.config.machine import MOST_THREADS
from normlab.config.run_config import check_values, from_dict, to_dict
from normlab.config.schema import key_of, top_level_keys
from normlab.training import train
from normlab.training.build import build_task, check_scores

RESULTS = Path(__file__).resolve().parents[2] / "results"


@pytest.fixture(scope="module")
def config() -> dict:
    return to_dict(compose([]))


@pytest.mark.parametrize(
    ("key", "fitting", "others", "allowed"),
    [
        ("seed", [0, 10**12], [10**12 + 1, 0.5], "at least 0 and at most 1000000000000, a whole"),
        ("clip_grad", [0.1, 1e300], [0, math.inf, 10**400], "above 0"),
        ("validate.every", [1, "epoch"], [0, "epochs"], "above 0, a whole number, or epoch"),
        (
            "optim.betas",
            [[0, 0.5]],
            [[0], [0, 1], [0, 0.1, 0.2], 0.5, [[0], 0], ["nan", 0]],
            "a li",
        ),
        ("task.length_buckets", [[], [1, 2]], [[0], 1], "a list of numbers, each above 0, a whole"),
        ("observe.targets.bleu", [[], [-1]], [[math.nan], [math.inf]], "a list of numbers"),
        ("divergence_factor", [2, math.inf, "inf"], [0, "nan"], "above 0"),
    ],
)
def test_a_range_accepts_exactly_the_values_that_it_describes(key, fitting, others, allowed):
    def nested(value):
        for part in reversed(key.split(".")):
            value = {part: value}
        return value

    for value in fitting:
        check_values(nested(value))
    assert allowed in key_of(key).range.allowed
    for value in (*others, math.nan, "1", "many", True, {}, -1):
        with pytest.raises(ValueError, match=rf"^{key}=.* must be "):
            check_values(nested(value))


def test_every_key_of_a_norm_or_rule_has_the_range_of_its_name():
    for key in ("norm.ghost", "decoder_norm.ghost", "sites.*.ffn.ghost"):
        assert key_of(key) is OPTION_KEYS["norm.ghost"]
    assert key_of("optim.groups.bias.rate") is OPTION_KEYS["optim.groups.*.rate"]
    assert key_of("norm.nothing").range is None


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("batch_size=-3", "batch_size=-3 must be above 0"),  # not the task's copy of it
        ("clip_grad=nan", "clip_grad=nan must be above 0"),
        ("optim.betas=[0.9,0.98,0.9]", "must be a list of 2 numbers, each at least 0 and below 1"),
        ("model.num_heads=3", "model.num_heads=3 does not divide the width 128"),
        ("model.dim=nine", "model.dim=nine is not a number; it must be above 0, a whole"),
        ("model.depth={a:1}", "model.depth={'a': 1} must be above 0"),
        ("validate.every=often", "must be above 0, a whole number, or epoch"),
        ("observe.targets={bleu:[nan]}", "observe.targets.bleu=[nan] must be a list of numbers"),
        ("observe.targets=5", "observe.targets=5 is invalid; set 'observe.targets={"),
        ("observe.threads=1000000", f"must be above 0 and at most {MOST_THREADS}, a whole"),
        ("seed=99999999999999999999", "seed=99999999999999999999 must be at least 0"),
        ("budget.steps=null", "budget: set at least one of budget.steps"),
        ("+optim.maximize=nan", "optim.maximize=nan must be a finite number"),
        ('runs_dir="a\nb"', r"runs_dir='a\nb' has characters that cannot be printed"),
        ("wandb.project=a/b", "observe.sink.wandb.project=a/b must be 1 to 128 characters without"),
        (f"tags={'x' * 65}", "must be a list of tags, each 1 to 64 characters"),
        ("runs_dir='a\u200eb'", "has characters that cannot be printed"),
        ("norm=bn norm.ghost=0", "norm.ghost=0 must be above 0, a whole number"),
        ("schedule=cosine budget.steps=9", "schedule.total=9 must be above schedule.warmup"),
        ("task=mlm task.length_buckets=[9,4]", "task.length_buckets=[9, 4] must be ascending"),
        ("validate.test=best validate.average=3", "validate.test=best and validate.average=3"),
    ],
)
def test_an_impossible_value_is_refused_with_its_key_and_the_allowed_values(overrides, said):
    with pytest.raises(ValueError, match=r"^\w") as caught:
        compose([overrides] if "\n" in overrides else overrides.split())
    assert said in str(caught.value) and "\n" not in str(caught.value).partition(said)[0]


@pytest.mark.parametrize("task", ["toy", "lm", "mlm"])
def test_an_unknown_score_in_validate_or_targets_fails_before_data_is_read(task, monkeypatch):
    monkeypatch.setattr("normlab.tasks.translation.prepare_translation", None)
    monkeypatch.setattr("normlab.tasks.lm.prepare_documents", None)
    plain = to_dict(compose([f"task={task}"]))
    assert "loss" in build_task(plain).score_names()
    check_scores(plain, build_task(plain))
    with pytest.raises(ValueError, match=r"^validate.select_by=blue is not a score .* from .*loss"):
        train(compose([f"task={task}", "validate.select_by=blue"]))
    with pytest.raises(ValueError, match=r"^observe.targets=blue is not a score of this task"):
        train(compose([f"task={task}", "observe.targets={blue:[1]}"]))


def test_changes_of_a_recorded_config_must_be_in_range(config):
    for change in ("task.label_smoothing=nan", "task.test_search.beam=0", "observe.threads=100000"):
        key, _, value = change.partition("=")
        with pytest.raises(ValueError, match=rf"^{key}={value} must be"):
            from_dict(config, [change])
    there = {**config, "observe": {**config["observe"], "threads": MOST_THREADS + 1}}
    assert from_dict(there).observe.threads is None  # recorded on a larger machine


@pytest.mark.parametrize("part", ["task", "model", "norm", "optim", "observe", "validate", "seed"])
def test_a_recorded_config_without_a_part_is_an_error_that_names_the_part(part, config):
    rest = {key: value for key, value in config.items() if key != part}
    with pytest.raises(ValueError, match=rf"lacks {part}"):
        from_dict(rest)
    for wrong in ([], [[]], "x", 10**400):
        with pytest.raises(ValueError, match=rf"\b{part}\b"):
            from_dict({**config, part: wrong})


def test_the_configs_of_all_published_records_are_in_range():
    for path in RESULTS.glob("*/*/records.jsonl"):
        with path.open() as lines:
            check_values(json.loads(next(lines))["config"])


def test_the_list_of_keys_contains_every_key_of_the_schema_and_of_options():
    listed = {key.name: key for key in config_keys()}
    assert {*top_level_keys(), *(x for x in OPTION_KEYS if OPTION_KEYS[x].range)} <= {*listed}
    assert listed["clip_grad"].allowed == "above 0"
    assert listed["batching"].allowed == "bucket, random"
    assert listed["validate.best"].allowed == "true, false"
    assert listed["accumulate"].description.startswith("micro-batches per update")
    assert listed["budget.steps"].default == "3000"
