"""`normlab demo`: its table and page, and wrong settings."""

import pytest

from normlab import demo
from normlab.cli import main as cli
from normlab.commands.demo import main
from tests.html_text import Text

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
    assert first.endswith(second.partition("been trained.\n")[2]) and "been trained." in second
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
    monkeypatch.setenv("NORMLAB_PATH", str(tmp_path))  # a folder of options
    assert cli(["demo", "deep", "budget.steps=9"]) == 130
    command = f"normlab demo deep budget.steps=9 include={tmp_path}"
    assert f"resume with: {command}" in " ".join(capsys.readouterr().err.split())
