"""Keys that newer models have: their defaults, and what a recipe sets."""

import inspect

import pytest

from normlab.config.schema import NEWER_OF_MODELS
from normlab.models.rotary import Rope, Rotary
from normlab.models.text import TextArchitecture
from normlab.records.record import fingerprint
from normlab.training.build import build_model
from tests.models.blocks import LM, config


def test_a_config_contains_newer_keys_only_if_they_differ_from_their_defaults():
    typed = ("model.gated=false", "model.bias=true", "model.rope.base=10000", "model.init=xavier")
    plain = config()
    assert config(*typed) == plain and "gated" not in plain["model"]
    assert config("norm=rms", "norm.one_plus=false")["norm"].keys() == {
        *("option", "eps", "affine", "eps_inside")
    }
    changed = config("model.positions=rope", "model.rope.base=5e5", "model.gated=true")
    assert changed["model"]["rope"] == {"base": 5e5} and changed["model"]["gated"]
    assert fingerprint(changed) != fingerprint(plain)
    assert isinstance(build_model(changed, LM()).decoder.layers[0].self_attention.rotary, Rotary)


def test_the_defaults_of_newer_keys_match_those_in_the_classes():
    parameters = inspect.signature(TextArchitecture).parameters
    defaults = {f"model.{name}": each.default for name, each in parameters.items()}
    defaults |= {f"model.rope.{name}": getattr(Rope(), name) for name in Rope.__struct_fields__}
    assert {key: defaults[key] for key in NEWER_OF_MODELS} == NEWER_OF_MODELS


def test_a_recipe_sets_only_the_values_of_its_own_options_and_typed_values_win():
    own = config("recipe=gemma3")
    assert own["norm"]["one_plus"] and own["placement"]["depth_scaled"] is False
    typed = config("recipe=gemma3", "norm=rms", "norm.eps=1e-3", "optim.weight_decay=0")
    assert (typed["norm"]["eps"], typed["optim"]["weight_decay"]) == (1e-3, 0)
    others = config(
        "recipe=gemma3", "norm=none", "placement=post", "optim=sgd", "schedule=constant"
    )
    plain = config("norm=none", "placement=post", "optim=sgd", "schedule=constant")
    keys = ("norm", "placement", "optim", "schedule")
    assert [others[key] for key in keys] == [plain[key] for key in keys]
    assert others["model"] == own["model"] and others["clip_grad"] == 1
    assert config("norm=ada")["norm"]["scale"] == 1  # a value, although there is a norm=scale


def test_a_key_that_the_model_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"model\.gated does not exist; choose from dropout, "):
        build_model(config("model=gru", "model.gated=true"), LM())
    with pytest.raises(ValueError, match=r"model\.rope=.*unknown field `bass`"):
        build_model(config("+model.rope.bass=3"), LM())
