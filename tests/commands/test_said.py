"""What is said of the demo's runs, and of overrides that are wrong."""

import pytest

from normlab.cli import main as cli
from normlab.commands import _sweep, train
from normlab.commands.demo import sentence
from normlab.config.compose import compose, error_line
from normlab.config.suggest import check_arguments, check_given_once
from normlab.metrics.bleu import tokenizer_of
from normlab.records.record import Outcome, Score
from tests.sinks.runs import record


def demo(**losses):
    return {
        norm: [record(scores={"test/loss": Score(value, False, 9, None)}) for value in values]
        for norm, values in losses.items()
    }


def test_the_demo_says_what_its_numbers_say():
    said = sentence(demo(ln=[4.0, 4.1], bn=[4.5, 4.6], none=[4.4, 4.9]))
    assert "LN 4.05, BN 4.55, no norm 4.65" in said
    assert "LN is below BN, and BN and no norm cannot be told apart" in said


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("nrom=bn", "Did you mean norm"),
        ("lr=0.1", "Did you mean optim.lr?"),
        ("budget.step=3", "Did you mean budget.steps"),
        ("norm=bm", "Did you mean bn"),
        ("norm=layernorm", "Did you mean ln?"),
        ("norm=BatchNorm", "Did you mean bn?"),
        ("norm=groupnorm", "Did you mean gn?"),
        ("task=bert", "Did you mean mlm?"),
        (
            "model.read=rows",
            "model.read does not exist; normlab train --cfg job shows all keys. model=",
        ),
        ("model.read=rows", "model=gru, lstm, rnn have it."),
        ("norm.center=false", "norm=gn has it."),
        ("task.source.train_size=9", "task=cifar10 has it."),
        ("momentum=0.9", "Did you mean optim.momentum or norm.momentum?"),
        ("batch_size=abc", "batch_size=abc must be above 0, a whole number"),
        ("placement=[deepnorm,pre]", "placement takes one option"),
        ("norm=[ln,bn]", "norm takes one option; a sweep over several is"),
        ("norm@decoder_norm=[ln,bn]", "norm@decoder_norm takes one option"),
        ("optim.groups.norm.weight_decay=0", "give +optim.groups.norm.weight_decay=VALUE"),
    ],
)
def test_what_was_meant_is_said(override, said):
    with pytest.raises(Exception) as raised:  # Hydra's and OmegaConf's are of many kinds
        compose([override])
    assert said in error_line(raised.value)


@pytest.mark.parametrize("command", ["train", "inspect", "norm card"])
def test_a_group_that_is_given_twice_is_refused(command, capsys):
    twice = ["norm=bn", "placement=deepnorm", "placement=pre"]
    assert cli([*command.split(), *twice, *(["budget.steps=0"] if command == "train" else [])]) == 1
    said = "placement=deepnorm and placement=pre are both given: placement takes one option"
    assert said in capsys.readouterr().err


def test_a_key_that_is_given_twice_is_refused(capsys):
    assert cli(["train", "seed=1", "seed=2", "budget.steps=0"]) == 1
    assert "seed=1 and seed=2 are both given: seed takes one value" in capsys.readouterr().err
    check_given_once(["seed=1", "seed=1", "probe=[tid]", "+probe=[spikes]", "~schedule", "a"])


@pytest.mark.parametrize("override", ["logger=csv", "experiment=x", "name=foo"])
def test_nothing_is_suggested_where_nothing_is_near(override):
    with pytest.raises(ValueError, match="does not exist") as caught:
        compose([override])
    assert "Did you mean" not in str(caught.value)


def test_another_config_is_refused_as_there_is_one(capsys):
    assert cli(["train", "--config-name", "foo"]) == 1
    assert "no config 'foo': there is one" in capsys.readouterr().err


def test_a_key_that_is_written_as_a_flag_is_named():
    with pytest.raises(ValueError, match=r"there is no --steps: .* Did you mean budget\.steps"):
        check_arguments(["--steps", "100"])
    check_arguments(["-m", "--cfg", "job", "norm=ln"])


def test_a_path_in_chinese_is_told_to_be_quoted_and_a_broken_list_is_not():
    with pytest.raises(ValueError, match=r"cannot be read: .*; quote the value: .data_dir='数据'"):
        check_arguments(["data_dir=数据"])
    check_arguments(["data_dir='数据'"])
    for broken in ("sites={encoder.0:bn", "seed=range(1,4", "norm=ln,bn,", 'data_dir="数'):
        with pytest.raises(ValueError, match="cannot be read") as caught:
            check_arguments([broken])
        assert "quote" not in str(caught.value)


def test_the_demo_is_resumed_by_its_own_short_command(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(_sweep, "run_hydra", lambda argv, again: asked.append(again) or 130)
    assert cli(["demo", "budget.steps=9", "probe=[]"]) == 130
    assert asked == ["normlab demo budget.steps=9 'probe=[]'"]


@pytest.mark.parametrize("rank", ["0", "1"])
def test_what_resumes_a_run_is_said_once_whatever_the_ranks(rank, monkeypatch, capsys):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr("sys.argv", ["normlab"])
    stopped = record(outcome=Outcome("interrupted", 3))
    monkeypatch.setattr(train, "train_and_say", lambda config: stopped)
    assert cli(["train", "norm=bn"]) == 130
    said = capsys.readouterr().err.count("to resume: normlab train norm=bn\n")
    assert said == (1 if rank == "0" else 0)


def test_bleu_is_cut_as_the_target_language_is_written():
    assert (tokenizer_of("de"), tokenizer_of("zh-CN")) == ("13a", "zh")
    with pytest.raises(ValueError, match="target language th"):
        tokenizer_of("th")
