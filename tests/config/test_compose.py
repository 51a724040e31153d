"""Composition: what is refused, what a fingerprint depends on, which norm each place gets."""

from functools import cache
from typing import Any

import pytest

from normlab.cli import main as normlab
from normlab.config.compose import compose, from_dict, to_dict
from normlab.config.registry import option_names, run_groups
from normlab.norms.base import Norm
from normlab.norms.batch import BatchNorm
from normlab.norms.local import LayerNorm, NoNorm, RMSNorm
from normlab.records.record import fingerprint
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
        ("budget.stpes=8", ["budget.stpes"]),
        ("norm.epz=1", ["norm.epz"]),
        ("nrom=bn", ["nrom does not exist", "Did you mean norm?"]),
        ("norm=bnn", ["'bnn'", "'norm'", "Did you mean bn", *option_names("norm")]),
        ("placement=sandwitch", ["'sandwitch'", *option_names("placement")]),
        ("batch_size=many", ["batch_size", "many"]),
        ("batch_size=2.5", ["batch_size", "2.5"]),
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


@pytest.mark.parametrize("override", ["precision=fp16", "task=nix", "a"])
def test_in_python_the_error_is_the_line_of_the_command_line(override, capsys):
    with pytest.raises(ValueError) as caught:
        compose([override])
    assert normlab(["train", override]) == 1
    assert capsys.readouterr().err == f"normlab train: {caught.value}\n"


def test_one_of_two_batch_sizes_must_be_set():
    with pytest.raises(ValueError, match="neither batch_size nor max_tokens"):
        compose(["batch_size=null"])


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


@pytest.mark.parametrize("override", [*SEEN, "norm.eps=0.00001"])
def test_looking_at_a_run_does_not_change_its_fingerprint(override, plain):
    assert fingerprint(composed("norm=ln", "batch_size=32", override)) == plain


@pytest.mark.parametrize("override", SCIENCE)
def test_what_could_change_a_figure_changes_the_fingerprint(override, plain):
    assert fingerprint(composed(override)) != plain


def test_no_two_norms_and_placements_share_a_fingerprint():
    prints = {
        fingerprint(composed(f"norm={norm}", f"placement={placement}"))
        for norm in option_names("norm")
        for placement in ("pre", "post")
    }
    assert len(prints) == 2 * len(option_names("norm"))


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


@pytest.mark.parametrize("own", ["encoder", "decoder"])
def test_a_stack_can_have_a_norm_of_its_own(own):
    model = model_of("norm=bn", f"norm@{own}_norm=ln")
    for name in ("encoder", "decoder"):
        kind = LayerNorm if name == own else BatchNorm
        stack = getattr(model, name)
        assert kinds(stack, "residual") == kinds(stack, "final_norm") == {kind}


def test_values_of_a_place_are_its_own():
    model = model_of("norm=bn", "norm@decoder_norm=bn", "decoder_norm.padding=include")
    for stack, padding in ((model.encoder, "exclude"), (model.decoder, "include")):
        assert {m.padding for m in stack.modules() if isinstance(m, BatchNorm)} == {padding}


def test_the_optional_norms_reach_their_sites():
    model = model_of("norm=ln", "norm@ffn_inner_norm=bn", "norm@embedding_norm=rms")
    assert kinds(model, "residual") == {LayerNorm}
    assert kinds(model, "inner_norm") == {BatchNorm}
    assert kinds(model, "embedding.norm") == {RMSNorm}
    assert model.encoder.layers[0].feed_forward.inner_norm.dim == 32
    assert sum(isinstance(m, BatchNorm) for m in model.modules()) == 3
    assert sum(isinstance(m, RMSNorm) for m in model.modules()) == 2


@pytest.mark.parametrize(
    ("scale", "model", "key", "size"),
    [
        ("smoke", "tiny", "batch_size", 32),
        ("cpu", "mini", "batch_size", 64),
        ("gpu", "iwslt", "max_tokens", 4096),
    ],
)
def test_a_scale_sets_model_and_batch_and_can_be_overridden(scale, model, key, size):
    config = composed(f"scale={scale}")
    assert config["choices"]["model"] == model and config["choices"]["scale"] == scale
    assert config["model"]["dim"] == composed(f"model={model}")["model"]["dim"]
    assert config[key] == config["task"][key] == size
    changed = composed(f"scale={scale}", "budget.steps=777", "model.dim=64", "norm=bn")
    assert changed["budget"]["steps"] == 777 and changed["model"]["dim"] == 64
    assert changed["choices"]["norm"] == "bn" and changed["choices"]["model"] == model
    assert composed(f"scale={scale}", "model=small")["choices"]["model"] == "small"


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


def test_targets_are_lists_of_numbers_by_score():
    given = compose(["observe.targets={mlm_accuracy:[0.25]}"]).observe.targets
    assert given == {"mlm_accuracy": [0.25]}
    for wrong in ("5", "{x:0.5}", "{x:[y]}", "[0.5]"):
        with pytest.raises(ValueError, match=r"observe\.targets=.*give lists of values"):
            compose([f"observe.targets={wrong}"])


def test_the_best_and_the_mean_of_the_last_cannot_both_be_tested():
    with pytest.raises(ValueError, match=r"validate\.test=best and validate\.average=3"):
        composed("validate.test=best", "validate.average=3")
