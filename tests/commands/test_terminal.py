"""Tables keep names and figures whole, whatever the width."""

import os
import sys

import pytest

from normlab.commands._terminal import print_table

PROSE = "a sentence that says at some length what an option is and what it does " * 2


@pytest.mark.parametrize("columns", [20, 80])
def test_prose_folds_in_a_terminal_and_figures_do_not(capsys, monkeypatch, columns):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    size = os.terminal_size((columns, 24))
    monkeypatch.setattr("shutil.get_terminal_size", lambda *fallback: size)
    print_table(["name", "score", "what"], [["bn+ln", "30.00 +- 0.25", PROSE]], numeric=["score"])
    lines = capsys.readouterr().out.splitlines()
    assert any("bn+ln  30.00 +- 0.25  a sentence" in line for line in lines)
    assert len(lines) > 4
    assert " ".join(" ".join(lines[2:]).split()).count("sentence") == 2


def test_nothing_folds_in_a_pipe(capsys):
    print_table(["name", "what"], [["[1,2]", PROSE]], notes=["[bold]as it is[/bold]"])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[2] == f"[1,2]  {PROSE.rstrip()}"
    assert lines[3] == "[bold]as it is[/bold]"
