"""Runs are called by what sets them apart: batch and corpus."""

import pytest

from normlab.records.labels import batch_label, corpus_label, placement_label


@pytest.mark.parametrize(
    ("config", "label"),
    [
        ({"batch_size": 32, "max_tokens": None}, "b32"),
        ({"batch_size": None, "max_tokens": 4096}, "4096tok"),
        ({"batch_size": 8, "max_tokens": None, "accumulate": 4}, "4xb8"),
        ({"batch_size": 8, "accumulate": 1}, "b8"),
        ({}, "-"),
    ],
)
def test_a_batch_is_named_by_its_unit_and_its_parts(config, label):
    assert batch_label(config) == label


@pytest.mark.parametrize(
    ("choices", "corpus", "label"),
    [
        ({"task": "mlm", "task/corpus": "brown"}, {"name": "brown"}, "brown"),
        ({"task": "mlm", "task/corpus": "pydoc"}, {}, "pydoc"),
        ({"task": "lm", "task/corpus": "hub"}, {"name": "tinystories"}, "tinystories"),
        ({"task": "translation"}, {"name": "translation"}, None),
        ({"task": "translation"}, {"name": "tatoeba"}, "tatoeba"),
        ({"task": "toy"}, {"size": 10}, None),
    ],
)
def test_a_corpus_is_named_where_a_task_has_several(choices, corpus, label):
    assert corpus_label({"choices": choices, "task": {"corpus": corpus}}) == label


@pytest.mark.parametrize(
    ("placement", "config", "label"),
    [
        ("pre", {"model": {"num_heads": 2}}, "pre"),
        ("post", {"model": {"dim": 8}}, "post"),
        ("pre", {"model": {"dim": 8}}, None),
        ("pre", {}, "pre"),
    ],
)
def test_a_network_without_attention_has_no_placement(placement, config, label):
    assert placement_label({"placement": placement}, config) == label
