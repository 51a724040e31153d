"""Errors that users can fix are one line. All others also show the line of code and a traceback."""

import os
import sys

import pytest

import normlab
from normlab.cli import main
from normlab.commands import list as list_command
from normlab.config import folders
from normlab.errors import CRASHED, UserError

OWN = """from normlab.norms.base import NoNorm

class Mine(NoNorm):
    def forward(self, x, *_):
        return [a for a, _ in zip(x, x[1:], strict=True)]
"""
TINY = ("task=toy", "scale=smoke", "budget.steps=1", "validate.every=1", "sink=[]", "debug=true")


def raises(error):
    def command(*_):
        raise error

    return command


def test_an_error_that_users_can_fix_is_one_line_and_any_other_has_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(list_command, "main", raises(UserError("set data_dir=FOLDER")))
    assert main(["list"]) == 1
    assert capsys.readouterr().err == "normlab list: set data_dir=FOLDER\n"
    for error in (ValueError("zip() is shorter"), KeyError("x"), RuntimeError("\x1b[2J")):
        monkeypatch.setattr(list_command, "main", raises(error))
        assert main(["list"]) == CRASHED
        first, second, *_, last = capsys.readouterr().err.splitlines()
        assert first.startswith(f"normlab list: unexpected {type(error).__name__} in ")
        assert "cli.py, line " in first and second.startswith("Traceback") and "\x1b" not in last
        assert last.startswith(type(error).__name__)


def test_an_error_in_a_user_norm_reports_its_file_and_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "norm").mkdir()
    (tmp_path / "norm" / "mine.yaml").write_text("# Mine.\n_target_: mine_fails.Mine\n")
    (tmp_path / "mine_fails.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(folders.PATH, "")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "norm=mine", *TINY, f"include={tmp_path}"]) == CRASHED
    first, *_, last = capsys.readouterr().err.splitlines()
    place, said = f"{tmp_path / 'mine_fails.py'}, line 5", "zip() argument 2 is shorter"
    assert first.startswith(f"normlab train: unexpected ValueError in {place}: {said}")
    assert last.startswith(f"ValueError: {said}")


@pytest.mark.parametrize("more", [[], ["-m", "seed=1,2"]])
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("optim: {lrr: 1}", "optim.lrr does not exist"),
        ("budget: {steps: 0}", "budget.steps=0 must be"),
    ],
)
def test_an_error_in_a_settings_file_mentions_the_file(line, said, more, tmp_path, capsys):
    (tmp_path / "bad.yaml").write_text(f"defaults: [{{override /norm: bn}}]\n{line}\n")
    (tmp_path / "good.yaml").write_text("lr: 0.01\n")
    bad, good = (str(tmp_path / name) for name in ("bad.yaml", "good.yaml"))
    words = ["task=toy", f"runs_dir={tmp_path / 'runs'}", *more]
    assert main(["train", good, bad, *words]) == 1
    assert capsys.readouterr().err.startswith(f"normlab train: {bad}: {said}")
    on_the_command_line = line.replace(": {", ".").replace(": ", "=").rstrip("}")
    assert main(["train", good, on_the_command_line, "task=toy"]) == 1
    assert capsys.readouterr().err.startswith(f"normlab train: {said}")
    assert not (tmp_path / "runs").exists()


def test_the_slurm_launcher_without_slurm_is_a_one_line_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ("hydra/launcher=submitit_slurm", "task=toy", f"runs_dir={tmp_path / 'runs'}")
    assert main(["train", "-m", "norm=ln,bn", *words]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert "submitit_slurm needs Slurm" in said and not (tmp_path / "runs").exists()


def test_the_error_for_a_read_only_folder_suggests_runs_dir(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "access", lambda place, mode: place != tmp_path)
    assert main(["train", *TINY[:-1], f"runs_dir={tmp_path / 'runs'}"]) == 1
    said = f"normlab train: {tmp_path} cannot be written to; set runs_dir=FOLDER\n"
    assert capsys.readouterr().err == said and not list(tmp_path.iterdir())


def test_an_invalid_value_is_also_a_user_error_in_python():
    with pytest.raises(normlab.UserError, match=r"steps=0 must be above 0"):
        normlab.compose(["budget.steps=0"])
    assert os.environ.get(folders.PATH, "") == ""
