"""Recipes: their published values, when they are chosen, and what overrides them."""

from functools import cache

import pytest
import yaml
from omegaconf import OmegaConf

from normlab.commands import train as train_command
from normlab.config.compose import compose, with_recipe
from normlab.config.instantiation import instantiate
from normlab.config.run_config import to_dict
from normlab.errors import UserError
from normlab.training.schedule import Schedule

SOURCE_50 = {"length_factor": 1.0, "length_offset": 50}
TOKENS_200 = {"length_factor": 0.0, "length_offset": 200}  # fairseq's own limit
BEAM_5 = {"beam": 5, "length_penalty": 1.0}
# Common to all: transformer_iwslt_de_en, label smoothing, tokens per batch, no clipping.
COMMON = {
    "model.encoder_layers": 6,
    "model.decoder_layers": 6,
    "model.dim": 512,
    "model.ffn_dim": 1024,
    "model.num_heads": 4,
    "model.activation": "relu",
    "model.dropout": 0.3,
    "optim.betas": [0.9, 0.98],
    "optim.weight_decay": 1e-4,
    "clip_grad": None,
    "accumulate": 1,
    "task.label_smoothing": 0.1,
    "max_tokens": 4096,
    "task.max_tokens": 4096,
    "batch_size": None,
    "task.batch_size": None,
    "schedule.option": "inverse_sqrt",
    "validate.every": "epoch",
}
ADAM = {"optim.option": "adam"}  # decoupled weight decay, as in fairseq
ONE_DICTIONARY = {"model.share_embeddings": "all", "task.joint_vocabulary": True}
INNER_DROPOUT = {"model.attention_dropout": 0.1, "model.activation_dropout": 0.1}
RBN = {
    **(ADAM | ONE_DICTIONARY | INNER_DROPOUT),
    "schedule.warmup": 8000,
    "schedule.option": "inverse_sqrt_from",
    "schedule.initial": 1e-7,
    "schedule.minimum": 1e-9,
    "budget.epochs": 60,
    "budget.steps": None,
    "validate.average": 6,
    "validate.average_statistics": "average",
    "validate.patience": None,
    "validate.select_by": "loss",
    "task.test_search": BEAM_5 | SOURCE_50,
}
ADMIN = {
    **(ONE_DICTIONARY | INNER_DROPOUT),
    "optim.option": "radam",
    "optim.decoupled_weight_decay": True,
    "optim.lr": 7e-4,
    "schedule.warmup": 6000,
    "schedule.option": "inverse_sqrt_from",
    "schedule.initial": 1e-7,
    "budget.epochs": None,
    "budget.steps": 100_000,
    "validate.average": 10,
    "validate.average_statistics": "average",
    "validate.patience": None,
    "task.test_search": BEAM_5 | TOKENS_200,
}
PAGE = {
    ("rbn", "pre"): RBN | {"optim.lr": 1.5e-3},
    ("rbn", "post"): RBN | {"optim.lr": 5e-4},
    ("powernorm", "pre"): RBN
    | {
        "optim.lr": 1.5e-3,
        "budget.epochs": 200,  # patience ends it
        "validate.patience": 5,
        "validate.average": 5,
        "task.test_search": BEAM_5 | TOKENS_200,
    },
    ("fairseq", "post"): {
        **ADAM,
        "model.share_embeddings": "target",
        "task.joint_vocabulary": False,
        "model.attention_dropout": 0.0,
        "model.activation_dropout": 0.0,
        "optim.lr": 5e-4,
        "schedule.warmup": 4000,
        "budget.epochs": 50,
        "budget.steps": None,
        "validate.average": 0,
        "validate.select_by": "bleu",
        "validate.patience": None,
        "task.valid_search": BEAM_5 | {"length_factor": 1.2, "length_offset": 10},
        "task.test_search": BEAM_5 | TOKENS_200,
    },
    ("admin", "pre"): ADMIN,
    ("admin", "post"): ADMIN,
}


@cache
def composed(*overrides):
    return to_dict(compose(["task=iwslt", *overrides]))


def leaf(config, key):
    value = OmegaConf.select(OmegaConf.create(config), key)
    value = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    return {k: v for k, v in value.items() if k != "option"} if isinstance(value, dict) else value


@pytest.mark.parametrize(("recipe", "placement"), PAGE)
def test_every_recipe_has_the_published_values(recipe, placement):
    config = composed(f"recipe={recipe}", f"placement={placement}")
    said = COMMON | PAGE[recipe, placement]
    assert {key: leaf(config, key) for key in said} == said
    assert config["choices"]["recipe"] == recipe and config["choices"]["model"] == "iwslt"
    assert config["choices"]["placement"] == placement
    assert config["schedule"]["lr"] == config["optim"]["lr"]
    assert ("initial" in config["schedule"]) == (recipe != "fairseq")


