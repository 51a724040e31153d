"""Labels of runs: norms by site, batches, corpora and placements."""

import pytest

from normlab.records.labels import batch_label, corpus_label, norm_label, placement_label


@pytest.mark.parametrize(
    ("choices", "label"),
    [
        ({"norm": "bn"}, "bn"),
        ({"norm": "bn", "decoder_norm": None, "encoder_norm": None}, "bn"),
        ({"norm": "bn", "decoder_norm": "ln"}, "bn+ln"),
        ({"norm": "bn", "encoder_norm": "ln", "decoder_norm": "ln"}, "ln"),
        ({"norm": "ln", "ffn_inner_norm": "bn"}, "ln+ffn_inner_bn"),
        ({"norm": "ln", "ffn_inner_norm": "none", "embedding_norm": None}, "ln"),
        ({"norm": "none"}, "none"),
        ({}, "-"),
    ],
)
def test_norm_labels_distinguish_the_sites(choices, label):
    assert norm_label(choices) == label


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
def test_batch_labels_show_the_unit_and_the_accumulated_parts(config, label):
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
def test_corpora_have_a_label_only_in_tasks_with_several(choices, corpus, label):
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
def test_a_model_without_attention_has_no_label_for_the_default_placement(placement, config, label):
    assert placement_label({"placement": placement}, config) == label
