"""What is seen of a sweep, and what is said of the demo's runs."""

import io
import json
import logging
import re

import pytest
from rich.console import Console

from normlab.cli import main
from normlab.commands import completion
from normlab.commands._cells import Cells, Row, short_names
from normlab.commands._elsewhere import _told_once, carried_out_elsewhere, gathering, watched
from normlab.commands.demo import sentence
from normlab.config import compose, error_line
from normlab.metrics.bleu import tokenizer_of
from normlab.near import check_arguments
from normlab.records.record import Score
from normlab.records.store import PROGRESS_FILE, RECORD_FILE
from tests.sinks.runs import record


def cells(tmp_path, count, *, terminal=False, width=80):
    rows = [Row(f"norm=bn seed={n}", tmp_path / str(n), f"cell{n}.log") for n in range(count)]
    for row in rows:
        row.folder.mkdir(exist_ok=True)
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=width, height=20)
    return Cells(rows, at_a_time=2, logs=tmp_path, console=console), out


def progress(folder, **changes):
    said = {"phase": "training", "done": 120, "total": 500, "loss": 5.25, "left": 40.0}
    (folder / PROGRESS_FILE).write_text(json.dumps({**said, **changes}))


@pytest.mark.parametrize("count", [3, 60])
def test_a_live_table_fits_the_terminal_and_shows_what_is_at_work(tmp_path, count):
    shown, out = cells(tmp_path, count, terminal=True)
    with shown:
        progress(shown.rows[1].folder)
        shown.beat({1: 10.0})
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert max(map(len, text.splitlines())) <= 80
    assert len(text[text.rindex(" of ") :].splitlines()) <= 20
    (row,) = {line.rstrip() for line in text.splitlines() if "training" in line}
    assert re.fullmatch(r"norm=bn seed=1 +training 120/500 +5\.25 +40s +cell1\.log", row)
    assert ("more cells" in text) == (count == 60)


def test_the_time_left_counts_what_is_to_come(tmp_path, capsys):
    shown, _ = cells(tmp_path, 5)
    (shown.rows[0].folder / RECORD_FILE).write_text(record().to_json())
    progress(shown.rows[1].folder)
    progress(shown.rows[2].folder, left=60.0)
    shown.beat({0: 1.0, 1: 60.0, 2: 60.0})
    shown.beat({1: 60.0, 2: 60.0})
    assert shown.left == pytest.approx((40 + 60 + 2 * (100 + 120 + 1) / 3) / 2)
    assert capsys.readouterr().out.startswith("0 of 5 done, about")
    said = shown.stopped("normlab train -m norm=ln,bn")
    assert said[0] == "stopped: 1 of 5 cells done, 4 left"
    assert "norm=bn seed=1 (saved at training 120/500)" in said[1]
    assert said[-1] == "it goes on with: normlab train -m norm=ln,bn"
    said = shown.stopped("normlab train", jobs=["7"])
    assert "norm=bn seed=1 (at training 120/500)" in said[1]
    assert said[-2].endswith("scancel 7 ends them") and said[-1].startswith("then it goes on")


def test_cells_are_named_by_what_differs():
    named = short_names([("norm=ln", "a=1", "seed=1"), ("norm=bn", "a=1", "seed=1")])
    assert named == ["norm=ln", "norm=bn"]


def test_another_launcher_is_seen_and_repeats_nothing(capsys):
    argv = ["-m", "hydra/launcher=submitit_slurm", "+hydra.launcher.mem_gb=2", "norm=ln,bn"]
    assert carried_out_elsewhere(argv) and not carried_out_elsewhere(argv[2:])
    assert not carried_out_elsewhere([*argv, "--cfg", "job"])
    assert gathering(argv) == ["-m", "norm=ln,bn"]
    with _told_once():
        for n in range(3):
            logging.getLogger("submitit").warning(f"Call #{n} - no sacct")
    assert capsys.readouterr().err == "submitit: Call #0 - no sacct\n"


def test_cells_elsewhere_are_named_with_their_logs_and_one_without_a_record_failed(
    tmp_path, capsys
):
    names = ("norm=ln", "norm=bn")
    rows = [Row(name, tmp_path / name / "seed1", "") for name in names]
    logs = tmp_path / ".sweeps" / ".submitit"
    with watched(tmp_path, rows, logs):
        (logs / "7_1").mkdir(parents=True)
        rows[0].folder.mkdir(parents=True)
        (rows[0].folder / RECORD_FILE).write_text(record().to_json())
    assert [(row.state, row.log) for row in rows] == [("finished", ""), ("failed", "7_1")]
    assert capsys.readouterr().out == "2 cells, carried out elsewhere\n2 of 2 done, 1 failed\n"


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
        (
            "model.read=rows",
            "model.read does not exist; normlab train --cfg job shows all keys. model=",
        ),
        ("model.read=rows", "model=gru, lstm, rnn have it."),
        ("norm.center=false", "norm=gn has it."),
        ("task.source.train_size=9", "task=cifar10 has it."),
        ("momentum=0.9", "Did you mean optim.momentum (of optim=rmsprop, sgd) or norm.momentum?"),
        ("batch_size=abc", "batch_size=abc: it takes a whole number (sequences)"),
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


@pytest.mark.parametrize("command", ["train", "inspect", "card"])
def test_a_group_that_is_given_twice_is_refused(command, capsys):
    twice = ["norm=bn", "placement=deepnorm", "placement=pre"]
    assert main([command, *twice, *(["budget.steps=0"] if command == "train" else [])]) == 1
    said = "placement=deepnorm and placement=pre are both given: placement takes one option"
    assert said in capsys.readouterr().err


def test_a_key_that_is_written_as_a_flag_is_named():
    with pytest.raises(ValueError, match=r"there is no --steps: .* budget\.steps=100"):
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


def test_values_and_runs_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "toy-ln-pre-0" / "seed1").mkdir(parents=True)
    assert "precision=bf16" in completion.candidates(["train", "precision=b"])
    assert completion.candidates(["train", "observe.fast=t"]) == ["observe.fast=true"]
    assert completion.candidates(["plot", "runs/t"]) == ["runs/toy-ln-pre-0/"]
    assert "runs/toy-ln-pre-0/seed1" in completion.candidates(["plot", "runs/toy-ln-pre-0/"])


def test_bleu_is_cut_as_the_target_language_is_written():
    assert (tokenizer_of("de"), tokenizer_of("zh-CN")) == ("13a", "zh")
    with pytest.raises(ValueError, match="target language th"):
        tokenizer_of("th")
