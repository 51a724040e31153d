"""Composing configs: refused overrides, fingerprints, and the norm that each site gets."""

from functools import cache
from typing import Any

import pytest

from normlab.config.compose import compose
from normlab.config.error_messages import run_groups
from normlab.config.registry import default_choice, option_names, option_settings
from normlab.config.run_config import from_dict, reads_files, to_dict
from normlab.norms.base import NoNorm, Norm
from normlab.norms.batch import BatchNorm
from normlab.norms.layer import LayerNorm
from normlab.norms.make import make_norm
from normlab.norms.rms import RMSNorm
from normlab.records.record import fingerprint
from normlab.training.build import build_model
from tests.models.small import Words

SMALL = ["model.dim=16", "model.ffn_dim=32", "model.encoder_layers=1", "model.decoder_layers=2"]


@cache
def composed(*overrides):
    """Return a config that is composed only once. Tests must not change it."""
    return to_dict(compose(list(overrides)))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("budget.stpes=8", ["budget.stpes"]),
        ("batch_size=many", ["batch_size", "many"]),
        ("batch_size=null", ["batch_size=None and max_tokens=None; set exactly one"]),
        ("+nothing=1", ["nothing does not exist"]),
        ("sites={*:bn}", ["set norm=bn"]),
        ("batching=sorted", ["batching", "sorted", "bucket", "random"]),
        ("task/corpus=hub", ["task.corpus.path is missing"]),
        ("model.rope.pairs=half", ["model.rope.pairs=half", "halves, interleaved"]),
    ],
)
def test_a_wrong_key_type_or_option_is_an_error_with_its_path_and_allowed_values(override, said):
    with pytest.raises(ValueError) as caught:
        compose([override, "task=lm"] if "corpus" in override else [override])
    message = str(caught.value)
    assert "\n" not in message and caught.value.__cause__ is None
    for word in said:
        assert word in message, message


@pytest.mark.parametrize(
    "group", [g for g in run_groups() if not {"/", "@"} & {*g} and g != "experiment"]
)
def test_the_options_of_every_group_compose(group):
    names = option_names(group)
    if group in ("probe", "sink"):  # several at once
        assert sorted(composed(f"{group}=[{','.join(names)}]")["observe"][group]) == names
        return
    for option in names[::5] if group in ("norm", "placement", "model") else names[::2]:
        more = ["task=mlm"] if option == "bert" else []  # it has a corpus of documents
        more += ["norm=none"] if option == "rezero" else []
        assert composed(f"{group}={option}", *more)["choices"][group] == option


def test_the_full_set_has_every_probe():
    assert sorted(composed("probe=full")["observe"]["probe"]) == option_names("probe")


SEEN = (
    *("seed=5", "device=cpu", "observe.log_every=7", "observe.threads=1", "observe.study=some"),
    *("observe.other_code=rerun", "probe=[]", "sink=[jsonl]", "runs_dir=there"),
    "norm.eps=0.00001",
)
SCIENCE = (
    *("norm.eps=1e-3", "norm.affine=false", "norm@decoder_norm=bn", "norm@ffn_inner_norm=bn"),
    *("model.dropout=0.2", "task.corpus.seed=2", "task.test_search.beam=4", "optim.lr=2e-3"),
    *("batch_size=16", "max_tokens=4096", "batching=random", "clip_grad=1", "precision=fp64"),
    *("budget.minutes=10", "validate.test=best", "validate.average=2", "divergence_factor=9"),
)


def test_only_settings_that_affect_results_change_the_fingerprint():
    plain = fingerprint(composed())
    assert fingerprint(composed("norm=ln", "batch_size=32", *SEEN)) == plain
    of_files = {fingerprint(composed("task=translation", f"data_dir={x}")) for x in ("a", "b")}
    assert len(of_files) == 1
    others = [
        fingerprint(composed(o) if "@" in o else to_dict(from_dict(composed(), [o])))
        for o in SCIENCE
    ]
    assert len({plain, *others}) == 1 + len(SCIENCE)


@pytest.mark.parametrize("group", ["norm", "placement"])
def test_no_two_options_share_a_fingerprint(group):
    nodes = [option_settings(group, name, group) for name in option_names(group)]
    assert len({fingerprint({group: node}) for node in nodes}) == len(nodes)


def kinds(model, site):
    return {type(m) for name, m in model.named_modules() if isinstance(m, Norm) and site in name}


