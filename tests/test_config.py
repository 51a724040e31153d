"""Composition: what is refused, what a fingerprint depends on, where each norm ends up."""

from functools import cache
from typing import Any

import pytest

from normlab.cli import main as normlab
from normlab.config.compose import compose, from_dict, to_dict
from normlab.config.registry import option_names, run_groups
from normlab.norms.base import Norm
from normlab.norms.batch import BatchNorm
from normlab.norms.local import LayerNorm, NoNorm, RMSNorm
from normlab.records.fingerprint import fingerprint
from normlab.train.build import build_model, make_norm
from tests.models.small import Words

SMALL = ["model.dim=16", "model.ffn_dim=32", "model.encoder_layers=1", "model.decoder_layers=2"]


@cache
def composed(*overrides):
    """Return a config, composed once; tests read it and leave it as it is."""
    return to_dict(compose(list(overrides)))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("bacth_size=8", ["bacth_size"]),
        ("budget.stpes=8", ["budget.stpes"]),
        ("observe.log_evry=8", ["observe.log_evry"]),
        ("norm.epz=1", ["norm.epz"]),
        ("nrom=bn", ["nrom does not exist", "Did you mean norm?"]),
        ("norm=bnn", ["'bnn'", "'norm'", "Did you mean bn", *option_names("norm")]),
        ("placement=sandwitch", ["'sandwitch'", *option_names("placement")]),
        ("batch_size=many", ["batch_size", "many"]),
        ("batch_size=2.5", ["batch_size", "2.5"]),
        ("seed=first", ["seed", "first"]),
        ("budget.steps=all", ["budget.steps", "all"]),
        ("clip_norm=high", ["clip_norm", "high"]),
        ("batching=sorted", ["batching", "sorted", "bucket", "random"]),
        ("precision=fp16", ["precision", "fp16", "auto", "fp32", "bf16", "fp64"]),
        ("validate.average_statistics=keep", ["average_statistics", "recalibrate", "average"]),
    ],
)
def test_a_wrong_key_type_or_option_fails_with_its_path_and_what_is_allowed(override, said):
    with pytest.raises(ValueError) as caught:
        compose([override])
    message = str(caught.value)
    assert "\n" not in message and caught.value.__cause__ is None
    for word in said:
        assert word in message, message


@pytest.mark.parametrize("override", ["nrom=bn", "precision=fp16", "task=nix", "a"])
def test_in_python_the_error_is_the_line_of_the_command_line(override, capsys):
    with pytest.raises(ValueError) as caught:
        compose([override])
    assert normlab(["train", override]) == 1
    assert capsys.readouterr().err == f"normlab train: {caught.value}\n"


@pytest.mark.parametrize(
    "override",
    [
        "batch_size=0",
        "batch_size=-1",
        "max_tokens=0",
        "accumulate=0",
        "clip_norm=0",
        "validate.every=0",
        "observe.log_every=0",
        "observe.checkpoint_every=-3",
    ],
)
def test_a_size_that_is_not_above_zero_is_refused(override):
    key, value = override.split("=")
    with pytest.raises(ValueError, match=rf"{key}={value}.* must be above 0"):
        compose([override])


def test_both_batch_sizes_are_refused_and_so_is_neither():
    with pytest.raises(ValueError, match="batch_size=8 and max_tokens=4096 are both set"):
        compose(["batch_size=8", "max_tokens=4096"])
    with pytest.raises(ValueError, match="neither batch_size nor max_tokens"):
        compose(["batch_size=null"])


def test_max_tokens_takes_the_place_of_the_default_batch_size():
    config = composed("max_tokens=4096")
    assert config["batch_size"] is None and config["max_tokens"] == 4096
    assert config["task"]["batch_size"] is None and config["task"]["max_tokens"] == 4096
    assert config == composed("max_tokens=4096", "batch_size=null")


@pytest.mark.parametrize("group", [g for g in run_groups() if "/" not in g])
def test_every_option_of_every_group_composes(group):
    for option in option_names(group):
        value = f"[{option}]" if group in ("probe", "sink") else option
        more = ["data_dir=somewhere"] if group == "task" else []
        more += ["task=mlm"] if option == "bert" else []  # it has a corpus of documents
        more += ["norm=none"] if option == "rezero" else []
        config = composed(f"{group}={value}", *more)
        if group in ("probe", "sink"):  # several at once
            chosen = [name for name in option_names("probe") if name != "full"]
            assert sorted(config["observe"][group]) == (chosen if option == "full" else [option])
        else:
            assert config["choices"][group] == option


