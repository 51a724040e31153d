"""Records read back as written, have reproducible bytes, and damage raises a precise error."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from normlab.records.record import RunRecord, Score
from tests.records.examples import record

names = st.text(max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(
    # `choices` must be a node
    config=st.dictionaries(names.filter(lambda name: name != "choices"), values, max_size=4),
    value=st.floats(allow_nan=False),
    stability=st.dictionaries(names, st.floats(allow_nan=False), max_size=3),
)
def test_every_record_reads_back_equal(config, value, stability):
    scores = {"test/bleu": Score(value, True, 3, "sig"), "valid/loss": Score(value, False, 3)}
    weights, floors = {"last": 12, "best_loss": 8}, {"loss": 6.5, "perplexity": math.inf}
    before = replace(record(), config=config, scores=scores, stability=stability)
    before = replace(before, weights=weights, floors=floors)
    text = before.to_json()
    after = RunRecord.from_json(text, origin="here")
    assert after == before
    assert after.to_json() == text


def test_a_record_has_exactly_the_keys_of_its_format():
    content = json.loads(record().to_json())
    assert set(content) == {
        "format", "run_id", "fingerprint", "numerics", "own_norms", "seed", "config", "outcome",
        "scores", "stability", "budget",
        "environment", "data", "params", "last_steps", "weights", "floors", "milestones",
    }  # fmt: skip
    assert set(content["outcome"]) == {"status", "step", "reason", "layer"}
    assert set(content["scores"]["test/bleu"]) == {"value", "higher_is_better", "n", "signature"}
    assert set(content["budget"]) == {
        "steps", "tokens", "wall_seconds", "tokens_per_second", "peak_memory_bytes",
    }  # fmt: skip


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_survive_as_strict_json(value):
    before = replace(
        record(bleu=value), stability={"stability/x/y": value}, config={"model": {"dim": value}}
    )
    text = before.to_json()

    def refuse(name):
        raise AssertionError(name)

    json.loads(text, parse_constant=refuse)
    after = RunRecord.from_json(text, origin="here")
    assert repr(after.scores["test/bleu"].value) == repr(value)
    assert repr(after.stability["stability/x/y"]) == repr(value)
    assert after.config == {"model": {"dim": repr(value)}}
    assert after.to_json() == text


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["seed"], True, r"seed: expected `int`, got `bool`"),
        (["params"], 1.5, r"params: expected `int`"),
        (["config"], [], r"config: expected `object`"),
        (["scores", "test/bleu"], 3, r"scores\[\.\.\.\]: expected `object`, got `int`"),
        (["scores", "test/bleu", "value"], "many", r"\]\.value: expected `float`, got `str`"),
        (["stability", "stability/spikes/count"], [], r"stability\[\.\.\.\]: expected"),
        (["weights"], {"last": 1, "best": 1.5}, r"weights\[\.\.\.\]: expected `int`"),
        (["last_steps"], {"step": [1, "x"]}, r"last_steps.*: expected `float | null`"),
        (["outcome", "status"], "fine", r"outcome\.status: invalid enum value 'fine'"),
        (["budget", "wall_seconds"], None, r"budget\.wall_seconds: expected `float`"),
        (["run_id"], "../x", r"run_id: expected `str` matching"),
        (["format"], "normlab.record/2", r"format: invalid value 'normlab.record/2'"),
        (["config", "choices"], [], r"config\.choices: expected `object`"),
    ],
)
def test_a_wrong_value_raises_an_error_with_file_and_key(path, value, message):
    content = json.loads(record().to_json())
    node = content
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    with pytest.raises(ValueError, match=message) as caught:
        RunRecord.from_json(json.dumps(content), origin="runs/a/record.json")
    assert str(caught.value).startswith("runs/a/record.json is a damaged record")
    assert "start the run again" in str(caught.value)


@pytest.mark.parametrize("key", ["run_id", "fingerprint", "numerics", "scores"])
def test_a_missing_key_raises_an_error(key):
    content = json.loads(record().to_json())
    del content[key]
    with pytest.raises(ValueError, match=rf"here is a damaged .* missing required field `{key}`"):
        RunRecord.from_json(json.dumps(content), origin="here")


def test_a_metric_is_a_score_or_a_value_measured_by_a_probe():
    found = record()
    name, value = next(iter(found.stability.items()))
    assert found.metric(name) == Score(value, higher_is_better=False, n=1)
    score = next(iter(found.scores))
    assert found.metric(score) == found.scores[score]
    assert found.metric("test/nothing") is None
    assert set(found.main_scores) == {name for name in found.scores if name.count("/") == 1}
