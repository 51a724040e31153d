"""Tables and help texts never break names or numbers, at any width."""

import io
from contextlib import suppress

import pytest

from normlab.cli import main
from normlab.commands import DOES
from normlab.commands._study_actions import ACTIONS
from normlab.reports.legend import Note, print_legend
from normlab.terminal import print_prose, print_table, printable_output, wrapped

PROSE = "a sentence that says at some length what an option is and what it does " * 2


@pytest.fixture
def lines(capsys, monkeypatch):
    """Return a function that prints at a given width and returns the lines."""

    def printed(columns, show, *arguments, **options):
        monkeypatch.setenv("COLUMNS", str(columns))
        with suppress(SystemExit):
            show(*arguments, **options)
        found = capsys.readouterr().out.splitlines()
        assert max(map(len, found)) <= columns
        return found

    return printed


def test_an_error_is_wrapped_on_a_terminal_and_one_line_in_a_pipe(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["train", "experiment=bert_bm"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["train", "experiment=bert_bm"]) == 1
    printed = capsys.readouterr().err.splitlines()
    assert max(map(len, printed)) <= 80 < len(line) and " ".join(printed) == line


@pytest.mark.parametrize("columns", [60, 80])
def test_prose_is_wrapped_and_numbers_are_not(lines, columns):
    rows = [["bn+ln", "30.00 +- 0.25", PROSE]]
    found = lines(columns, print_table, ["name", "score", "what"], rows, numeric=["score"])
    assert any("bn+ln  30.00 +- 0.25  a sentence" in line for line in found) and len(found) > 4
    assert " ".join(" ".join(found[2:]).split()).count("sentence") == 2
    assert "[bold]as it is[/bold]" in lines(
        columns, print_table, ["a"], [["[bold]as it is[/bold]"]]
    )
    first, *others = lines(80, print_prose, PROSE, indent="  ", hang=2)
    assert others and first.startswith("  a sentence")
    assert all(line.startswith("    ") and line[4] != " " for line in others)
    assert " ".join([first, *others]).split() == PROSE.split()


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("达到（五次）", 5, ["达到", "（五", "次）"]),
        ("层归一化，很好。", 8, ["层归一", "化，很", "好。"]),
        ('各科的"单科成绩"', 8, ["各科的", '"单科成', '绩"']),
        ("holds [code.article_3 2]", 21, ["holds", "[code.article_3 2]"]),
        ("a [padding.pollutes 3] b", 12, ["a [padding.", "pollutes 3]", "b"]),
    ],
)
def test_chinese_is_wrapped_between_characters_but_not_before_punctuation(text, width, lines):
    assert wrapped(text, width, cut=True) == lines


def test_labels_wrap_only_at_commas_and_wide_tables_are_split(lines):
    """Numbers that would squeeze a label to one word per line go into a second table."""
    rows = [["ln post, learning rate 0.003", "1", f"-0.{n:026}", f"-1.{n:030}"] for n in (3, 4)]
    head = ["setting", "batch size", "bits", "loss"]
    found = lines(80, print_table, head, rows, numeric=head[2:], labels=2)
    starts = [line.split("  ")[0] for line in found]
    assert {*starts[2:4]} <= {"ln post,", "learning rate 0.003", "ln post, learning rate 0.003"}
    assert sum(line.startswith("setting") for line in found) == 2
    narrow = lines(40, print_table, ["setting", "bits"], [rows[0][::2]], numeric=["bits"])
    assert len(narrow) == 6, "if its parts are too wide, a label wraps at spaces"


def test_a_legend_has_at_most_three_lines_and_mentions_notes_if_it_is_cut(lines):
    short, long = ["loss: nats per token", "+-: standard deviation"], Note(PROSE, "in brief")
    both = [*map(Note.short, short)]
    assert lines(80, print_legend, both, whole=False) == ["; ".join(short)]
    brief = lines(80, print_legend, [*both, long], whole=False)
    assert brief == [f"{'; '.join(short)}; in brief; all notes: --notes"]
    many = lines(80, print_legend, [Note.short(f"{n} {PROSE[:70]}") for n in range(9)], whole=False)
    assert len(many) <= 3 and " ".join(many).endswith("all notes: --notes")
    whole = lines(80, print_legend, [*both, long], whole=True)
    assert whole[:2] == short and " ".join(whole[2:]).split() == PROSE.split()
    assert lines(80, print_legend, [Note(PROSE)], whole=False) == ["all notes: --notes"]


@pytest.mark.parametrize(
    "command", ["compare", "demo", "eval", "inspect", "study run", "study plan", "study publish"]
)
def test_each_command_with_a_legend_has_the_option_notes(command, lines):
    assert any(
        line.startswith("  --notes") for line in lines(80, main, [*command.split(), "--help"])
    )


def test_columns_that_do_not_fit_move_to_a_second_table_with_the_same_labels(lines):
    scores = [f"score{n}" for n in range(4)]
    rows = [[name, "pre", *("0.25 +- 0.1" for _ in scores)] for name in ("ln", "bn")]
    head = ["norm", "at", *scores]
    found = lines(30, print_table, head, rows, numeric=scores, labels=2)
    assert sum(line.startswith("ln    pre") for line in found) == 4
    assert [line.split()[-1] for line in found if line.startswith("norm")] == scores


def test_columns_stay_aligned_with_wide_characters_and_wrapped_cells(lines):
    rows = [["\u65e5\u672c", "7", PROSE, "end"], ["ab", "123", "short", "end"]]
    found = lines(70, print_table, ["name", "n", "what", "last"], rows, numeric=["n"])
    first, *middle, last = found[2:]
    assert first.startswith("\u65e5\u672c    7  a sentence") and last.startswith("ab    123  short")
    # The two letters take two columns each, so the line has two fewer characters.
    assert first.index("end") + 2 == last.index("end")
    assert all(line.startswith(" " * 11) and line[11] != " " for line in middle)


def test_an_empty_path_is_an_error(capsys):
    with pytest.raises(SystemExit):
        main(["study", "run", "batching", "--publish", ""])
    assert "argument --publish: expected a path, got an empty argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["", *DOES, "norm card", *(f"study {action}" for action in ACTIONS)]
)
def test_help_fits_eighty_columns(lines, command):
    assert lines(80, main, [*command.split(), "--help"])


@pytest.mark.parametrize("terminal", [True, False])
def test_characters_missing_from_latin_1_become_question_marks_on_a_terminal_but_not_in_a_file(
    terminal, monkeypatch
):
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="iso-8859-1")
    monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr("sys.stdout", stream)
    with printable_output():
        print("─ é 语言 \udce9", flush=True)
    expected = "? é ?? \\udce9".encode("latin-1") if terminal else "─ é 语言 \\udce9".encode()
    assert written.getvalue().strip() == expected