def test_choices_name_the_options_of_every_site():
    choices = composed("norm=bn", "norm@decoder_norm=ln", "placement=post")["choices"]
    assert choices["norm"] == "bn" and choices["decoder_norm"] == "ln"
    assert choices["encoder_norm"] is None and choices["ffn_inner_norm"] == "none"
    assert choices["placement"] == "post" and choices["scale"] is None


SEEN = [
    "seed=5",
    "device=cpu",
    "observe.log_every=7",
    "observe.checkpoint_every=9",
    "observe.threads=1",
    "observe.other_code=rerun",
    "observe.study=some",
    "probe=[]",
    "sink=[jsonl]",
    "data_dir=elsewhere",
    "runs_dir=elsewhere",
]
SCIENCE = [
    "norm=bn",
    "norm.eps=1e-3",
    "norm.affine=false",
    "norm@decoder_norm=bn",
    "norm@encoder_norm=rms",
    "norm@ffn_inner_norm=bn",
    "norm@embedding_norm=ln",
    "placement=post",
    "model=small",
    "model.dropout=0.2",
    "model.share_embeddings=target",
    "task=multi30k",
    "task.vocab_size=1000",
    "task.corpus.seed=2",
    "task.label_smoothing=0",
    "task.test_search.beam=4",
    "optim=sgd",
    "optim.lr=2e-3",
    "schedule=cosine",
    "schedule.warmup=10",
    "batch_size=16",
    "max_tokens=4096",
    "batching=random",
    "accumulate=2",
    "clip_norm=1",
    "precision=fp64",
    "divergence_factor=9",
    "budget.steps=10",
    "budget.minutes=10",
    "validate.every=10",
    "validate.select_by=bleu",
    "validate.test=best",
    "validate.best=false",
    "validate.patience=3",
    "validate.average=2",
    "scale=cpu",
]


@pytest.fixture(scope="module")
def plain():
    return fingerprint(composed())


@pytest.mark.parametrize("override", SEEN)
def test_looking_at_a_run_does_not_change_its_fingerprint(override, plain):
    assert fingerprint(composed(override)) == plain


@pytest.mark.parametrize("override", SCIENCE)
def test_what_could_change_a_figure_changes_the_fingerprint(override, plain):
    assert fingerprint(composed(override)) != plain


def test_no_two_norms_and_placements_share_a_fingerprint():
    more = {"pre": [], "post": ["placement=post"]}
    prints = [
        fingerprint(composed(f"norm={norm}", *more[placement]))
        for norm in option_names("norm")
        for placement in more
    ]
    assert composed("norm=ln")["choices"]["placement"] == "pre"
    assert len(prints) == len(set(prints))


def test_the_fingerprint_is_of_values_not_of_how_they_were_said(plain):
    assert fingerprint(composed("norm=ln", "batch_size=32", "norm.eps=0.00001")) == plain


def kinds(model, site):
    return {type(m) for name, m in model.named_modules() if isinstance(m, Norm) and site in name}


def model_of(*overrides) -> Any:
    return build_model(composed(*SMALL, *overrides), Words())


def test_a_norm_reaches_every_site_but_the_optional_ones():
    model = model_of("norm=bn")
    assert kinds(model, "residual") == kinds(model, "final_norm") == {BatchNorm}
    assert kinds(model, "inner_norm") == kinds(model, "embedding.norm") == {NoNorm}
    count = sum(isinstance(m, BatchNorm) for m in model.modules())
    assert count == (2 + 1) + (2 * 3 + 1)  # residuals of a layer, closing norm


@pytest.mark.parametrize(
    ("override", "encoder", "decoder"),
    [
        ("norm@decoder_norm=ln", BatchNorm, LayerNorm),
        ("norm@encoder_norm=ln", LayerNorm, BatchNorm),
        ("norm@decoder_norm=bn", BatchNorm, BatchNorm),
    ],
)
def test_the_stacks_can_have_norms_of_their_own(override, encoder, decoder):
    model = model_of("norm=bn", override)
    for stack, kind in ((model.encoder, encoder), (model.decoder, decoder)):
        assert kinds(stack, "residual") == kinds(stack, "final_norm") == {kind}


def test_values_of_a_site_are_its_own():
    model = model_of("norm=bn", "norm@decoder_norm=bn", "decoder_norm.padding=include")
    assert {m.padding for m in model.encoder.modules() if isinstance(m, BatchNorm)} == {"exclude"}
    assert {m.padding for m in model.decoder.modules() if isinstance(m, BatchNorm)} == {"include"}


