"""Probes on held-out examples, which are the same for all runs."""

import random
from dataclasses import replace

import pytest

from normlab.inspection.model import held_out_probes, int8, layer_skip
from normlab.inspection.model.built_model import model_from_overrides
from normlab.inspection.questions import questions
from tests.inspection.tiny_models import examined, untrained
from tests.tasks.sentences import WORDS


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Return the folder of a corpus of texts."""
    folder, draw = tmp_path_factory.mktemp("documents"), random.Random(0)
    for split, number in (("train", 40), ("valid", 40), ("test", 2)):
        texts = [
            "\n".join(" ".join(draw.choices(WORDS, k=9)) for _ in range(12)) for _ in range(number)
        ]
        (folder / f"{split}.txt").write_text("\n\n".join(texts))
    return folder


@pytest.fixture
def language_model(documents, monkeypatch):
    """Return a function that builds a small language model with a seed."""
    monkeypatch.setattr(int8, "CALIBRATION", 2)
    monkeypatch.setattr(held_out_probes, "TOKENS", 2000)
    data = (f"data_dir={documents}", "task/corpus=documents", "task.vocab_size=330")
    lm = ("task=lm", *data, "task.max_length=64", "norm=dyt", "model.depth=1", "batch_size=8")
    sizes = ("model.dim=32", "model.ffn_dim=64", "model.num_heads=2")
    return lambda seed: model_from_overrides([*lm, *sizes, f"seed={seed}"])


def test_held_out_examples_are_the_same_for_every_seed_and_have_enough_tokens(language_model):
    built = language_model(1)
    examples = held_out_probes.held_out(built)
    assert examples == held_out_probes.held_out(language_model(2)) and len(examples) >= 32
    assert 2000 <= built.task.lengths("valid")[examples].sum() < 4000
    wide = replace(built, config={**built.config, "model": {"dim": 10**6}})
    assert held_out_probes.held_out(wide) == [*range(built.number("valid"))]


def test_a_language_model_answers_with_values_in_their_ranges(language_model):
    built = language_model(1)
    names = ("attention", "activations", "rank", "saturation", "layer_skip", "int8")
    findings = {each.name: examined(built, each.ask) for each in questions("model", names=names)}
    assert "sink in 0.00 % of heads with a causal mask" in findings["attention"].answer
    place = findings["activations"].values["places"]["decoder.final"]
    assert place["feature"] in range(32) and place["position"] in range(64)
    assert 8 < findings["rank"].values["places"]["decoder.0.ffn"]["effective"] < 32
    assert findings["saturation"].values["places"]["decoder.final"]["share"] < 0.05
    assert len(findings["int8"].table.rows) == 3 and len(findings["layer_skip"].table.rows) == 1


def test_held_out_probes_that_do_not_apply_give_the_reason(tmp_path):
    about = untrained(tmp_path, "norm=ln")  # 7 sentences, with fewer than 10 tokens per feature
    reasons = [getattr(held_out_probes, name)(about).why_not for name in ("rank", "saturation")]
    assert "held-out tokens are too few" in reasons[0] and "such as dyt" in reasons[1]
    digits = model_from_overrides(["task=digits", "model=resnet8", "model.width=4"])
    for ask in (layer_skip.layer_skip, int8.int8):
        assert ask(digits).why_not == "the model has no Transformer layers"
