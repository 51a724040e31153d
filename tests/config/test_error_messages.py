"""Messages about wrong overrides."""

import re

import pytest

from normlab.cli import main as cli
from normlab.commands import train as train_command
from normlab.config.compose import compose
from normlab.config.overrides import check_arguments, check_given_once
from normlab.errors import UserError
from normlab.records.record import Outcome
from tests.training.sink_runs import record


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("nrom=bn", "Did you mean norm"),
        ("optim.lrr=0.1", "Did you mean optim.lr?"),
        ("step=5", "steps?"),
        ("experimnt=gpt_bn", "Did you mean experiment?"),
        ("norm=bm", "'bm' is not an option of the group 'norm'. Did you mean bn"),
        ("norm=bm", "`normlab list norms` shows all"),
        ("norm=qqq", "'qqq' is not an option of the group 'norm'; `normlab list norms` shows all"),
        ("norm=batchnorm2", "'norm'. Did you mean bn?"),
        ("norm=Layer-Nrm", "Did you mean ln?"),
        ("norm=deepnorm", "Did you mean placement=deepnorm?"),
        ("task=llama", "Did you mean model=llama or recipe=llama?"),
        ("optim=qqq", "'qqq' is not an option of the group 'optim'; choose from adam, muon,"),
        ("norm=layer", "Did you mean ln?"),
        ("task=bert", "Did you mean mlm or recipe=bert?"),
        ("model.read=rows", "model.read does not exist; normlab train --cfg job shows all keys."),
        ("model.read=rows", "model=gru, lstm, rnn have it."),
        ("norm.center=false", "norm=gn has it."),
        ("task.source.train_size=9", "task=cifar10 has it."),
        ("momentum=0.9", "Did you mean optim.momentum or norm.momentum?"),
        ("batch_size=abc", "batch_size=abc is not a number; it must be above 0, a whole number"),
        ("batch_size=0", "batch_size=0 must be above 0, a whole number"),
        ("lr=abc", "optim.lr=abc is not a number; it must be above 0"),
        ("validate.every=abc", "every=abc must be above 0, a whole number, or epoch"),
        ("seed=1..3", "For a run with each: normlab train -m 'seed=range(1,4)'"),
        ("batch_size=8-10", "For a run with each: normlab train -m 'batch_size=range(8,11)'"),
        ("norm=[ln,bn]", "norm accepts one option; sweep over several with "),
        ("probe=null", "chooses no option; omit it for the default, or set probe=[] for none"),
        ("norm=", "chooses no option; omit it for the default, or set norm=none for none"),
        ("schedule=null", "schedule=null chooses no option; omit it for the default"),
        ("norm@decoder_norm=[ln,bn]", "norm@decoder_norm accepts one option"),
        ("optim.groups.norm.weight_decay=0", "plus sign: +optim.groups.norm.weight_decay=VALUE"),
        ("norm@enc=ln", "norm@enc does not exist"),
        ("precision=fp16", "precision=fp16 must be auto, fp32, bf16, fp64"),
        ("~norm", "norm is missing; set norm=VALUE"),
        ("=bn", "'=bn' has no key; write key=value. Is a shell variable unset?"),
        ("decoder_norm=ln", "decoder_norm=ln: write norm@decoder_norm=ln"),
        ("optim.lr=${batch_size}", "optim.lr=${batch_size}: write the value itself"),
        ("seed=???", "seed=???: write the value itself"),
        ("recipe=bert", "recipe=bert sets task/corpus, which this run does not have"),
    ],
)
def test_a_wrong_override_gets_a_suggestion(override, said):
    with pytest.raises(UserError) as raised:
        compose(["task=wine", "model=mlp", override] if override == "recipe=bert" else [override])
    assert said in str(raised.value)


