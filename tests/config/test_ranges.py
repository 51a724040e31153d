"""Values that cannot work are refused when a run is composed, by the table of ranges."""

import json
import math
from pathlib import Path
from typing import Annotated

import pytest

from normlab.commands.list import keys
from normlab.config import ranges
from normlab.config.compose import compose, from_dict, to_dict
from normlab.config.machine import MOST_THREADS
from normlab.config.ranges import RANGES, Range
from normlab.config.schema import top_level_keys
from normlab.train.build import build_task, check_scores
from normlab.train.run import train

RESULTS = Path(__file__).resolve().parents[2] / "results"


@pytest.fixture(scope="module")
def config() -> dict:
    return to_dict(compose([]))


def test_a_range_takes_what_it_says():
    row = Range(above=0, most=5, whole=True, words=("epoch", "interleaved-N"))
    for value in (1, 5, 2.0, "epoch", "interleaved-8"):
        assert row.fits(value), value
    for value in (0, 6, 2.5, -1, math.nan, math.inf, "nan", "1", "many", True, None, {}, [1]):
        assert not row.fits(value), value
    for value in ("interleaved-0", "interleaved-N", "epochs", 10**400):
        assert not row.fits(value), value
    assert row.allowed == "above 0 and at most 5, a whole number, or epoch, or interleaved-N"
    two, several = Range(least=0, below=1, length=2), Range(above=0, length=0)
    assert two.fits([0, 0.5]) and several.fits([]) and several.fits([1, 2])
    for value in ([0], [0, 1], [0, 0.1, 0.2], 0.5, [[0], 0], ["nan", 0]):
        assert not two.fits(value), value
    assert two.allowed == "a list of 2 numbers, each at least 0 and below 1"
    assert math.isinf(compose(["divergence_factor=inf"]).divergence_factor)


def test_every_key_of_a_norm_or_rule_has_the_range_of_its_name():
    for key in ("norm.ghost", "decoder_norm.ghost", "sites.*.ffn.ghost"):
        assert ranges.range_of(key) is RANGES["norm.ghost"]
    assert ranges.range_of("optim.groups.bias.rate") is RANGES["optim.groups.*.rate"]
    assert ranges.range_of("norm.nothing") is None


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("batch_size=-3", "batch_size=-3 must be above 0"),  # not the task's copy of it
        ("clip_grad=nan", "clip_grad=nan must be above 0"),
        ("optim.betas=[0.9,0.98,0.9]", "must be a list of 2 numbers, each at least 0 and below 1"),
        ("model.num_heads=3", "model.num_heads=3 does not divide the width 128"),
        ("model.dim=nine", "model.dim=nine must be above 0, a whole number"),
        ("model.depth={a:1}", "model.depth={'a': 1} must be above 0"),
        ("validate.every=often", "must be above 0, a whole number, or epoch"),
        ("observe.targets={bleu:[nan]}", "observe.targets.bleu=[nan] must be a list of numbers"),
        ("observe.targets=5", "observe.targets=5: give 'observe.targets={"),
        ("observe.threads=1000000", f"must be above 0 and at most {MOST_THREADS}, a whole"),
        ("seed=99999999999999999999", "seed=99999999999999999999 must be at least 0"),
        ("budget.steps=null", "budget: set at least one of budget.steps"),
        ("+optim.maximize=nan", "optim.maximize=nan must be a finite number"),
        ('data_dir="a\nb"', r"data_dir='a\nb' has characters that cannot be printed"),
        ("norm=bn norm.ghost=interleaved-0", "must be above 0, a whole number, or interleaved-N"),
        ("schedule=cosine budget.steps=9", "schedule.total=9 must be above schedule.warmup"),
        ("validate.test=best validate.average=3", "validate.test=best and validate.average=3"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_key_value_and_what_is_allowed(overrides, said):
    with pytest.raises(ValueError, match=r"^\w") as caught:
        compose([overrides] if "\n" in overrides else overrides.split())
    assert said in str(caught.value) and "\n" not in str(caught.value).partition(said)[0]


class Floored:
    """A class with a range of its own."""

    def __init__(self, floor: Annotated[float, Range(above=0)] | None) -> None:
        self.floor = floor


def test_a_range_can_stand_with_the_parameter_of_a_class():
    from normlab.config.registry import instantiate

    node = {"_target_": f"{__name__}.Floored"}
    assert instantiate({**node, "floor": 1}, "norm", Floored).floor == 1.0
    assert instantiate({**node, "floor": None}, "norm", Floored).floor is None
    for wrong in (0, -1.0, math.nan, "x", True):
        said = rf"norm\.floor={wrong!r} must be float above 0 or null"
        with pytest.raises(ValueError, match=said):
            instantiate({**node, "floor": wrong}, "norm", Floored)


@pytest.mark.parametrize("task", ["toy", "lm", "mlm"])
def test_a_run_that_goes_by_an_unknown_score_fails_before_its_data_are_read(task, monkeypatch):
    monkeypatch.setattr("normlab.tasks.translation.prepare_translation", None)
    monkeypatch.setattr("normlab.tasks.lm.prepare_documents", None)
    plain = to_dict(compose([f"task={task}"]))
    assert "loss" in build_task(plain).score_names()
    check_scores(plain, build_task(plain))
    with pytest.raises(ValueError, match=r"^validate.select_by=blue is not a score .* are .*loss"):
        train(compose([f"task={task}", "validate.select_by=blue"]))
    with pytest.raises(ValueError, match=r"^observe.targets=blue is not a score of this task"):
        train(compose([f"task={task}", "observe.targets={blue:[1]}"]))


def test_changes_of_a_record_obey_the_table(config):
    for change in ("task.label_smoothing=nan", "task.test_search.beam=0", "observe.threads=100000"):
        key, _, value = change.partition("=")
        with pytest.raises(ValueError, match=rf"^{key}={value} must be"):
            from_dict(config, [change])
    there = {**config, "observe": {**config["observe"], "threads": MOST_THREADS + 1}}
    assert from_dict(there).observe.threads is None  # of a larger machine


@pytest.mark.parametrize("part", ["task", "model", "norm", "optim", "observe", "validate", "seed"])
def test_the_config_of_a_record_that_lacks_a_part_names_it(part, config):
    rest = {key: value for key, value in config.items() if key != part}
    with pytest.raises(ValueError, match=rf"lacks {part}"):
        from_dict(rest)
    for wrong in ([], [[]], "x", 10**400):
        with pytest.raises(ValueError, match=rf"\b{part}\b"):
            from_dict({**config, part: wrong})


def test_the_configs_of_all_published_records_obey_the_table():
    for path in RESULTS.glob("*/*/records.jsonl"):
        with path.open() as lines:
            ranges.check(json.loads(next(lines))["config"])


def test_the_list_of_keys_has_all_of_the_schema_and_of_the_table():
    listed = {key.name: key for key in keys()}
    assert {*top_level_keys(), *RANGES} <= set(listed)
    assert listed["clip_grad"].allowed == "above 0"
    assert listed["batching"].allowed == "bucket, random"
    assert listed["accumulate"].description.startswith("micro-batches per update")
    assert listed["budget.steps"].default == "3000"
