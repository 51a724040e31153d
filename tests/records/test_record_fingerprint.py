"""Runs share a fingerprint exactly when they are seeds of one experiment."""

import hashlib
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from normlab.records.pairs import ABSENT, varying
from normlab.records.record import fingerprint, parts
from tests.records.examples import config

leaves = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from("abc")
nodes = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)
    ),
    max_leaves=6,
)
configs = st.dictionaries(st.sampled_from("abcd"), nodes, max_size=3)


def diff(a, b):
    return {key: tuple(values) for key, values in varying([parts(a), parts(b)]).items()}


def test_seed_probes_scale_and_paths_do_not_change_the_fingerprint():
    base = config()
    same = [
        config(seed=9),
        config(observe={"probe": {"spikes": {"every": 1}}}),
        config(choices={"scale": "small"}),
        config(data_dir="/somewhere", runs_dir="/elsewhere"),
        config(task={"corpus": {"size": 20000, "seed": 1, "data_dir": "/somewhere"}}),
    ]
    assert {fingerprint(other) for other in same} == {fingerprint(base)}
    assert all(diff(base, other) == {} for other in same)


def test_every_other_value_changes_the_fingerprint_even_a_nested_seed():
    base = config()
    other = [
        config(batch_size=16),
        config(norm="bn"),
        config(optim={"lr": 1e-3}),
        config(task={"corpus": {"size": 20000, "seed": 2}}),
        config(accumulate=True),
        config(new=None),
    ]
    assert len({fingerprint(c) for c in [base, *other]}) == len(other) + 1


@given(configs, configs)
def test_diff_is_empty_exactly_when_fingerprints_agree(a, b):
    assert (diff(a, b) == {}) == (fingerprint(a) == fingerprint(b))


def test_diff_returns_dotted_keys_with_both_values():
    a = {"optim": {"lr": 1, "name": "adam"}, "norm": {"eps": 1e-5}}
    b = {"optim": {"lr": 2, "name": "adam"}, "norm": {}, "list": [1]}
    assert diff(a, b) == {
        "optim.lr": (1, 2),
        "norm": (ABSENT, {}),
        "norm.eps": (1e-5, ABSENT),
        "list": (ABSENT, [1]),
    }


def by_hand(config):
    """Compute the hash naively: drop keys, turn whole floats into integers, sort, hash."""

    def normal(value):
        if isinstance(value, dict):
            return {k: normal(v) for k, v in value.items() if k not in ("data_dir", "runs_dir")}
        if isinstance(value, list | tuple):
            return [normal(item) for item in value]
        whole = isinstance(value, float) and value.is_integer()
        return int(value) if whole else value

    left_out = ("observe", "seed", "choices", "device")
    kept = normal({key: value for key, value in config.items() if key not in left_out})
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


@given(configs)
def test_the_fingerprint_equals_a_naively_computed_hash(value):
    assert fingerprint(value) == by_hand(value)
    assert fingerprint({"data_dir": "x", "part": value}) == by_hand({"part": value})


def test_numpy_numbers_and_tuples_hash_like_plain_values_and_other_types_are_refused():
    numbers = {"x": {"a": np.float64(0.5), "b": (1, 2), "c": math.nan}, "y": np.int64(3)}
    assert fingerprint(numbers) == by_hand({"x": {"a": 0.5, "b": [1, 2], "c": "nan"}, "y": 3})
    for value in ({2}, b"1", {3: 1}):
        with pytest.raises(TypeError, match=rf"^{re.escape(str(value))} cannot be recorded"):
            fingerprint({"x": {"a": [1, value]}})
