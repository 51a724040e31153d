"""The legend below tables."""

from normlab.reports.legend import About, Note, print_legend


def test_a_legend_has_the_brief_notes_in_three_lines_and_mentions_the_others(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    notes = [Note(f"note {n} in full", f"note number {n} in brief, about a row") for n in range(9)]
    print_legend([*notes, Note("only in full")], whole=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[0].startswith("note number 0 in brief")
    assert lines[-1].endswith("all notes: --notes") and "number 8" not in " ".join(lines)


def test_whole_notes_are_printed_once_each_and_short_ones_need_no_flag(capsys):
    print_legend([Note("one", "o"), Note("one", "o"), Note("two")], whole=True)
    assert capsys.readouterr().out == "one\ntwo\n"
    print_legend([Note.short("one"), Note.short("one")], whole=False)
    assert capsys.readouterr().out == "one\n"


def test_routine_notes_are_those_that_readers_know():
    assert About.VALUES.is_routine and not About.SEEDS.is_routine
