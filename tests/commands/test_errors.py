"""Errors: one line for what a user can fix; for the rest their place, and the traceback."""

import os
import sys

import pytest

import normlab
from normlab.cli import main
from normlab.commands import list as list_command
from normlab.commands import train
from normlab.config import folders
from normlab.errors import CRASHED, UserError
from normlab.studies.loop import LOG_FILE, Cell, Plan, carry_out

OWN = """from normlab.norms.layer import NoNorm

class Mine(NoNorm):
    def forward(self, x, *_):
        return [a for a, _ in zip(x, x[1:], strict=True)]
"""
TINY = ("task=toy", "scale=smoke", "budget.steps=1", "validate.every=1", "sink=[]", "debug=true")


def raises(error):
    def command(*_):
        raise error

    return command


def test_only_an_error_that_users_can_fix_is_a_single_line(monkeypatch, capsys):
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


def test_an_error_in_an_own_norm_names_its_file_and_line(tmp_path, monkeypatch, capsys):
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


def test_a_run_that_crashed_in_a_sweep_names_the_log_that_has_the_traceback(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'ValueError: zip() is shorter'; exit ${4#seed=}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    cells = [Cell(f"{n}", (f"seed={n}",), tmp_path / f"{n}") for n in (1, CRASHED)]
    one, two = sorted(carry_out(Plan(cells), 1), key=lambda done: done.status)
    assert one.said == "ValueError: zip() is shorter"
    assert two.said == f"{one.said} (traceback in {two.cell.folder / LOG_FILE})"


def test_a_job_elsewhere_notes_the_traceback_of_a_bug_only(tmp_path, monkeypatch):
    for error, traced in ((UserError("set data_dir"), False), (ValueError("a bug"), True)):
        monkeypatch.setattr("normlab.config.compose.from_hydra", raises(error))
        note = tmp_path / "sweep" / "000001"
        assert train._train_elsewhere({}, ["norm=bn"], note) is None
        first, second, *rest = note.read_text("utf-8").splitlines()
        assert first == "norm=bn" and str(error) in second
        assert any("Traceback" in line for line in rest) is traced


def test_an_invalid_value_is_the_same_error_from_python():
    with pytest.raises(normlab.UserError, match=r"steps=0 must be above 0"):
        normlab.compose(["budget.steps=0"])
    assert os.environ.get(folders.PATH, "") == ""