def test_iwslt_has_a_recipe_by_default_and_multi30k_only_at_scale_paper():
    plain, full = composed(), composed("scale=paper")
    assert plain["choices"]["recipe"] == "rbn" and {**full, "choices": 0} == {**plain, "choices": 0}
    assert composed("recipe=none")["choices"]["model"] == "tiny"
    assert to_dict(compose(["task=multi30k"]))["choices"]["recipe"] is None
    config = to_dict(compose(["task=multi30k", "scale=paper", "placement=post"]))
    assert config["choices"]["recipe"] == "rbn" and config["optim"]["lr"] == 5e-4
    assert config["budget"]["epochs"] == 60 and config["budget"]["steps"] is None


@pytest.mark.parametrize("scale", ["small", "smoke"])
def test_a_small_scale_replaces_the_recipe(scale):
    small, other = composed(f"scale={scale}"), to_dict(compose(["task=multi30k", f"scale={scale}"]))
    assert small["choices"]["recipe"] is None and small["choices"]["model"] != "iwslt"
    assert small["budget"]["steps"] <= 2000 and small["budget"]["epochs"] is None
    for key in ("model", "optim", "schedule", "budget", "validate", "batch_size", "max_tokens"):
        assert small[key] == other[key], key
    with pytest.raises(ValueError, match=rf"recipe=rbn and scale={scale} are both set.* leave one"):
        composed("recipe=rbn", f"scale={scale}")


def test_the_error_for_a_placement_without_a_rate_suggests_another_placement():
    said = r"recipe=fairseq has no optim.lr for placement=pre.* placement=post"
    with pytest.raises(ValueError, match=said):
        composed("recipe=fairseq", "placement=pre")
    tried = composed("recipe=fairseq", "placement=pre", "optim.lr=3e-4")
    assert tried["optim"]["lr"] == tried["schedule"]["lr"] == 3e-4
    assert composed("recipe=fairseq")["choices"]["placement"] == "post"


def test_a_key_on_the_command_line_overrides_the_recipe():
    config = composed(
        *("recipe=admin", "model=tiny", "optim.lr=1e-3", "schedule=cosine", "optim=sgd"),
        *("budget.steps=20", "schedule.warmup=5", "validate.every=10", "task.test_search.beam=1"),
    )
    assert config["choices"]["model"] == "tiny" and config["model"]["dim"] == 128
    assert config["optim"]["lr"] == 1e-3 and config["optim"]["option"] == "sgd"
    assert config["schedule"]["total"] == config["budget"]["steps"] == 20
    assert config["validate"]["every"] == 10 and config["task"]["test_search"]["beam"] == 1
    instantiate(config["schedule"], "schedule", Schedule)


def test_a_typed_batch_size_or_max_tokens_unsets_the_other():
    for given, value, other in (("batch_size", 8, "max_tokens"), ("max_tokens", 512, "batch_size")):
        config = composed(f"{given}={value}")
        assert config[given] == config["task"][given] == value
        assert config[other] is config["task"][other] is None
    with pytest.raises(ValueError, match="batch_size=8 and max_tokens=512; set exactly one"):
        composed("batch_size=8", "max_tokens=512")


def test_with_recipe_inserts_the_recipe_before_the_task_and_keeps_flags_in_place():
    assert with_recipe(["-m", "task=iwslt", "--cfg", "job"]) == [
        *("-m", "recipe=rbn", "task=iwslt", "--cfg", "job")
    ]
    named = ["task=iwslt", "recipe=none"], ["task=iwslt", "scale=smoke"]
    for words in (*named, ["task=iwslt,toy"], ["norm=bn"], []):
        assert with_recipe(words) == words


def test_a_run_without_the_default_recipe_of_its_task_is_refused(monkeypatch):
    # The config of one run of `task=iwslt,toy` with another launcher.
    monkeypatch.setattr("normlab.config.compose.with_recipe", list)
    with pytest.raises(ValueError, match=r"task=iwslt has recipe=rbn by default.* set recipe=rbn"):
        compose(["task=iwslt"])


def test_cfg_job_shows_the_config_that_runs(capsys):
    words = ["norm=bn", "task=iwslt", "batch_size=32"]
    assert train_command.main([*words, "--cfg", "job"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown == to_dict(compose(words))
    assert shown["batch_size"] == 32 and shown["max_tokens"] is None
    assert shown["optim"]["lr"] == 1.5e-3 and shown["schedule"]["warmup"] == 8000


def test_package_shows_a_part_of_the_config(capsys):
    words = ["task=toy", "--cfg", "job", "--package"]
    assert train_command.main([*words, "validate"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown == to_dict(compose(["task=toy"]))["validate"]
    with pytest.raises(UserError, match="--package valid: the config does not have this part"):
        train_command.main([*words, "valid"])


def test_batch_norm_has_the_momentum_of_the_recipe_unless_it_is_overridden():
    assert composed("recipe=rbn", "norm=bn")["norm"]["momentum"] == 0.05
    assert composed("recipe=rbn", "norm=bn", "norm.momentum=0.1")["norm"]["momentum"] == 0.1
    inside = composed("recipe=rbn", "norm=ln", "norm@encoder_norm=bn")
    assert inside["encoder_norm"]["momentum"] == 0.05 and "momentum" not in inside["norm"]
    assert composed("recipe=none", "norm=bn")["norm"]["momentum"] == 0.1
