"""No untrusted text reaches a table, a sheet, a page or a terminal unescaped."""

import csv
import io
import sys
from dataclasses import replace

from normlab import cli
from normlab.records.labels import in_markdown, in_sheet, one_line, printable
from normlab.records.record import Outcome
from normlab.records.store import RunStore
from normlab.reports.arrangement.row_names import RowName
from normlab.reports.legend import Note, print_legend
from normlab.reports.table_formats.comma_separated import comma_separated
from normlab.reports.table_formats.latex import latex_table
from normlab.reports.table_formats.markdown import markdown_table
from normlab.terminal import print_error, print_table
from tests.records.examples import changed, record
from tests.reports.handmade import build, runs, study

EVIL = "a\n| b | <script>alert(1)</script> \x1b[2J \\write18{rm} $x$ \u202e\u200f"


def evil_table():
    table = build(study(), runs({"ln": [30.0, 30.1], "bn": [20.0, 20.1]}))
    texts = {"point": f"+{EVIL}", "stability": EVIL, "article_stability": EVIL}
    row = replace(table.rows[0], row_name=RowName((f"={EVIL}",)), **texts)
    return replace(table, title=EVIL, rows=(row, *table.rows[1:]), notes=(Note(EVIL),))


def test_a_hostile_value_adds_no_row_or_tag_to_a_markdown_table():
    text, plain = markdown_table(evil_table()), markdown_table(build(study(), runs({"ln": [30.0]})))
    bars = {line.replace(r"\|", "").count("|") for line in text.splitlines() if line[:1] == "|"}
    assert bars == {plain.splitlines()[2].count("|")}
    assert not any(mark in text for mark in ("<script", "\x1b", "\u202e"))


def test_a_hostile_value_is_not_a_formula_in_a_csv_file():
    head, *rows = csv.reader(io.StringIO(comma_separated(evil_table())))
    for row in rows:
        assert len(row) == len(head) and not any(x in "".join(row) for x in "\n\x1b")
        assert not any(cell.startswith(("=", "+", "-", "@", "\t")) for cell in row[:3])
    assert in_sheet(-1.5) == -1.5 and in_sheet("-") == "-" and in_sheet("@x") == "'@x"


def test_a_hostile_value_is_not_a_command_in_latex():
    body, comments = latex_table(evil_table()).split(r"\end{table}")
    assert r"\write18" not in body and r"\textbackslash{}write18" in body and "$x$" not in body
    assert all(line.startswith("%") for line in comments.strip().splitlines())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_commands_print_no_terminal_control_characters(tmp_path, monkeypatch, capsys):
    print_table(["name"], [[EVIL]])
    print_legend([Note.short(EVIL)], whole=False)
    print_error(EVIL)
    assert cli.main(["list", EVIL]) == 1 and cli.main([EVIL]) == 2
    out, err = capsys.readouterr()
    assert not any(mark in out + err for mark in ("\x1b", "\u202e")) and r"\x1b[2J" in out
    assert len(out.splitlines()) == 4
    hostile = changed(record(), outcome=Outcome("finished", 1, reason="\x1b[2J"))
    scores = {f"test/{name}": hostile.scores["test/bleu"] for name in ("a\x1b[2J", "b\x9b2J")}
    RunStore(tmp_path).write(changed(hostile, scores=scores), tmp_path / "x" / "seed1")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    assert cli.main(["list", "runs", "--runs-dir", str(tmp_path)]) == 0
    shown = terminal.getvalue()
    assert "\x1b[2J" not in shown and "\x9b" not in shown and "finished" in shown


def test_text_without_control_characters_stays_unchanged():
    for text in ("Grüße, 東京", "a  b", "valid/loss", ""):
        assert printable(text) == one_line(text) == in_markdown(text) == in_sheet(text) == text
    assert printable("a\nb\t") == "a\nb\t" and one_line("a\r\nb") == "a b"
    assert in_markdown("p < 0.001") == "p < 0.001"
