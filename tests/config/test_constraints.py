"""Values that cannot work are refused when a run is composed, by the table of constraints."""

import json
import math
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from normlab.commands.list import keys
from normlab.config import constraints
from normlab.config.compose import compose, from_dict, to_dict
from normlab.config.constraints import CONSTRAINTS, constraint_of
from normlab.config.registry import CONFIG_DIR
from normlab.config.schema import RunConfig
from normlab.config.sites import NORM_KEYS
from normlab.machine import MOST_THREADS, memory_bytes
from normlab.train.build import build_model, build_task, check_scores
from normlab.train.preflight import check_memory, parameters
from normlab.train.run import _Run
from tests.models.small import VOCAB, Words

RESULTS = Path(__file__).resolve().parents[2] / "results"


@pytest.fixture(scope="module")
def config() -> dict:
    return to_dict(compose([]))


def value_of(constraint, number):
    """Return a value of the constraint's form that holds a number."""
    return number if constraint.length is None else [number] * max(1, constraint.length)


@pytest.mark.parametrize("key", CONSTRAINTS)
def test_no_key_takes_what_is_not_a_number(key):
    row = CONSTRAINTS[key]
    for wrong in (math.nan, -math.inf, "nan", "many", True, {}, [[1]], "1"):
        assert row.problem(value_of(row, wrong)) is not None, wrong
    assert (row.problem(value_of(row, math.inf)) is None) == row.infinite


@pytest.mark.parametrize("key", CONSTRAINTS)
def test_a_range_ends_where_its_row_says(key):
    row = CONSTRAINTS[key]
    for end, open_end, beyond in ((row.low, row.above, -1), (row.high, row.below, 1)):
        if end is not None:
            assert row.problem(value_of(row, end + beyond)) is not None
            assert (row.problem(value_of(row, end)) is None) == (not open_end)
    if row.whole:
        assert row.problem(value_of(row, (row.low or 0) + 1.5)) is not None


@pytest.mark.parametrize("key", [key for key, row in CONSTRAINTS.items() if row.length])
def test_a_list_of_another_length_is_refused(key):
    row = CONSTRAINTS[key]
    for length in (0, row.length - 1, row.length + 1):
        assert f"must be a list of {row.length}" in str(row.problem([0.5] * length))


def numbers_of_options():
    for path in sorted(CONFIG_DIR.glob("*/**/*.yaml")):
        group = path.relative_to(CONFIG_DIR).parts[0]
        if group in ("norm", "model", "optim", "schedule", "task"):
            node = OmegaConf.to_container(OmegaConf.load(path))
            prefix = "task.corpus" if path.parent.name == "corpus" else group
            yield from _numbers(node, prefix)


def _numbers(node, key):
    if isinstance(node, dict):
        for name, value in node.items():
            if name != "defaults":
                yield from _numbers(value, f"{key}.{name}")
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield key


def test_every_number_of_every_option_has_a_row():
    found = set(numbers_of_options())
    assert len(found) > 40
    assert sorted(key for key in found if constraint_of(key) is None) == []


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("clip_norm=nan", "clip_norm=nan must be above 0 (gradient norm)"),
        ("budget.minutes=inf", "budget.minutes=inf must be above 0"),
        ("optim.lr=nan", "optim.lr=nan must be above 0 (learning rate)"),
        ("optim.betas=[0.9,0.98,0.9]", "must be a list of 2 numbers, each at least 0 and below 1"),
        ("optim.betas=[0.9,1]", "optim.betas=[0.9, 1] must be a list of 2"),
        ("optim.weight_decay=inf", "optim.weight_decay=inf must not be negative"),
        ("norm.eps=-1e-5", "norm.eps=-1e-05 must not be negative"),
        ("model.dropout=1", "model.dropout=1 must be at least 0 and below 1"),
        ("model.num_heads=3", "model.num_heads=3 does not divide the width 128"),
        ("model.dim=nine", "model.dim=nine is not a whole number; it"),
        ("model.depth={a:1}", "model.depth={'a': 1} is not a whole number; it"),
        ("task.label_smoothing=1", "task.label_smoothing=1 must be at least 0 and below 1"),
        ("task.test_search.beam=0", "task.test_search.beam=0 must be at least 1"),
        ("task.corpus.size=1000000000000", "task.corpus.size=1000000000000 must be"),
        ("observe.targets={bleu:[nan]}", "observe.targets.bleu=[nan] must be a list of numbers"),
        ("observe.threads=1000000", "observe.threads=1000000 must be above 0 and at most MOST"),
        ("seed=99999999999999999999", "seed=99999999999999999999 must be at least 0"),
        ("budget.steps=null", "budget: set at least one of budget.steps"),
        ("+optim.maximize=nan", "optim.maximize=nan must be a finite number"),
        ("+optim.foreach=99999999999999999999", "is beyond 9223372036854775807"),
        ('data_dir="a\nb"', r"data_dir='a\nb' is no plain text"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_key_value_and_what_is_allowed(override, said):
    said = said.replace("MOST", str(MOST_THREADS))
    with pytest.raises(Exception, match=r".") as caught:
        compose([override])
    assert said in str(caught.value) and "\n" not in str(caught.value).partition(said)[0]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["norm=gn", "norm.groups=7"], "norm.groups=7 does not divide the width 128"),
        (["norm=bn", "norm.ghost=0"], "norm.ghost=0 must be above 0, or interleaved-N (sequences)"),
        (["norm=bn", "norm.ghost=interleaved-0"], "is neither a number of sequences nor inter"),
        (["norm=bn", "norm.momentum=0"], "norm.momentum=0 must be above 0 and at most 1"),
        (["task=mlm", "task.mask_split=[0.8,0.2]"], "task.mask_split=[0.8, 0.2] must be a list"),
        (["task=mlm", "task.mask_split=[0.8,0.2,0.2]"], "must sum to 1"),
        (["schedule=cosine", "budget.steps=9"], "schedule.total=9 must be above schedule.warmup"),
        (["observe.probe.spikes.min_history=900"], "observe.probe.spikes.window=128 must be at"),
        (["task=lm", "task.length_buckets=[64,32]"], "task.length_buckets=[64, 32] must increase"),
    ],
)
def test_values_that_do_not_go_together_are_refused(overrides, said):
    with pytest.raises(ValueError, match=r"^\w") as caught:
        compose(overrides)
    assert said in str(caught.value)


