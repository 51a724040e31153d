"""`normlab demo`: its table and page, its conclusions for different values, and wrong settings."""

import pytest
from msgspec.structs import replace

from normlab import demo
from normlab.cli import main as cli
from normlab.commands.demo import main
from normlab.demo import Measured, rows, sentences
from normlab.records.record import Outcome
from tests.html_text import Text
from tests.reports.handmade import made

FLOORS = {"loss": 4.0, "bleu": 0.1}
SMALL = (
    *(
        "model.dim=16",
        "model.ffn_dim=16",
        "model.num_heads=2",
        "budget.steps=3",
        "observe.log_every=1",
    ),
    *("task.corpus.size=200", "task.corpus.valid_size=40", "task.corpus.test_size=4"),
)


def found(name, running=1.0, *, batch=None, training=0.0, evaluation=0.0, bleu=50.0):
    """Return a norm's measurements. If `running` is None, the run has diverged."""
    norm = {"layer norm": "ln", "no norm": "none", "batch norm": "bn"}[name]
    if running is None:
        lost = replace(made(norm, 1), floors=FLOORS, outcome=Outcome("diverged", 50))
        return Measured(name, lost)
    record = replace(made(norm, 1, {"test/bleu": bleu, "test/loss": running}), floors=FLOORS)
    batch = running if batch is None else batch
    return Measured(name, record, running, batch, training, evaluation)


LN, NONE = found("layer norm", 1.4), found("no norm", 1.5)
BN = found("batch norm", 1.6, batch=1.47, training=0.097)


def test_a_demo_prints_a_table_writes_a_page_and_repeats_them_without_training(
    tmp_path, capsys, monkeypatch
):
    settings = [*SMALL, f"runs_dir={tmp_path}"]
    monkeypatch.delitem(demo._NORMS, "none")  # for a shorter test
    assert main(settings) == 0
    first = capsys.readouterr().out
    monkeypatch.setattr(demo, "run_all", None)
    monkeypatch.setattr(demo, "_examined", None)
    assert main(settings) == 0
    second = capsys.readouterr().out
    lines = [line.split() for line in second.splitlines()]
    assert first.endswith(second.partition("before.\n")[2]) and "before." in second
    (bn,) = (line for line in lines if line[:2] == ["batch", "norm"])
    assert float(bn[-4]) > 0 and bn[-2:] == ["0", "%"]  # changes in training, none in evaluation
    page = Text((tmp_path / "demo.html").read_text())
    names = [row[0] for row in page.rows("results")]
    assert names == ["norm", "layer norm", "batch norm", "copy the source"]
    assert page.links == ["#content"] and sum(tag == "figure" for tag, _ in page.tags) == 2


def test_runs_of_the_demo_are_kept_outside_the_folder_that_compare_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    planned = demo.plan(SMALL, deep=False)
    assert planned.config["runs_dir"] == "demo"
    assert {cell.folder.parts[0] for cell in planned.runs} == {"demo"}


def test_the_conclusion_ranks_norms_by_loss():
    first, second = sentences([LN, NONE, BN])
    assert first == (
        "On unseen sentences the loss is lowest with layer norm (1.40), before no norm (1.50) and "
        "batch norm (1.60)."
    )
    assert "by 9.7 % (layer norm and no norm: 0 %)" in second
    assert "but its loss is 0.13 higher (1.60 instead of 1.47)" in second


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([LN, found("no norm", None), BN], "With no norm training diverged at step 50; on unseen"),
        ([LN, found("no norm", 3.5), BN], "With no norm the loss is not clearly below that of"),
        ([LN, NONE, found("batch norm", 1.6, bleu=60.0)], "BLEU is highest with batch norm (60.0"),
        ([LN, NONE, BN._replace(batch=1.7)], "its loss is 0.10 lower"),
        ([LN, NONE, BN._replace(batch=1.601)], "its loss is the same"),
        ([LN, NONE, BN._replace(evaluation=0.05)], "and in evaluation by 5.0 %."),
        ([LN, NONE, BN._replace(training=0.0)], "no sentence's output changes"),
    ],
)
def test_the_sentences_depend_on_the_measured_values(values, said):
    assert said in " ".join(sentences(values))


def test_a_run_that_diverged_has_a_row_without_values():
    table = rows([LN, found("no norm", None), found("batch norm", None)])
    assert table[1] == ["no norm", "diverged", "-", "-", "-", "-"]
    assert table[3][:2] == ["copy the source", "0.1"]
    assert len(sentences([LN, NONE, found("batch norm", None)])) == 1


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("optim.rl=1", "optim.rl does not exist"),
        ("norm=gn", "normlab train norm=gn"),
        ("steps=0", "steps"),
    ],
)
def test_a_wrong_setting_fails_before_training_starts(setting, said, tmp_path, capsys):
    assert cli(["demo", setting, f"runs_dir={tmp_path / 'runs'}"]) == 1
    assert said in capsys.readouterr().err and not (tmp_path / "runs").exists()


def test_ctrl_c_prints_the_command_to_resume(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_all", interrupted)
    monkeypatch.chdir(tmp_path)
    assert cli(["demo", "deep", "budget.steps=9"]) == 130
    assert "resume with: normlab demo deep budget.steps=9" in capsys.readouterr().err