def test_the_optional_norms_reach_their_sites():
    model = model_of("norm=ln", "norm@ffn_inner_norm=bn", "norm@embedding_norm=rms")
    assert kinds(model, "residual") == {LayerNorm}
    assert kinds(model, "inner_norm") == {BatchNorm}
    assert kinds(model, "embedding.norm") == {RMSNorm}
    assert model.encoder.layers[0].feed_forward.inner_norm.dim == 32
    assert sum(isinstance(m, BatchNorm) for m in model.modules()) == 3
    assert sum(isinstance(m, RMSNorm) for m in model.modules()) == 2


@pytest.mark.parametrize(
    ("scale", "model", "size"),
    [
        ("smoke", "tiny", ("batch_size", 32)),
        ("cpu", "mini", ("batch_size", 64)),
        ("gpu", "iwslt", ("max_tokens", 4096)),
    ],
)
def test_a_scale_sets_model_and_budget_and_can_be_overridden(scale, model, size):
    config = composed(f"scale={scale}")
    assert config["choices"]["model"] == model and config["choices"]["scale"] == scale
    assert config["model"] == composed(f"model={model}", *changes_of(scale))["model"]
    assert config[size[0]] == config["task"][size[0]] == size[1]
    assert (config["batch_size"] is None) != (config["max_tokens"] is None)
    changed = composed(f"scale={scale}", "budget.steps=777", "model.dim=64", "norm=bn")
    assert changed["budget"]["steps"] == 777 and changed["model"]["dim"] == 64
    assert changed["choices"]["norm"] == "bn" and changed["choices"]["model"] == model


def changes_of(scale):
    inner = ["model.attention_dropout=0.1", "model.activation_dropout=0.1"]  # of recipe=rbn
    return {"cpu": ["model.dropout=0.2"], "gpu": inner}.get(scale, [])


def test_the_model_can_be_chosen_against_the_scale():
    assert composed("scale=gpu", "model=tiny")["choices"]["model"] == "tiny"


def test_a_config_survives_its_plain_form():
    config = compose(["norm=bn", "max_tokens=512", "batching=random"])
    assert to_dict(from_dict(to_dict(config))) == to_dict(config)
    assert to_dict(config)["batching"] == "random"


def test_changes_of_a_plain_form_reach_their_key_or_are_refused():
    plain_form = composed("norm=bn")
    changed = to_dict(from_dict(plain_form, ["norm.eval_stats=batch", "task.test_search.beam=2"]))
    assert changed["norm"]["eval_stats"] == "batch" and changed["task"]["test_search"]["beam"] == 2
    assert to_dict(from_dict(plain_form, ["data_dir=there"]))["data_dir"] == "there"
    for change in ("norm.evalstats=batch", "beam=2", "norm.eval_stats"):
        with pytest.raises(ValueError, match=f"'{change}': no such key"):
            from_dict(plain_form, [change])


def test_make_norm_takes_an_option_and_other_values():
    norm = make_norm("bn", 12, padding="include", momentum=1)
    assert isinstance(norm, BatchNorm) and norm.padding == "include" and norm.dim == 12
    with pytest.raises(ValueError, match=r"no norm 'batch': there are ada, bn, "):
        make_norm("batch", 12)
    with pytest.raises(ValueError, match=r"Did you mean bn"):
        make_norm("bnn", 12)
    with pytest.raises(ValueError, match=r"norm\.groups=5 does not fit|groups=5 does not divide"):
        make_norm("gn", 12, groups=5)


def test_a_value_that_must_be_given_is_named():
    with pytest.raises(ValueError, match=r"task\.corpus\.path must be given"):
        compose(["task=lm", "task/corpus=hub"])


@pytest.mark.parametrize("task", ["mlm", "lm"])
def test_a_language_model_has_a_model_of_one_stream_unless_another_is_named(task):
    plain = compose([f"task={task}", "scale=cpu"])
    assert plain.choices["model"] == "bert_tiny" and plain.model.num_layers == 2
    assert compose([f"task={task}", "model=bert_mini"]).model.num_layers == 4
    assert compose(["task=toy", "scale=cpu"]).choices["model"] == "mini"


def test_targets_are_lists_of_numbers_by_score():
    given = compose(["observe.targets={mlm_accuracy:[0.25]}"]).observe.targets
    assert given == {"mlm_accuracy": [0.25]}
    for wrong in ("5", "{x:0.5}", "{x:[y]}", "[0.5]"):
        with pytest.raises(ValueError, match=r"observe\.targets=.*give lists of values"):
            compose([f"observe.targets={wrong}"])


def test_the_best_and_the_mean_of_the_last_cannot_both_be_tested():
    with pytest.raises(ValueError, match=r"validate\.test=best and validate\.average=3"):
        composed("validate.test=best", "validate.average=3")
