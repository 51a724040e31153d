"""Numbers about models, counted by hand."""

import json

from normlab.claim_checks import (
    facts,
)
from tests.claim_checks.by_hand import numbers, text_of


def test_the_parameters_of_bert_base_match_a_count_by_hand():
    d, hidden = 768, 4 * 768
    embeddings = (30_522 + 512 + 2) * d + 2 * d
    layer = 4 * (d * d + d) + (d * hidden + hidden) + (hidden * d + d) + 2 * 2 * d
    assert numbers("facts.bert_base") == ({"total": embeddings + 12 * layer + d * d + d}, [True])


def test_the_norms_of_surveyed_models_match_the_published_ones():
    rows = facts.surveyed()
    known = {"BertModel": ("layer", "post"), "GPT2Model": ("layer", "pre")}
    known |= {"LlamaModel": ("rms", "pre"), "T5Model": ("rms", "pre")}
    for name, (kind, order_) in known.items():
        assert ([*rows[name]["norms"]], rows[name]["order"]) == ([kind], order_), name
    text = text_of("facts.norms")
    either = [name for name, row in rows.items() if row["norms"].keys() & {"layer", "rms"}]
    assert text.startswith(f"{len(either)} of {len(rows)} model classes do")
    first = [name for name, row in rows.items() if row["order"] in ("pre", "both")]
    assert numbers("facts.placement")[1] == [len(first) > len(rows) / 2]
    assert f"the blocks of {len(first)} start with a norm" in text_of("facts.placement")


def test_surveyed_vision_models_have_their_known_norms():
    known = {"test_resnet": "batch", "test_vit": "layer", "regnety_040_sgn": "group"}
    images = json.loads(facts.VISION.read_text("utf-8"))["classes"]
    assert {name: max(images[name], key=images[name].get) for name in known} == known
    assert text_of("facts.vision_norms").startswith(
        f"{sum('batch' in r for r in images.values())} of"
    )
