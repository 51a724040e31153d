"""Tables keep names and figures whole, whatever the width."""

import errno
import os
from contextlib import suppress

import pytest

from normlab.cli import _message, main
from normlab.commands import names
from normlab.commands._arguments import HelpFormatter
from normlab.commands._terminal import print_prose, print_table

PROSE = "a sentence that says at some length what an option is and what it does " * 2


@pytest.mark.parametrize("columns", [60, 80])
def test_prose_folds_and_figures_do_not(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(["name", "score", "what"], [["bn+ln", "30.00 +- 0.25", PROSE]], numeric=["score"])
    lines = capsys.readouterr().out.splitlines()
    assert any("bn+ln  30.00 +- 0.25  a sentence" in line for line in lines)
    assert len(lines) > 4 and max(map(len, lines)) <= columns
    assert " ".join(" ".join(lines[2:]).split()).count("sentence") == 2


def test_a_pipe_has_eighty_columns(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(["name", "what"], [["[1,2]", PROSE]], notes=["[bold]as it is[/bold]", PROSE])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and "[bold]as it is[/bold]" in lines


def test_prose_folds_in_a_pipe_below_its_indent(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    print_prose(PROSE, indent="  ", hang=2)
    first, *others = capsys.readouterr().out.splitlines()
    assert others and max(map(len, (first, *others))) <= 80
    assert first.startswith("  a sentence")
    assert all(line.startswith("    ") and line[4] != " " for line in others)
    assert " ".join([first, *others]).split() == PROSE.split()


def test_columns_without_room_stand_beneath_after_the_labels_again(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    scores = [f"score{n}" for n in range(4)]
    rows = [[name, "pre", *("0.25 +- 0.1" for _ in scores)] for name in ("ln", "bn")]
    print_table(["norm", "at", *scores], rows, numeric=scores, labels=2, whole=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 30 and sum(line.startswith("ln    pre") for line in lines) == 4
    assert [line.split()[-1] for line in lines if line.startswith("norm")] == scores


def test_a_name_without_room_has_a_line_of_its_own(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    folder = "runs/" + "x" * 40
    print_table(["run", "outcome"], [[folder, "finished"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:] == [folder, "  finished"] and len(lines[2]) == 40


def test_columns_line_up_whatever_their_letters_and_folds(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    rows = [["\u65e5\u672c", "7", PROSE, "end"], ["ab", "123", "short", "end"]]
    print_table(["name", "n", "what", "last"], rows, numeric=["n"])
    lines = capsys.readouterr().out.splitlines()
    first, *folded, last = lines[2:]
    assert first.startswith("\u65e5\u672c    7  a sentence") and last.startswith("ab    123  short")
    # The two letters take two columns each, so the line has two fewer characters.
    assert first.index("end") + 2 == last.index("end")
    assert all(line.startswith(" " * 11) and line[11] != " " for line in folded)
    assert " ".join([first[9 : first.index("end")], *folded]).split() == PROSE.split()


def test_prose_columns_share_the_room_that_is_left(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "130")
    print_table(["a", "b", "c"], [["x" * 10, PROSE[:60], PROSE]])
    rule = capsys.readouterr().out.splitlines()[1]
    assert len(rule) <= 130


def test_ten_thousand_rows_have_a_line_each(capsys):
    rows = [[f"run{n}", str(n)] for n in range(10_000)]
    print_table(["run", "n"], rows, numeric=["n"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [f"run{n:<4}  {n:>4}" for n in range(10_000)]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EEXIST])
def test_a_write_that_fails_is_one_line_with_the_file_and_what_to_do(code):
    said = _message(OSError(code, os.strerror(code), "runs/a/record.json"))
    assert said is not None and "\n" not in said
    assert os.strerror(code) in said and "'runs/a/record.json'; " in said


def test_an_empty_path_is_not_the_folder_of_now(capsys):
    with pytest.raises(SystemExit):
        main(["study", "run", "batching", "--publish", ""])
    assert "argument --publish: expected a path, found nothing" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["", *names()])
def test_help_fits_eighty_columns(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    with suppress(SystemExit):
        main([*command.split(), "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("usage: ") and not [line for line in lines if len(line) > 80]


def test_what_an_example_does_stands_beneath_it_where_the_line_is_too_long():
    made = HelpFormatter("normlab", width=46)
    one = "  normlab a   does one thing and another"
    other = "  normlab b c d e f g h i   does it all and more"
    found = made._fill_text(f"prose of\ntwo lines\n{one}\n{other}", 40, "").splitlines()
    assert found == [
        *("prose of two lines", one, "  normlab b c d e f g h i", "      does it all and more")
    ]