def test_each_key_of_a_norm_reaches_its_sites():
    model: Any = build_model(
        composed(*SMALL, "norm=bn", "norm@decoder_norm=bn", "decoder_norm.padding=include"), Words()
    )
    assert kinds(model, "residual") == kinds(model, "final_norm") == {BatchNorm}
    assert kinds(model, "inner_norm") == kinds(model, "embedding.norm") == {NoNorm}
    for stack, padding in ((model.encoder, "exclude"), (model.decoder, "include")):
        assert {m.padding for m in stack.modules() if isinstance(m, BatchNorm)} == {padding}


def test_encoder_embeddings_and_feed_forward_layers_can_have_separate_norms():
    words = (*SMALL, "norm@encoder_norm=rms", "norm@ffn_inner_norm=bn", "norm@embedding_norm=rms")
    model: Any = build_model(composed(*words), Words())
    assert kinds(model.encoder, "residual") == kinds(model.encoder, "final_norm") == {RMSNorm}
    assert kinds(model.decoder, "residual") == {LayerNorm}
    assert kinds(model, "inner_norm") == {BatchNorm} and kinds(model, "embedding.norm") == {RMSNorm}
    assert model.encoder.layers[0].feed_forward.inner_norm.dim == 32


@pytest.mark.parametrize(
    ("scale", "model", "key", "size"),
    [
        ("smoke", "tiny", "batch_size", 32),
        ("small", "mini", "batch_size", 64),
        ("paper", "iwslt", "max_tokens", 4096),
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


def test_a_config_survives_conversion_to_a_dict_and_back():
    config = compose(["norm=bn", "max_tokens=512", "batching=random"])
    assert to_dict(from_dict(to_dict(config))) == to_dict(config)
    assert to_dict(config)["batching"] == "random"


def test_changes_of_a_recorded_config_are_applied_or_refused():
    plain_form = composed("norm=bn")
    changed = to_dict(from_dict(plain_form, ["norm.eval_stats=batch", "task.test_search.beam=2"]))
    assert changed["norm"]["eval_stats"] == "batch" and changed["task"]["test_search"]["beam"] == 2
    of_files = to_dict(from_dict(composed("task=translation"), ["data_dir=there"]))
    assert of_files["data_dir"] == of_files["task"]["corpus"]["data_dir"] == "there"
    with pytest.raises(ValueError, match="'data_dir=there': the run's task=toy reads no files"):
        from_dict(plain_form, ["data_dir=there"])
    for change in ("norm.evalstats=batch", "beam=2", "norm.eval_stats"):
        with pytest.raises(ValueError, match=rf"'{change}': a run.* has no such key"):
            from_dict(plain_form, [change])
    said = r"'norm.eval_stats=batch': a run with norm=ln has no such key\. norm=bn, .* have it"
    with pytest.raises(ValueError, match=said):
        from_dict(composed(), ["norm.eval_stats=batch"])


def test_make_norm_accepts_an_option_and_keyword_settings():
    norm = make_norm("bn", 12, padding="include", momentum=1)
    assert isinstance(norm, BatchNorm) and norm.padding == "include" and norm.dim == 12
    with pytest.raises(ValueError, match=r"'bnn' is not an option of the group 'norm'"):
        make_norm("bnn", 12)
    with pytest.raises(ValueError, match=r"norm\.groups=5 must be|groups=5 does not divide"):
        make_norm("gn", 12, groups=5)


@pytest.mark.parametrize("task", ["toy", "digits", "lm task/corpus=pydoc"])
def test_data_dir_is_refused_by_a_task_or_corpus_that_reads_no_files(task, tmp_path):
    for folder in (tmp_path, "/no/such/folder"):
        said = rf"task={task} does not read data_dir={folder}: add task=translation .*task=lm"
        with pytest.raises(ValueError, match=said):
            compose([*f"task={task}".split(), f"data_dir={folder}"])


def test_batching_is_refused_by_a_task_that_does_not_read_it():
    assert compose(["task=toy", "batching=random"]).task.batching.name == "random"
    with pytest.raises(ValueError, match="task=wine does not read batching=random; omit it"):
        compose(["task=wine", "model=mlp", "batching=random"])


def test_reads_files_is_true_for_tasks_and_corpora_with_a_data_dir():
    tasks = {task: default_choice("task", task, "corpus") for task in option_names("task")}
    built_in = {"toy", "digits", "wine", "cancer", "lm", "mlm"}
    assert {task for task, corpus in tasks.items() if not reads_files(task, corpus)} == built_in
    corpora = {corpus for corpus in option_names("task/corpus") if reads_files("lm", corpus)}
    assert corpora == {*option_names("task/corpus")} - {"pydoc"}