def test_a_divergence_factor_without_end_is_allowed():
    assert math.isinf(compose(["divergence_factor=inf"]).divergence_factor)


@pytest.mark.parametrize("task", ["toy", "lm", "mlm"])
def test_a_run_that_goes_by_an_unknown_score_fails_before_its_data_are_read(task, monkeypatch):
    monkeypatch.setattr("normlab.tasks.translation.prepare_translation", None)
    monkeypatch.setattr("normlab.tasks.documents.prepare_documents", None)
    plain = to_dict(compose([f"task={task}"]))
    assert "loss" in build_task(plain).score_names()
    check_scores(plain, build_task(plain))
    with pytest.raises(ValueError, match=r"^validate.select_by=blue is no score .* it has .*loss"):
        _Run(compose([f"task={task}", "validate.select_by=blue"]))
    with pytest.raises(ValueError, match=r"^observe.targets=blue is no score of this task"):
        _Run(compose([f"task={task}", "observe.targets={blue:[1]}"]))


@pytest.mark.parametrize("size", ["model=tiny", "model=base", "model.share_embeddings=none"])
def test_parameters_are_estimated_to_a_hundredth(size):
    plain = to_dict(compose([size, f"task.vocab_size={VOCAB}"]))
    true = sum(p.numel() for p in build_model(plain, Words()).parameters())
    assert parameters(plain) == pytest.approx(true, rel=0.02)


def test_a_model_beyond_memory_is_refused_with_numbers_before_it_is_built(config):
    large = to_dict(compose(["model.dim=262144", "model.num_heads=1", "model.ffn_dim=1048576"]))
    with pytest.raises(ValueError, match=r"model\.dim=262144.* GiB .* there are .* GiB of memory"):
        _Run(compose(["model.dim=262144", "model.ffn_dim=1048576"]))
    check_memory(large, training=True, available=2**60)
    need = 4 * 4 * parameters(config)
    check_memory(config, training=True, available=2 * need)
    with pytest.raises(ValueError, match=r"4 copies"):
        check_memory(config, training=True, available=need - 1)
    check_memory(config, training=False, available=need)
    found = memory_bytes()
    assert found is None or found > 2**28


def test_changes_of_a_record_obey_the_table(config):
    wrong = ("task.label_smoothing=nan", "task.test_search.beam=0", "observe.threads=1000000")
    for change in wrong:
        key, _, value = change.partition("=")
        with pytest.raises(ValueError, match=rf"^{key}={value} must be"):
            from_dict(config, [change])


def test_the_threads_of_a_larger_machine_do_not_keep_a_record_from_being_read(config):
    there = {**config, "observe": {**config["observe"], "threads": MOST_THREADS + 1}}
    assert from_dict(there).observe.threads is None


@pytest.mark.parametrize("part", ["task", "model", "norm", "optim", "observe", "validate", "seed"])
def test_the_config_of_a_record_that_lacks_a_part_names_it(part, config):
    rest = {key: value for key, value in config.items() if key != part}
    with pytest.raises(ValueError, match=rf"lacks {part}"):
        from_dict(rest)
    for wrong in ([], [[]], "x", 10**400):
        with pytest.raises(ValueError, match=rf"\b{part}\b"):
            from_dict({**config, part: wrong})


def test_the_configs_of_all_published_records_obey_the_table():
    found = sorted(RESULTS.rglob("record.json"))
    assert found
    for path in found:
        constraints.check(json.loads(path.read_bytes())["config"])


def test_the_list_of_keys_has_all_of_the_schema_and_of_the_table():
    listed = {key.name: key for key in keys()}
    nodes = ("budget", "validate", "observe")
    typed = {"task", "model", "placement", "optim", "schedule", "choices", *NORM_KEYS, *nodes}
    assert set(RunConfig.__dataclass_fields__) - typed <= set(listed)
    assert set(CONSTRAINTS) <= set(listed)
    for name in nodes:
        schema = RunConfig.__dataclass_fields__[name].default_factory
        parts = {f"{name}.{key}" for key in schema.__dataclass_fields__}
        assert parts - {"observe.probe", "observe.sink"} <= set(listed)
    assert listed["clip_norm"].allowed == "above 0"
    assert listed["batching"].allowed == "bucket, random"
    assert listed["accumulate"].description.startswith("micro-batches an update")