def test_a_key_unlike_any_other_gets_no_suggestion():
    with pytest.raises(ValueError, match="does not exist") as caught:
        compose(["logger=csv"])
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("command", ["train", "inspect", "norm card"])
def test_a_key_given_twice_with_different_values_is_refused(command, capsys):
    assert cli([*command.split(), "norm=bn", "placement=deepnorm", "placement=pre"]) == 1
    said = "placement=deepnorm and placement=pre are both set; keep one"
    assert said in capsys.readouterr().err
    check_given_once(["seed=1", "seed=1", "experiment=gpt_bn", "experiment=a", "~schedule", "a"])
    for group in ("probe", "sink"):  # Hydra would use the last
        with pytest.raises(UserError, match=rf"list several as {group}=\[A,B\]"):
            check_given_once([f"{group}=a", f"{group}=b"])


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["study", "plan", "toy_norms", "rows=ln", "rows=none"], "rows=ln and rows=none are both"),
        (["study", "plan", "toy_norms", "seed=1", "seeds=2"], "seeds=1 and seeds=2 are both set"),
        (["study", "plan", "toy_norms", "scale=x", "scale=smoke"], "scale=x and scale=smoke are"),
        (["study", "run", "toy_norms", "steps=3", "budget.steps=4"], "budget.steps=3 and"),
        (["study", "tune", "batching", "batching=bucket", "batching=random"], "are both set"),
        (["train", "probe=tid", "probe=spikes"], "probe=tid and probe=spikes are both set"),
        (["compare", "--where", "norm=ln", "--where", "norm=bn"], "write --where norm=ln,bn"),
        (["eval", "RUN", "seed=5", "seed=7"], "seed=5 and seed=7 are both set; keep one"),
        (["predict", "RUN", "seed=5", "seed=7"], "seed=5 and seed=7 are both set; keep one"),
        (["inspect", "RUN", "seed=5", "seed=7"], "seed=5 and seed=7 are both set; keep one"),
    ],
)
def test_an_option_given_twice_with_different_values_is_refused(argv, said, capsys):
    assert cli(argv) == 1
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_key_written_as_a_flag_gets_a_suggestion():
    for argv, setting in (
        (["--steps", "100"], "steps=100"),
        (["--norm=bn"], "norm=bn"),
        (["--model.depth", "lr=1"], "model.depth=VALUE"),
        (["--data-dir"], "data_dir=VALUE"),
    ):
        with pytest.raises(ValueError, match=rf"unknown flag \S+; write {re.escape(setting)}$"):
            check_arguments(argv)
    with pytest.raises(ValueError, match=r"unknown flag --step; .*key=value\. .*steps"):
        check_arguments(["--step", "100"])
    with pytest.raises(ValueError, match="'foo': expected key=value, such as norm=bn"):
        check_arguments(["foo"])
    check_arguments(["-m", "--cfg", "job", "norm=ln"])


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["compare", "--baselin", "bn"], "Did you mean --baseline?"),
        (["study", "plan", "padding", "--data-dir", "a"], "; write data_dir=VALUE"),
    ],
)
def test_an_unknown_flag_gets_a_suggestion(argv, said, capsys):
    with pytest.raises(SystemExit):
        cli(argv)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "missing", "kind"),
    [
        ("predict", "RUN", "runs"),
        ("eval", "RUN", "runs"),
        ("norm check", "NORM", "norms"),
        ("study run", "STUDY | key=value", "studies"),
    ],
)
def test_a_missing_argument_is_named_with_the_command_that_lists_such_arguments(
    command, missing, kind, capsys
):
    with pytest.raises(SystemExit):
        cli(command.split())
    *_, listed, problem = capsys.readouterr().err.splitlines()
    assert listed == f"`normlab list {kind}` lists the {kind}"
    assert problem.endswith(f"required: {missing}")


def test_the_error_for_an_unquoted_chinese_path_suggests_quotes():
    with pytest.raises(ValueError, match=r"cannot be read: .*; quote the value: .data_dir='数据'"):
        check_arguments(["data_dir=数据"])
    check_arguments(["data_dir='数据'"])
    for broken in ("sites={encoder.0:bn", "norm=ln,bn,", 'data_dir="数'):
        with pytest.raises(ValueError, match="cannot be read") as caught:
            check_arguments([broken])
        assert "quote" not in str(caught.value)


@pytest.mark.parametrize("rank", ["0", "1"])
def test_only_the_first_rank_prints_the_command_to_resume(rank, monkeypatch, capsys):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    stopped = record(outcome=Outcome("interrupted", 3))
    monkeypatch.setattr(train_command, "train_and_summarize", lambda config: stopped)
    assert cli(["train", "experiment=gpt_bn", "norm=batchnorm"]) == 130
    typed = "experiment=gpt_bn norm=batchnorm"
    said = capsys.readouterr().err.count(f"to resume: normlab train {typed}\n")
    assert said == (1 if rank == "0" else 0)
