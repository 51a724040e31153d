"""Runs share a fingerprint exactly when they are seeds of one experiment."""

import hashlib
import random

from hypothesis import given
from hypothesis import strategies as st

from normlab.records.fingerprint import ABSENT, diff, fingerprint
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


def shuffled(value, rng):
    if isinstance(value, dict):
        items = [(key, shuffled(item, rng)) for key, item in value.items()]
        rng.shuffle(items)
        return dict(items)
    return value


def test_it_is_the_documented_hash():
    expected = hashlib.sha256(b'{"a":{"b":[1,0.5]},"c":null}').hexdigest()[:10]
    assert fingerprint({"c": None, "a": {"b": (1.0, 0.5)}, "seed": 7}) == expected


def test_what_is_no_part_of_the_experiment_is_left_out():
    base = config()
    same = [
        config(seed=9),
        config(observe={"probe": {"spikes": {"every": 1}}}),
        config(choices={"scale": "cpu"}),
        config(data_dir="/somewhere", runs_dir="/elsewhere"),
        config(task={"corpus": {"size": 20000, "seed": 1, "data_dir": "/somewhere"}}),
    ]
    assert {fingerprint(other) for other in same} == {fingerprint(base)}
    assert all(diff(base, other) == {} for other in same)


def test_every_other_value_counts_nested_seeds_too():
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


@given(configs, st.integers(0, 99))
def test_order_does_not_matter(value, seed):
    assert fingerprint(shuffled(value, random.Random(seed))) == fingerprint(value)


@given(configs, configs)
def test_diff_is_empty_exactly_when_fingerprints_agree(a, b):
    assert (diff(a, b) == {}) == (fingerprint(a) == fingerprint(b))


def test_whole_floats_are_integers_and_booleans_are_not():
    assert fingerprint({"lr": 1.0}) == fingerprint({"lr": 1})
    assert fingerprint({"lr": True}) != fingerprint({"lr": 1})


def test_diff_names_dotted_keys_and_both_values():
    a = {"optim": {"lr": 1, "name": "adam"}, "norm": {"eps": 1e-5}}
    b = {"optim": {"lr": 2, "name": "adam"}, "norm": {}, "list": [1]}
    assert diff(a, b) == {
        "optim.lr": (1, 2),
        "norm": (ABSENT, {}),
        "norm.eps": (1e-5, ABSENT),
        "list": (ABSENT, [1]),
    }
